//! The system calls that Ruby makes for a feature, and for a whole application.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// All of Rails, loaded at once.
const RAILS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/boot/rails_all");

/// The number of features by which the second program exceeds the first.
const MORE: i64 = 100;

/// The fewest calls that Ruby makes for a feature: open the file, look up each folder above the file (once from 3.3 on,
/// twice before), and open the file again.
const PLAIN_MIN: i64 = 15;

/// The calls of a whole application for each folder above its own, such as those of its paths' expansion.
const CALLS_A_FOLDER_ABOVE: i64 = 6;

/// The calls of a search: for names, descriptors, and the process's rights. Calls for memory do not count.
const ASKED: &str = "trace=%file,%desc,%creds";

/// The four shapes of programs: the kind of the first feature, and the folder of each feature.
const SHAPES: [(&str, Shape); 4] = [
    ("empty", |folder, number, _| feature(&folder.join("lib"), number, "")),
    ("50 folders", |folder, number, _| {
        feature(&folder.join(format!("lib{}", number % 50)), number, "")
    }),
    ("nested", |folder, number, _| feature(&folder.join("lib/a/b/c/d"), number, "")),
    ("chain", |folder, number, last| {
        let next = format!("require 'f{}'\n", number + 1);
        feature(&folder.join("lib"), number, if number == last { "" } else { &next });
    }),
];

type Shape = fn(&Path, i64, i64);

fn feature(folder: &Path, number: i64, text: &str) {
    fs::create_dir_all(folder).expect("it is made");
    fs::write(folder.join(format!("f{number}.rb")), text).expect("it is written");
}

/// A program of `shape` with `features` features.
fn program(name: &str, shape: Shape, features: i64) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    (1..=features).for_each(|number| shape(folder.path(), number, features));
    let numbers = if name == "chain" { "1..1".to_owned() } else { format!("1..{features}") };
    let require = match name {
        "nested" => "require_relative \"lib/a/b/c/d/f#{n}\"",
        _ => "require \"f#{n}\"",
    };
    let bases = "$:.unshift(*Dir[\"#{__dir__}/lib*\"].sort)";
    let main = format!("{bases}\n({numbers}).each {{ |n| {require} }}\n");
    fs::write(folder.path().join("main.rb"), main).expect("it is written");
    age();
    folder
}

/// Waits until files are old enough to be learned.
fn age() {
    std::thread::sleep(Duration::from_millis(40));
}

/// Returns the number of Ruby's calls, with `thruway run` or without. Calls for memory are left out.
fn calls(what: &str, folder: &Path, run: Option<&[&str]>, script: &str) -> i64 {
    let table = folder.with_extension("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-e", what, "-o"]).arg(&table);
    if let Some(options) = run {
        strace.args([env!("CARGO_BIN_EXE_thruway"), "run", "--pack"]);
        strace.arg(pack(folder)).args(options).arg("--");
    }
    // Otherwise cargo's folders are searched for each library that an extension needs.
    strace.env_remove("LD_LIBRARY_PATH");
    let output = strace.args(["ruby", script]).current_dir(folder).output();
    let output = output.expect("scripts/setup installs strace");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&table).expect("strace writes it");
    let _ = fs::remove_file(table);
    text.lines().filter_map(row).sum()
}

/// Like [`calls`], for a program that takes less than a second on an idle machine. A process that stands still for a
/// second repeats its queries, so the fewest calls of several runs count.
fn calls_without_pause(folder: &Path, run: Option<&[&str]>, script: &str) -> i64 {
    let mut fewest = i64::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        fewest = fewest.min(calls(ASKED, folder, run, script));
        if begun.elapsed() < Duration::from_secs(1) {
            break;
        }
    }
    fewest
}

/// Parses a line of `strace -c`: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn row(line: &str) -> Option<i64> {
    let cells: Vec<_> = line.split_whitespace().collect();
    let is_counted = !matches!(*cells.last()?, "mmap" | "total");
    if is_counted { cells.get(3)?.parse().ok() } else { None }
}

fn pack(folder: &Path) -> std::path::PathBuf {
    folder.with_extension("pack")
}

/// Boots once, so that the pack is complete.
fn learn(folder: &Path, script: &str) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_thruway"));
    run.args(["run", "--pack"]).arg(pack(folder)).args(["--", "ruby", script]);
    assert!(run.current_dir(folder).output().expect("it starts").status.success());
}

#[test]
fn a_feature_costs_nothing_frozen_and_one_call_validated() {
    for (name, shape) in SHAPES {
        let (few, many) = (program(name, shape, MORE), program(name, shape, 2 * MORE));
        let marginal = |run: Option<&[&str]>| {
            let calls = |folder: &TempDir| calls_without_pause(folder.path(), run, "main.rb");
            calls(&many) - calls(&few)
        };
        [&few, &many].into_iter().for_each(|folder| learn(folder.path(), "main.rb"));
        let plain = marginal(None);
        assert!(plain >= PLAIN_MIN * MORE, "{name}: Ruby makes {plain} calls");
        assert_eq!(marginal(Some(&[])), MORE, "{name}, validated");
        for frozen in ["--frozen", "--trust-image"] {
            assert_eq!(marginal(Some(&[frozen])), 0, "{name}, {frozen}");
        }
        [few, many].iter().for_each(|folder| fs::remove_file(pack(folder.path())).unwrap());
    }
}

/// Below Bundler, Ruby 3.3 calls `resolve_feature_path` at each `require`.
#[test]
fn where_a_feature_is_costs_nothing_frozen_and_one_call_validated() {
    let (name, shape) = SHAPES[1];
    let programs = [MORE, 2 * MORE].map(|features| {
        let folder = program(name, shape, features);
        let script = "$:.unshift(*Dir[\"#{__dir__}/lib*\"].sort)\n\
            Dir[\"#{__dir__}/lib*/*\"].each { |f| $:.resolve_feature_path(File.basename(f, '.rb')) }\n";
        fs::write(folder.path().join("where.rb"), script).expect("it is written");
        age();
        ["main.rb", "where.rb"].iter().for_each(|script| learn(folder.path(), script));
        folder
    });
    let marginal = |run: Option<&[&str]>| {
        let calls = |folder: &TempDir| calls_without_pause(folder.path(), run, "where.rb");
        let [few, many] = [&programs[0], &programs[1]].map(calls);
        many - few
    };
    let plain = marginal(None);
    assert!(plain >= PLAIN_MIN * MORE, "Ruby makes {plain} calls");
    assert_eq!(marginal(Some(&[])), MORE, "validated");
    assert_eq!(marginal(Some(&["--frozen"])), 0, "frozen");
    programs.iter().for_each(|folder| fs::remove_file(pack(folder.path())).unwrap());
}

#[test]
fn rails_without_bundler_boots_within_its_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("main.rb"), "require 'logger'\nrequire 'rails/all'\n").unwrap();
    age();
    (0..2).for_each(|_| learn(folder.path(), "main.rb"));
    let files = |run| calls("trace=%file", folder.path(), run, "main.rb");
    let (plain, validated) = (files(None), files(Some(&[])));
    fs::remove_file(pack(folder.path())).unwrap();
    println!("plain {plain}, validated {validated}");
    assert!(plain > 60_000, "{plain}");
    assert!(validated <= 6_400, "{validated}");
}

#[test]
fn rails_boots_within_its_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["main.rb", "Gemfile", "config/database.yml", "config/storage.yml"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is made");
        fs::copy(Path::new(RAILS).join(name), path).expect("it is copied");
    }
    age();
    (0..2).for_each(|_| learn(folder.path(), "main.rb"));
    let features = features(folder.path());
    let files = |run| calls("trace=%file", folder.path(), run, "main.rb");
    let above = i64::try_from(folder.path().components().count()).unwrap() * CALLS_A_FOLDER_ABOVE;
    // Calls for ten features. A process that stands still for a second repeats its queries, so the fewest calls of
    // several runs count.
    let is_within = |budget: i64, options| {
        (0..5).any(|_| {
            let calls = files(Some(options));
            println!("{options:?}: {calls} calls for {features} features");
            10 * (calls - above) <= budget * features
        })
    };
    let plain = files(None);
    assert!(plain > 35 * features, "{plain}");
    // 4.6 and 3.7 calls a feature; Rails 6.1 loads 1,738 on Ruby 3.1, Rails 7.2 more.
    assert!(is_within(46, &[]));
    assert!(is_within(37, &["--frozen"]));
    fs::remove_file(pack(folder.path())).unwrap();
}

/// Returns the number of the program's loaded features, which grows with each Rails.
fn features(folder: &Path) -> i64 {
    let mut ruby = Command::new("ruby");
    let output = ruby.args(["main.rb", "--features"]).current_dir(folder).output();
    let output = output.expect("scripts/setup installs Ruby");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().count().try_into().expect("it is small")
}
