//! The examples, run as a user runs them. `examples/rails_app` has its own tests, in Ruby.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http::Server;
use crate::thruway;

/// The precompressed suffixes of the static site, each with the programs that decode and encode it.
const VARIANTS: [(&str, &str, &str); 3] =
    [("gz", "gzip", "gzip -9nk"), ("br", "brotli", "brotli -Zk"), ("zst", "zstd", "zstd -19k")];

#[test]
fn the_static_sites_variants_are_those_of_its_files() {
    let mut compared = 0;
    for file in files(&example("static_site")) {
        for (suffix, program, makes) in VARIANTS {
            if file.extension().is_some_and(|own| own == suffix) {
                let decoded = Command::new(program).arg("-dc").arg(&file).output();
                let original = fs::read(file.with_extension("")).unwrap();
                let same = decoded.expect("it is installed by scripts/setup").stdout == original;
                assert!(same, "{} is stale: make it again with {makes}", file.display());
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 15, "five files have three variants each");
}

#[test]
fn the_static_site_is_served_in_the_best_coding_that_the_client_takes() {
    let server = serve("static_site", &["-w", "2"]);
    let site = example("static_site");
    for (fields, suffix, coding) in [
        ("", "", None),
        ("Accept-Encoding: gzip\r\n", ".gz", Some("gzip")),
        ("Accept-Encoding: gzip, deflate, br, zstd\r\n", ".br", Some("br")),
        ("Accept-Encoding: zstd\r\n", ".zst", Some("zstd")),
    ] {
        for (path, file) in [("/", "index.html"), ("/road/gate.html", "road/gate.html")] {
            let response = server.get(path, fields);
            assert_eq!((response.status, response.field("content-encoding")), (200, coding));
            assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
            assert!(response.body == fs::read(site.join(format!("{file}{suffix}"))).unwrap());
        }
    }
    assert_eq!(server.get("/mark.svg", "").field("content-type"), Some("image/svg+xml"));
    assert_eq!(server.get("/road/none.html", "").status, 404);
}

#[test]
fn the_rack_example_answers_on_every_path() {
    let folder = example("rack_hello/tmp");
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let server =
        serve("rack_hello", &["-w", "2", "-t", "2", "-e", "production", "--sendfile", folder]);
    let mut client = server.connect();
    for path in ["/", "/cpu", "/sleep"] {
        let response = client.request("GET", path, "");
        assert_eq!((response.status, response.body.len()), (200, 121), "{path}");
    }
    let file = fs::read(example("rack_hello/tmp/nine_megabytes")).unwrap();
    for path in ["/file", "/sendfile"] {
        let response = client.request("GET", path, "");
        assert_eq!(response.field("x-sendfile"), None);
        assert!(response.body == file, "{path}: {} bytes", response.body.len());
    }
    assert_eq!(client.request("GET", "/nothing", "").status, 404);
}

/// `thruway serve examples/NAME` on some port.
fn serve(name: &str, options: &[&str]) -> Server {
    Server::start(thruway().arg("serve").arg(example(name)).args(["-p", "0"]).args(options))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is a folder").flatten().map(|entry| entry.path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found
}
