//! Advice on real programs, read and followed as a user would.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Place, has, report, trace};
use crate::{stderr, stdout};

/// Returns the advice on a command, and the number of its calls.
fn advised(place: &Place, command: &mut Command) -> (Vec<Value>, u64) {
    let recording = place.path().join("recording");
    let output = trace(&["-o", recording.to_str().expect("text")], command);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines = report(&recording);
    let calls = lines[0]["calls"].as_u64().expect("a count");
    let advice = lines.into_iter().filter(|line| line["group"] == "advice");
    (advice.collect(), calls)
}

/// Returns the setting or command of the advice that begins with `start`.
fn how<'a>(advice: &'a [Value], start: &str) -> &'a str {
    let all = || advice.iter().map(|one| one["how"].as_str().expect("text"));
    all()
        .find(|how| how.starts_with(start))
        .unwrap_or_else(|| panic!("nothing begins with {start}: {:?}", all().collect::<Vec<_>>()))
}

/// Folders by their numbers, joined.
fn folders(place: &Place, count: usize, before: &str, after: &str) -> String {
    let mut list = String::new();
    for number in 0..count {
        let folder = place.path().join(number.to_string());
        std::fs::create_dir_all(&folder).expect("it can be made");
        let _ = write!(list, "{before}{}{after}", folder.display());
    }
    list
}

fn script(place: &Place, name: &str, text: &str) {
    place.script(name, &format!("#!/bin/sh\n{text}\n"));
}

fn sh(script: &str) -> Command {
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", script]);
    sh
}

#[test]
fn another_order_of_path_finds_the_same_of_two_commands() {
    let place = Place::new();
    let path = folders(&place, 6, "", ":") + "/usr/bin:/bin";
    script(&place, "0/deploy", "echo ours");
    script(&place, "5/deploy", "echo theirs");
    script(&place, "5/job", "true");
    let mut jobs = sh("for i in 1 2 3 4 5 6; do env job; done");
    jobs.env("PATH", &path);
    let (advice, _) = advised(&place, &mut jobs);
    let order = how(&advice, "export PATH=").replace("export ", "");
    assert_ne!(order, format!("PATH={path}"));
    for said in [format!("PATH={path}"), order.clone()] {
        let output = sh(&format!("{said}; deploy; command -v job")).output().expect("sh starts");
        let job = place.path().join("5/job");
        assert_eq!(stdout(&output), format!("ours\n{}\n", job.display()), "{said}");
    }
    let (_, before) = advised(&place, &mut jobs);
    jobs.env("PATH", order.trim_start_matches("PATH="));
    let (_, after) = advised(&place, &mut jobs);
    assert!(after < before, "{before} {after}");
}

#[test]
fn fewer_library_options_link_the_same_program() {
    if !has("gcc") {
        return;
    }
    let place = Place::new();
    let options = folders(&place, 30, "-L", " ");
    let library = place.file("f.c", "int f(void) { return 7; }");
    let made = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(place.path().join("28/libf.so"))
        .arg(library)
        .status();
    assert!(made.expect("gcc starts").success());
    let main = place.file("m.c", "int f(void); int main() { return f(); }");
    let link = |options: &str| {
        let run_path = folders(&place, 30, "", ":");
        let mut gcc = Command::new("gcc");
        gcc.arg(&main).args(options.split_whitespace()).args(["-lf", "-o"]);
        gcc.arg(place.path().join("m"))
            .arg(format!("-Wl,-rpath,{}", run_path.trim_end_matches(':')));
        gcc
    };
    let (advice, before) = advised(&place, &mut link(&options));
    assert!(advice.iter().all(|one| !one["how"].as_str().expect("text").contains("gnm")));
    let (_, kept) = how(&advice, "drop 29 of 30 options -L").split_once("all but ").expect("one");
    let (_, after) = advised(&place, &mut link(kept));
    assert!(after + 500 < before, "{before} {after}");
    // The program itself gets 30 folders.
    let recording = place.path().join("recording");
    let traced = trace(
        &["-o", recording.to_str().expect("text")],
        &mut Command::new(place.path().join("m")),
    );
    assert_eq!(traced.status.code(), Some(7));
    let advice: Vec<_> = report(&recording);
    let advice = advice.into_iter().filter(|line| line["group"] == "advice").collect::<Vec<_>>();
    let only = place.path().join("28").display().to_string();
    assert!(how(&advice, "patchelf --set-rpath").contains(&format!("--set-rpath {only} ")));
}

#[test]
fn folders_that_python_never_needs_are_named() {
    if !has("python3") {
        return;
    }
    let place = Place::new();
    let path = folders(&place, 39, "", ":");
    let import = "import json, http.client, xml.dom.minidom, decimal; print(json.dumps(7))";
    let mut python = Command::new("python3");
    python.args(["-c", import]).env("PYTHONPATH", path.trim_end_matches(':'));
    let (advice, before) = advised(&place, &mut python);
    assert!(how(&advice, "PYTHONPATH= ").contains(import));
    python.env_remove("PYTHONPATH");
    let (_, after) = advised(&place, &mut python);
    assert!(after + 500 < before, "{before} {after}");
    // The folders now come from the program, and not from the variable.
    let insert = format!("import sys; sys.path[:0] = {path:?}.split(':')[:-1]; {import}");
    let mut python = Command::new("python3");
    let (advice, _) = advised(&place, python.args(["-c", &insert]));
    let named = how(&advice, "leave out of the program's sys.path");
    assert!(named.contains(&place.path().join("38").display().to_string()), "{named}");
}

#[test]
fn a_locale_that_is_missing_is_not_replaced() {
    let place = Place::new();
    let mut ls = sh("for i in 1 2 3; do ls /; done");
    ls.env_remove("LC_ALL").env("LANG", "qq_QQ.UTF-8");
    let (advice, _) = advised(&place, &mut ls);
    let texts: Vec<_> = advice.iter().map(|one| one["how"].as_str().expect("text")).collect();
    assert!(texts.iter().all(|how| !how.contains("LANG=C")), "{texts:?}");
    let title = advice.iter().find(|one| one["title"] == "the locale qq_QQ.UTF-8 is not installed");
    let installs = title.is_some_and(|one| one["how"].as_str().expect("text").contains("qq"));
    let has_sources = Path::new("/usr/share/i18n/locales/C").is_file();
    let is_debian = Path::new("/etc/debian_version").is_file();
    assert_eq!(installs, is_debian && !has_sources, "a locale without sources cannot be installed");
}

#[test]
fn translations_that_are_there_stay() {
    if !has("msgfmt") {
        return;
    }
    let place = Place::new();
    let mut messages = sh("for i in 1 2 3 4 5 6; do ls /none; done 2>/dev/null; true");
    // This locale needs no translation.
    messages.env_remove("LC_ALL").env("LANG", "C.UTF-8").env("LANGUAGE", "qq");
    let (advice, _) = advised(&place, &mut messages);
    for one in advice {
        let how = one["how"].as_str().expect("text");
        assert!(!how.contains("export LC_MESSAGES") && !how.contains("LANG=C "), "{how}");
    }
}

#[test]
fn a_terminal_is_described_in_one_folder() {
    if !Path::new("/lib/terminfo/x/xterm").is_file() || Command::new("tput").output().is_err() {
        return thruway_testing::skipped("tput, or its description of xterm, is not installed");
    }
    let place = Place::new();
    let mut tput = sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do tput cols; done");
    tput.env("TERM", "xterm").env_remove("TERMINFO").env("HOME", place.path());
    let (advice, before) = advised(&place, &mut tput);
    assert!(how(&advice, "TERMINFO=").starts_with("TERMINFO=/lib/terminfo /bin/sh -c "));
    tput.env("TERMINFO", "/lib/terminfo");
    let (_, after) = advised(&place, &mut tput);
    assert!(after < before, "{before} {after}");
}

#[test]
fn packages_of_node_are_bundled() {
    if !has("node") {
        return;
    }
    let place = Place::new();
    let mut main = String::new();
    for number in 0..8 {
        place.file(&format!("node_modules/m{number}/index.js"), "exports.v = 1");
        let _ = writeln!(main, "require('m{number}');");
    }
    for folder in ["a", "a/b", "a/b/c"] {
        place.file(&format!("{folder}/node_modules/other/index.js"), "");
    }
    let main = place.file("a/b/c/main.js", &main);
    let (advice, _) = advised(&place, Command::new("node").arg(&main));
    assert!(
        advice.iter().all(|one| !one["title"].as_str().expect("text").contains("node_modules"))
    );
    // A bundler is in PATH.
    let bundler = place.script("bin/esbuild", "#!/bin/sh\n");
    let folder = bundler.parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").expect("a path"));
    let (advice, _) = advised(&place, Command::new("node").arg(&main).env("PATH", path));
    let expected = format!(
        "esbuild {} --bundle --platform=node --outfile=bundle.js && node bundle.js",
        main.display()
    );
    assert_eq!(how(&advice, "esbuild "), expected);
}

#[test]
fn ruby_is_booted_from_a_pack_only_where_that_saves_calls() {
    if !has("ruby") {
        return;
    }
    let place = Place::new();
    let of = |arguments: &[&str]| {
        let (advice, _) = advised(&place, Command::new("ruby").args(arguments));
        let all = advice.into_iter().map(|one| one["how"].as_str().expect("text").to_owned());
        all.filter(|how| how.starts_with("thruway run")).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&["--disable-gems", "-e", "0"]),
        [""; 0],
        "the boot makes more calls than it saves"
    );
    let many = "20.times { |i| begin; require \"none#{i}\"; rescue LoadError; end }";
    let lib = place.file("thruway.so", "");
    let load_path: Vec<_> = (0..40).map(|i| format!("-I{}/{i}", place.path().display())).collect();
    let mut arguments: Vec<_> = load_path.iter().map(String::as_str).collect();
    arguments.extend(["-e", many]);
    assert_eq!(of(&arguments).len(), 1);
    // A program with the extension has booted from a pack.
    let opened = format!("File.open({lib:?}); {many}");
    *arguments.last_mut().expect("one") = &opened;
    assert_eq!(of(&arguments), [""; 0]);
}

#[test]
fn a_class_path_is_shorter() {
    if !has("java") {
        return;
    }
    let place = Place::new();
    let path = folders(&place, 12, "", ":");
    let recording = place.path().join("recording");
    let mut java = Command::new("java");
    java.args(["-cp", path.trim_end_matches(':'), "NoSuchClass"]);
    trace(&["-o", recording.to_str().expect("text")], &mut java);
    let advice: Vec<_> = report(&recording);
    let advice = advice.into_iter().filter(|line| line["group"] == "advice").collect::<Vec<_>>();
    let last = place.path().join("11");
    assert_eq!(how(&advice, "java -cp "), format!("java -cp {} NoSuchClass", last.display()));
}

/// pyenv's shims, configure scripts and compilers make such programs.
#[test]
fn a_program_that_removed_itself_leaves_the_advice_as_it_is() {
    let place = Place::new();
    let path = folders(&place, 12, "", ":") + "/usr/bin:/bin";
    let own = place.path().join("11/own");
    let line = format!(
        "printf '#!/bin/sh\\n' >{0}; chmod +x {0}; own; own; own; /bin/rm {0}",
        own.display()
    );
    let mut command = sh(&line);
    let output = trace(&[], command.env("PATH", &path));
    let text = stderr(&output);
    assert!(text.contains("WHAT WOULD FIX IT"), "{text}");
    assert!(!text.contains("no order of PATH is advised"), "{text}");
    // Lines to paste are never cut.
    assert!(text.contains("      export PATH="), "{text}");
    assert!(
        !text.lines().any(|line| line.contains("export PATH=") && line.contains('…')),
        "{text}"
    );
}

#[test]
fn what_stands_in_path_is_not_to_be_installed() {
    let place = Place::new();
    let path = folders(&place, 12, "", ":") + "/usr/bin:/bin";
    script(&place, "11/tool", "true");
    // The file is found without a look-up in its folder, as by a program that lists the folder.
    let line = "for i in 1 2 3; do for n in 0 1 2 3 4 5; do test -e \"$BASE/$n/tool\"; done; done";
    let mut command = sh(line);
    command.env("PATH", &path).env("BASE", place.path());
    let text = stderr(&trace(&[], &mut command)).to_owned();
    assert!(!text.contains("in no folder of PATH"), "{text}");
    // Names that another program looks up by itself may be of no use to its user.
    let line = "import shutil, os\nfor i in range(3): shutil.which('helper')";
    let mut command = Command::new("python3");
    let text = stderr(&trace(&[], command.args(["-c", line]).env("PATH", &path))).to_owned();
    assert!(!text.contains("in no folder of PATH"), "{text}");
    let mut command = sh("helper; helper; exit 0");
    let text = stderr(&trace(&[], command.env("PATH", &path))).to_owned();
    assert!(text.contains("in no folder of PATH: helper, with "), "{text}");
}

#[test]
fn a_ring_is_told_of() {
    let place = Place::new();
    let recording = place.path().join("recording");
    // The call is io_uring_setup of one entry, with zeroed parameters.
    let line = "import ctypes\nctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120))";
    let mut python = Command::new("python3");
    let output = trace(&["-o", recording.to_str().expect("text")], python.args(["-c", line]));
    let totals = &report(&recording)[0];
    match totals["rings"].as_u64() {
        // The kernel may forbid the call.
        Some(0) => assert!(!stderr(&output).contains("io_uring"), "{}", stderr(&output)),
        rings => {
            assert_eq!(rings, Some(1));
            assert!(
                stderr(&output).contains("1 ring was created for io_uring"),
                "{}",
                stderr(&output)
            );
        }
    }
}
