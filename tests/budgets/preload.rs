//! The number of queries that a template compares before each fork.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A program of `features` features in an application's folder, with a folder for templates beside it.
fn application(features: usize) -> TempDir {
    let around = tempfile::tempdir().expect("a folder");
    let folder = around.path().join("app");
    fs::create_dir_all(folder.join("config")).expect("it is made");
    fs::create_dir_all(folder.join("lib/deep")).expect("it is made");
    let requires = (0..features).map(|n| format!("require_relative '../lib/deep/f{n}'\n"));
    fs::write(folder.join("config/environment.rb"), requires.collect::<String>())
        .expect("it is written");
    for number in 0..features {
        fs::write(folder.join(format!("lib/deep/f{number}.rb")), "").expect("it is written");
    }
    // A template loads features in advance for no other kind of script.
    fs::create_dir(folder.join("bin")).expect("it is made");
    fs::write(folder.join("bin/rails"), "require_relative '../config/environment'\nputs 1\n")
        .expect("it is written");
    fs::write(folder.join("config/application.rb"), "").expect("it is written");
    fs::write(folder.join("config.ru"), "").expect("it is written");
    // A file written just before the boot makes a template stale.
    std::thread::sleep(Duration::from_millis(60));
    around
}

fn thruway(around: &Path, words: &[&str], zone: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thruway"));
    command.args(words).current_dir(around.join("app")).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", around).env("HOME", around).env_remove("LD_LIBRARY_PATH");
    for other in ["CI", "THRUWAY_PRELOAD", "THRUWAY_BOOT", "THRUWAY_PACK"] {
        command.env_remove(other);
    }
    match zone {
        Some(zone) => command.env("TZ", zone),
        None => command.env_remove("TZ"),
    };
    command.output().expect("it starts")
}

/// Makes a template for the command, in the given time zone, and returns the template's report.
fn template(around: &Path, words: &[&str], zone: Option<&str>) -> String {
    let run = || {
        let words = [&["run", "--preload", "--explain", "--"], words].concat();
        let run = thruway(around, &words, zone);
        assert!(run.status.success());
        String::from_utf8_lossy(&run.stderr).into_owned()
    };
    let began = Instant::now();
    let mut said = run();
    while !said.contains("forked from template") {
        assert!(began.elapsed() < Duration::from_secs(60), "{said}");
        std::thread::sleep(Duration::from_millis(100));
        said = run();
    }
    let status = thruway(around, &["preload", "status", "--json"], None).stdout;
    assert!(thruway(around, &["preload", "stop", "--all"], None).status.success());
    String::from_utf8_lossy(&status).into_owned()
}

/// Returns a number of a report.
fn number(report: &str, name: &str) -> i64 {
    let (_, rest) = report.split_once(&format!("\"{name}\": ")).expect("a template reports it");
    rest.split([',', '\n']).next().expect("it has a value").parse().expect("it is a number")
}

/// Returns the number of queries that the template of such a program makes before a fork.
fn questions(features: usize, zone: Option<&str>) -> i64 {
    let around = application(features);
    number(&template(around.path(), &["ruby", "bin/rails"], zone), "questions")
}

#[test]
fn a_feature_is_one_question_before_a_fork() {
    const MORE: usize = 100;
    assert_eq!(questions(2 * MORE, None) - questions(MORE, None), i64::try_from(MORE).unwrap());
}

#[test]
fn a_time_zone_is_one_question_before_a_fork() {
    for zone in ["UTC", "/no/such/zone"] {
        assert_eq!(questions(1, Some(zone)) - questions(1, None), 1, "{zone}");
    }
}

/// Returns the number of gems on this machine, without Ruby's own.
fn installed_gems() -> i64 {
    let count = "puts Gem::Specification.stubs.reject(&:default_gem?).size";
    let output = Command::new("ruby").args(["-e", count]).output().expect("Ruby starts");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("it is a number")
}

#[test]
fn rails_is_compared_within_its_budget() {
    let around = tempfile::tempdir().expect("a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rails_app");
    let copied = Command::new("cp").arg("-R").arg(example).arg(around.path().join("app")).status();
    assert!(copied.expect("it is copied").success());
    std::thread::sleep(Duration::from_millis(60));
    let report = template(around.path(), &["bin/rails", "runner", "0"], None);
    let (questions, features) = (number(&report, "questions"), number(&report, "features"));
    let gems = installed_gems();
    println!("{questions} questions, {features} features, {gems} gems");
    assert!(features > 800, "{features}");
    // RubyGems makes three queries for each installed gem, whether it is used or not. Rails 6.1 on
    // Ruby 3.1: 1,111 features.
    let own = questions - 3 * gems;
    assert!(10 * own <= 17 * features, "{questions} for {features} features and {gems} gems");
}
