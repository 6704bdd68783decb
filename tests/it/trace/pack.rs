//! Two recordings of a Rails boot, without and with its pack. The report names the savings.

use std::process::Command;

use serde_json::Value;

use super::{Place, has, trace};
use crate::{stdout, thruway};

const RAILS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/boot/rails_all");

#[test]
fn a_boot_from_a_pack_is_compared_with_one_without() {
    if !has("ruby") {
        return;
    }
    let place = Place::new();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (app, pack, before, after) = (at("app"), at("pack"), at("before"), at("after"));
    let copied = Command::new("cp").args(["-r", RAILS, &app]).status().expect("cp starts");
    assert!(copied.success());
    let run = || {
        let mut run = thruway();
        run.current_dir(&app).env_remove("RUBYOPT").args(["run", "--pack", &pack, "--"]);
        run.args(["ruby", "main.rb"]);
        run
    };
    let mut plain = Command::new("ruby");
    plain.current_dir(&app).env_remove("RUBYOPT").arg("main.rb");
    assert!(trace(&["-o", &before], &mut plain).status.success());
    for _ in 0..2 {
        assert!(run().status().expect("thruway starts").success(), "it learns");
    }
    assert!(trace(&["-o", &after], &mut run()).status.success());
    let compare = |options: &[&str]| {
        let output = thruway().args(["trace", "--compare", &before, &after]).args(options).output();
        stdout(&output.expect("thruway starts")).to_owned()
    };
    let lines: Vec<Value> = compare(&["--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let number = |value: &Value| value.as_u64().expect("a count");
    let calls = lines.iter().find(|line| line["what"] == "calls").expect("a sum");
    assert!(number(&calls["after"]) * 5 < number(&calls["before"]), "{calls}");
    let folder = |line: &&Value| {
        let name = line["what"].as_str().unwrap_or_default();
        line["group"] == "folder" && name.contains("/activerecord-") && name.ends_with("/lib")
    };
    let saved = lines.iter().find(folder).expect("the folder of Active Record");
    assert!(number(&saved["after"]) < number(&saved["before"]), "{saved}");
    let text = compare(&[]);
    assert!(text.contains("LOOK-UPS BY FOLDER") && text.contains("−"), "{text}");
}
