//! The JSON of all verbs: each document, or each object of a list, has a `version`, and the name of each number that is
//! not a count ends in its unit.

use std::collections::BTreeSet;

use serde_json::Value;
use thruway_testing::http_server::HttpServer;

use crate::{stdout, thruway};

/// The units at the end of names, or as names.
const UNITS: [&str; 6] = ["ns", "ms", "seconds", "second", "bytes", "percent"];

/// Words in the names of times and sizes, which need a unit.
const QUANTITIES: [&str; 16] = [
    "age",
    "after",
    "deviation",
    "due",
    "duration",
    "elapsed",
    "from",
    "interval",
    "latency",
    "max",
    "mean",
    "size",
    "time",
    "timeout",
    "to",
    "written",
];

/// Checks the names in a value, of which `name` is the last.
fn check(verb: &str, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| check(verb, name, value)),
        Value::Array(values) => values.iter().for_each(|value| check(verb, name, value)),
        Value::Number(_) => {
            let words: BTreeSet<_> = name.split('_').collect();
            let is_quantity = QUANTITIES.iter().any(|quantity| words.contains(quantity));
            let has_unit = words.iter().any(|word| UNITS.contains(word));
            assert!(has_unit || !is_quantity, "{verb}: {name} has no unit");
        }
        _ => {}
    }
}

/// Runs a verb, and returns the objects that it prints: one document, a list of them, or lines.
fn documents(words: &[&str]) -> Vec<Value> {
    let output = thruway().args(words).output().expect("it starts");
    let text = stdout(&output);
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let values: Vec<_> = values.map(|value| value.expect("it is JSON")).collect();
    assert!(!values.is_empty(), "{words:?}: {output:?}");
    values
        .into_iter()
        .flat_map(|value| match value {
            Value::Array(values) => values,
            value => vec![value],
        })
        .collect()
}

#[test]
fn every_document_has_a_version_and_units_in_its_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (script, pack) = (path("a.rb"), path("pack"));
    std::fs::write(&script, "p 1").expect("it is written");
    let boot = thruway().args(["run", "--pack", &pack, "--", "ruby", &script]).status();
    assert!(boot.expect("it starts").success());
    let server = HttpServer::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let commands: [&[&str]; 6] = [
        &["which", "--json", "sh", "ls"],
        &["doctor", "--json"],
        &["trace", "--quiet", "--json", "--", "true"],
        &["load", "--json", "-n", "20", &server.url("/")],
        &["pack", "info", "--json", &pack],
        &["certificates", "--json", &path("")],
    ];
    for words in commands {
        let documents = documents(words);
        // The lines of a report of `trace` are one document.
        let count = if words[0] == "trace" { 1 } else { documents.len() };
        for document in &documents[..count] {
            assert!(document["version"].is_u64(), "{words:?}: {document}");
        }
        documents.iter().for_each(|document| check(words[0], "", document));
    }
}
