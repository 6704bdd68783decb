//! `thruway run`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::http::Server;
use crate::program::Program;
use crate::{stderr, stdout, thruway};

const MAIN: &str = "require 'a'\nrequire_relative 'near'\nputs A, $LOADED_FEATURES\n";
const FILES: [(&str, &str); 4] = [
    ("main.rb", MAIN),
    ("near.rb", "require 'deep/b'\n"),
    ("lib/a.rb", "require 'set'\nA = 'first'\n"),
    ("lib/deep/b.rb", "require_relative '../a'\n"),
];

/// Parses the numbers of features from the report of `--explain`.
fn features(output: &Output) -> (usize, usize) {
    let line = stderr(output).lines().find(|line| line.contains("features from the pack"));
    let numbers = line.expect("there is a report").split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
    (numbers[0], numbers[1])
}

#[test]
fn the_second_boot_compiles_nothing_and_shows_no_difference() {
    let program = Program::new(&FILES);
    let (packed, compiled) = features(&program.run(&["--explain"]));
    assert!(packed == 0 && compiled > 40, "{packed} {compiled}");
    assert_eq!(features(&program.run(&["--explain"])), (compiled, 0));
    for options in [&[][..], &["--frozen"], &["--trust-image"], &["--digest"]] {
        program.same(options);
    }
    assert_eq!(features(&program.run(&["--explain", "--frozen"])), (compiled, 0));
}

#[test]
fn a_pack_that_is_only_read_stays_as_it_is() {
    let program = Program::new(&FILES);
    let (packed, all) = features(&program.run(&["--explain", "--read-only"]));
    assert!(packed == 0 && fs::read(program.pack()).is_err());
    program.run(&[]);
    let before = fs::read(program.pack()).unwrap();
    program.write("lib/a.rb", "require 'set'\nA = 'other'\n");
    program.age();
    for options in [&["--explain", "--read-only"][..], &["--explain", "--read-only", "--digest"]] {
        let changed = program.run(options);
        assert!(stdout(&changed).starts_with("other\n"), "{}", stdout(&changed));
        assert_eq!(features(&changed), (all - 1, 1));
    }
    assert!(fs::read(program.pack()).unwrap() == before);
    program.same(&["--read-only"]);
}

#[test]
fn every_part_can_be_left_to_ruby() {
    let program = Program::new(&FILES);
    program.run(&[]);
    for part in ["lookups", "code", "gems", "yaml", "json", "zones", "heap"] {
        program.same(&["--without", part]);
    }
    let report = program.run(&["--explain", "--without", "code,lookups"]);
    assert_eq!(features(&report).0, 0);
    let refused = program.run(&["--without", "wings"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("lookups"), "{}", stderr(&refused));
}

#[test]
fn a_changed_file_is_compiled_once_more_and_then_known() {
    let program = Program::new(&FILES);
    let (_, all) = features(&program.run(&["--explain"]));
    program.write("lib/a.rb", "A = 'other'\n");
    program.age();
    let changed = program.run(&["--explain"]);
    assert!(stdout(&changed).starts_with("other\n"), "{}", stdout(&changed));
    assert_eq!(features(&changed), (all - 2, 1), "set.rb is not wanted any more");
    assert!(stderr(&changed).contains("changed since: "), "{}", stderr(&changed));
    assert_eq!(features(&program.run(&["--explain"])), (all - 1, 0));
    program.same(&[]);
}

#[test]
fn a_file_of_the_same_size_and_time_is_another_one() {
    let program = Program::new(&FILES);
    program.run(&[]);
    let path = program.path("lib/a.rb");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    program.write("lib/a.rb", &FILES[2].1.replace("first", "tsrif"));
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert!(stdout(&program.run(&[])).starts_with("tsrif\n"));
}

#[test]
fn a_new_file_earlier_in_the_load_path_wins() {
    let program = Program::new(&FILES);
    program.write("main.rb", "$:.unshift \"#{__dir__}/first\"\nrequire 'a'\nputs A\n");
    fs::create_dir(program.path("first")).unwrap();
    program.age();
    program.run(&[]);
    program.same(&[]);
    program.write("first/a.rb", "A = 'shadow'\n");
    program.age();
    for options in [&[][..], &["--frozen"], &["--digest"]] {
        let output = program.same(options);
        assert!(stdout(&output).starts_with("shadow\n"), "{}", stdout(&output));
    }
}

#[test]
fn a_deleted_file_gives_rubys_own_error() {
    let program = Program::new(&FILES);
    program.run(&[]);
    fs::remove_file(program.path("lib/deep/b.rb")).unwrap();
    for options in [&[][..], &["--frozen"]] {
        let output = program.same(options);
        assert!(stderr(&output).contains("cannot load such file -- deep/b"));
    }
    fs::remove_file(program.path("near.rb")).unwrap();
    program.same(&[]);
}

#[test]
fn errors_and_warnings_are_the_same_bytes() {
    for text in [
        "raise 'no'",
        "def x\n  1 +\nend\n",
        "require 'nowhere'",
        "require './nowhere'",
        "require_relative 'nowhere'",
        "load 'nowhere'",
        "require nil",
        "warn 'careful', uplevel: 0",
        "$VERBOSE = true\neval 'x = 1'\nload __dir__ + '/warns.rb'",
        "exit 7",
        "abort 'enough'",
        "begin; require 'raises'; rescue => e; p e, e.backtrace, $LOADED_FEATURES.last; end",
    ] {
        let files = [("main.rb", "require 'x'\n"), ("lib/x.rb", text)];
        let program = Program::new(&files);
        program.write("lib/warns.rb", "def a\n  x = 1\nend\n");
        program.write("lib/raises.rb", "raise 'never loaded'\n");
        program.age();
        for _ in 0..2 {
            program.same(&[]);
        }
        program.same(&["--frozen"]);
    }
}

#[test]
fn a_pack_that_cannot_be_used_costs_one_note_at_most() {
    let program = Program::new(&FILES);
    let plain = program.plain();
    let one_note = |pack: &Path, options: &[&str]| {
        let output = program.run_with(pack, options);
        assert!(output.status.success());
        assert_eq!(output.stdout, plain.stdout);
        let notes: Vec<_> = stderr(&output).lines().collect();
        assert!(notes.len() <= 1, "{notes:?}");
        assert!(notes.iter().all(|note| note.starts_with("thruway: note: ")), "{notes:?}");
        notes.len()
    };
    assert_eq!(one_note(&program.path("missing/a.pack"), &["--frozen"]), 1, "nothing is frozen");
    assert_eq!(one_note(&program.path("main.rb/a.pack"), &[]), 1, "that is no folder");
    let pack = program.pack();
    program.run(&[]);
    let whole = fs::read(&pack).unwrap();
    fs::set_permissions(&pack, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(one_note(&pack, &[]), 1, "others may write it");
    fs::set_permissions(&pack, fs::Permissions::from_mode(0o644)).unwrap();
    for wrong in [&whole[..whole.len() - 1], &whole[..100], b""] {
        fs::write(&pack, wrong).unwrap();
        assert_eq!(one_note(&pack, &[]), 1);
        assert_eq!(one_note(&pack, &[]), 0, "it has been replaced");
    }
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, "notes of mine").unwrap();
    for _ in 0..2 {
        assert_eq!(one_note(&pack, &[]), 1);
        assert_eq!(fs::read(&pack).unwrap(), b"notes of mine", "it is no pack");
    }
}

#[test]
fn a_full_disk_costs_one_note() {
    let program = Program::new(&FILES);
    let plain = program.plain();
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    let mut limited = Command::new("bash");
    limited.args(["-c", script, "-", env!("CARGO_BIN_EXE_thruway"), "run", "--pack"]);
    limited.arg(program.pack()).args(["--", "ruby", "-I"]).arg(program.path("lib"));
    let output = limited.arg(program.path("main.rb")).output().unwrap();
    assert_eq!((output.status, &output.stdout), (plain.status, &plain.stdout));
    let said = stderr(&output);
    assert!(said.starts_with("thruway: note: cannot write "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(fs::metadata(program.pack().with_added_extension("partial")).is_err());
}

#[test]
fn a_gem_is_found_by_what_it_holds_now() {
    let gemspec = "Gem::Specification.new { |s| s.name = 'near'; s.version = '1'; s.summary = '-'; \
                   s.authors = ['-']; s.files = []; s.require_paths = ['lib'] }\n";
    let main = "Gem.paths = { 'GEM_HOME' => \"#{__dir__}/home\", 'GEM_PATH' => '' }\n\
                %w[nowhere near/none].each do |name|\n\
                require name\nrescue LoadError => e\nputs e.message\nend\n\
                late = \"#{__dir__}/home/gems/near-1/lib/late.rb\"\n\
                File.write(late, 'puts :late')\nrequire 'late'\nFile.unlink(late)\n\
                require 'near'\nputs Gem.loaded_specs.keys, $LOADED_FEATURES.last(2)\n";
    let program = Program::new(&[
        ("main.rb", main),
        ("home/specifications/near-1.gemspec", gemspec),
        ("home/gems/near-1/lib/near.rb", "puts :near\n"),
    ]);
    for _ in 0..2 {
        program.same(&[]);
        assert!(stdout(&program.run(&[])).contains("late\nnear\n"));
    }
}

#[test]
fn a_server_keeps_its_pack_with_the_application() {
    let rackup = "$:.unshift(\"#{__dir__}/lib\")\nrequire 'x'\nrun ->(_) { [200, {}, [X]] }\n";
    let files = [("config.ru", rackup), ("lib/x.rb", "X = 'served'\n"), ("tmp/kept", "")];
    let program = Program::new(&files);
    let cache = tempfile::tempdir().unwrap();
    let serve = || {
        let mut thruway = thruway();
        thruway
            .args(["serve", "-p", "0"])
            .arg(program.path(""))
            .env("XDG_CACHE_HOME", cache.path());
        assert_eq!(Server::start(&mut thruway).get("/", "").text(), "served");
        let packs = fs::read_dir(program.path("tmp/cache/thruway"));
        packs.into_iter().flatten().map(|pack| fs::read(pack.unwrap().path()).unwrap()).next()
    };
    let feature = program.path("lib/x.rb").into_os_string().into_encoded_bytes();
    let has_feature = |pack: &[u8]| pack.windows(feature.len()).any(|name| name == feature);
    assert!((0..2).all(|_| has_feature(&serve().unwrap())), "the first server has written it");
    fs::remove_dir_all(program.path("tmp")).unwrap();
    assert_eq!(serve(), None);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0, "nothing is written elsewhere");
}

#[test]
fn other_commands_are_not_touched() {
    let output = thruway().args(["run", "--", "sh", "-c", "echo out; exit 7"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output), stderr(&output)), (Some(7), "out\n", ""));
    let output = thruway().args(["run", "sh", "-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    let program = Program::new(&[("main.rb", "")]);
    let there = program.path("main.rb");
    for (name, status) in [("no such command", 127), (there.to_str().unwrap(), 126)] {
        let output = thruway().args(["run", name]).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        assert!(stderr(&output).contains(name), "{}", stderr(&output));
    }
}

#[test]
fn an_option_that_is_not_known_is_no_command() {
    for verb in [&["run"][..], &["pack", "build", "-o", "x.pack"]] {
        let output = thruway().args(verb).args(["--nosuch", "true", "-x"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("'-- --nosuch'"), "{}", stderr(&output));
    }
    let output = thruway().args(["run", "echo", "--nosuch", "-x", "--", "y"]).output().unwrap();
    assert_eq!(stdout(&output), "--nosuch -x -- y\n");
}

#[test]
fn a_run_in_a_run_names_the_gem_once() {
    let script = "puts ENV.values_at('RUBYOPT', 'RUBYLIB')";
    let say = |runs: usize| {
        let mut command = thruway();
        let below = [env!("CARGO_BIN_EXE_thruway"), "run", "--"].repeat(runs - 1);
        command.args(["run", "--"]).args(below).args(["ruby", "-e", script]);
        let command = command.env("RUBYOPT", "-W1").env("RUBYLIB", "/nowhere");
        stdout(&command.output().unwrap()).to_owned()
    };
    assert!(say(1).contains(" -W1\n") && say(1).ends_with(":/nowhere\n"), "{}", say(1));
    assert_eq!(say(3), say(1));
}

#[test]
fn a_report_is_of_the_ruby_that_was_started() {
    let main =
        "puts `ruby -e 'puts 1'`\nif ARGV.empty? then exec('ruby', '-I.', $0, 'again') end\n";
    let program = Program::new(&[("main.rb", main)]);
    let report = program.run(&["--explain"]);
    let count = stderr(&report).matches("features from the pack").count();
    assert_eq!((count, stdout(&report)), (1, "1\n"), "{}", stderr(&report));
}

#[test]
fn the_command_takes_the_place_of_the_process() {
    let mut command = thruway();
    command.args(["run", "--", "ruby", "-e", "puts $$, STDIN.read"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in").unwrap();
    let id = child.id();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), format!("{id}\nin\n"));
}

#[test]
fn rubies_without_gems_stay_without() {
    let program = Program::new(&[("main.rb", "")]);
    for options in [&["--disable-gems"][..], &["--disable=did_you_mean"], &[]] {
        let script = "p [defined?(Gem), defined?(DidYouMean), defined?(ErrorHighlight), \
                      defined?(Thruway), $LOADED_FEATURES, $:, ARGV, $0, ENV['HOME']]";
        let mut plain = Command::new("ruby");
        let plain = plain.args(options).args(["-e", script, "x"]).output().unwrap();
        for _ in 0..2 {
            let mut run = thruway();
            run.arg("run").arg("--pack").arg(program.pack()).args(["--", "ruby"]);
            let run = run.args(options).args(["-e", script, "x"]).output().unwrap();
            assert_eq!(stdout(&run), stdout(&plain), "{options:?}");
        }
    }
}

#[test]
fn a_gem_in_a_folder_with_a_space_leaves_the_load_path_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("a gem");
    let library = home.join("gem");
    fs::create_dir_all(&library).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_thruway"));
    thruway_testing::copy_program(built, home.join("thruway"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gem/lib");
    for part in [sources, built.with_file_name("gem")] {
        let copied = Command::new("cp").arg("-r").arg(part.join(".")).arg(&library).status();
        assert!(copied.unwrap().success());
    }
    let named = format!("-I{}", library.display());
    for options in [&[][..], &[named.as_str()]] {
        let script = ["-e", "puts $LOAD_PATH, defined?(Thruway)"];
        let plain = Command::new("ruby").args(options).args(script).output().unwrap();
        let mut run = Command::new(home.join("thruway"));
        run.args(["run", "--explain", "--pack"]).arg(folder.path().join("pack"));
        let run = run.args(["--", "ruby"]).args(options).args(script).output().unwrap();
        assert_eq!(stdout(&run), stdout(&plain), "{}", stderr(&run));
        assert!(stderr(&run).contains("features from the pack"), "{}", stderr(&run));
    }
}
