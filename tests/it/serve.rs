//! `thruway serve DIR`.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::http::{Client, Server};
use crate::{run, stderr, thruway};

/// Creates a folder with one entry of each kind, and starts its server.
fn site() -> (TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("site");
    fs::create_dir_all(root.join("sub/deep")).expect("it is written");
    fs::create_dir_all(root.join("bare")).expect("it is written");
    let files: [(&str, &[u8]); 10] = [
        ("index.html", b"<h1>home</h1>"),
        ("a.txt", b"0123456789"),
        ("script.js", b"let a = 1;"),
        ("script.js.gz", b"(gzip)"),
        ("script.js.br", b"(brotli)"),
        ("script.js.zst", b"(zstd)"),
        ("sub/index.html", b"sub"),
        ("bare/<b>.txt", b""),
        (".secret", b"no"),
        ("sub/deep/.well-known", b"yes"),
    ];
    for (name, bytes) in files {
        fs::write(root.join(name), bytes).expect("it is written");
    }
    fs::write(folder.path().join("outside.txt"), "outside").expect("it is written");
    std::os::unix::fs::symlink("../outside.txt", root.join("leak.txt")).expect("it is written");
    std::os::unix::fs::symlink("a.txt", root.join("link.txt")).expect("it is written");
    let server = serve(&root, &[]);
    (folder, server)
}

fn serve(folder: &Path, arguments: &[&str]) -> Server {
    Server::start(thruway().arg("serve").arg(folder).args(["-p", "0"]).args(arguments))
}

#[test]
fn a_file_comes_with_its_type_and_validators() {
    let (_folder, server) = site();
    let response = server.get("/a.txt", "");
    assert_eq!((response.status, response.text()), (200, "0123456789"));
    assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.field("accept-ranges"), Some("bytes"));
    let (tag, date) = (response.field("etag").unwrap(), response.field("last-modified").unwrap());
    assert!(tag.starts_with('"'), "{tag} is strong");
    let known = server.get("/a.txt", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((known.status, known.body.len(), known.field("etag")), (304, 0, Some(tag)));
    assert_eq!(server.get("/a.txt", &format!("If-Modified-Since: {date}\r\n")).status, 304);
    assert_eq!(server.get("/a.txt", "If-Match: \"other\"\r\n").status, 412);
    assert_eq!(server.get("/link.txt", "").text(), "0123456789");
}

#[test]
fn a_changed_file_has_another_tag() {
    let (folder, server) = site();
    let before = server.get("/a.txt", "");
    fs::write(folder.path().join("site/a.txt"), "9876543210").unwrap();
    let fields = format!("If-None-Match: {}\r\n", before.field("etag").unwrap());
    let after = server.get("/a.txt", &fields);
    assert_eq!((after.status, after.text()), (200, "9876543210"));
}

#[test]
fn ranges_are_sent_alone_and_together() {
    let (_folder, server) = site();
    let one = server.get("/a.txt", "Range: bytes=2-4\r\n");
    assert_eq!((one.status, one.text()), (206, "234"));
    assert_eq!(one.field("content-range"), Some("bytes 2-4/10"));
    let many = server.get("/a.txt", "Range: bytes=0-1,-2\r\n");
    let media = many.field("content-type").unwrap();
    let boundary = media.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let expected = format!(
        "\r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes 0-1/10\r\n\r\n01\
         \r\n--{boundary}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-range: bytes 8-9/10\r\n\r\n89\
         \r\n--{boundary}--\r\n"
    );
    assert_eq!((many.status, many.text()), (206, expected.as_str()));
    let behind = server.get("/a.txt", "Range: bytes=10-\r\n");
    assert_eq!((behind.status, behind.field("content-range")), (416, Some("bytes */10")));
    let stale = server.get("/a.txt", "Range: bytes=2-4\r\nIf-Range: \"other\"\r\n");
    assert_eq!((stale.status, stale.text()), (200, "0123456789"));
}

#[test]
fn a_compressed_variant_goes_to_clients_that_take_it() {
    let (_folder, server) = site();
    let plain = server.get("/script.js", "");
    assert_eq!((plain.text(), plain.field("content-encoding")), ("let a = 1;", None));
    assert_eq!(plain.field("vary"), Some("accept-encoding"));
    let best = server.get("/script.js", "Accept-Encoding: gzip, br\r\n");
    assert_eq!((best.text(), best.field("content-encoding")), ("(brotli)", Some("br")));
    let rated = server.get("/script.js", "Accept-Encoding: gzip, br;q=0.5\r\n");
    assert_eq!((rated.text(), rated.field("content-encoding")), ("(gzip)", Some("gzip")));
    let zstd = server.get("/script.js", "Accept-Encoding: zstd, gzip;q=0.1\r\n");
    assert_eq!((zstd.text(), zstd.field("content-encoding")), ("(zstd)", Some("zstd")));
    assert_eq!(rated.field("content-type"), plain.field("content-type"));
    assert_ne!(rated.field("etag"), plain.field("etag"));
}

#[test]
fn a_folder_is_its_index_and_wants_its_slash() {
    let (_folder, server) = site();
    assert_eq!(server.get("/", "").text(), "<h1>home</h1>");
    assert_eq!(server.get("/sub/", "").text(), "sub");
    let moved = server.get("/sub?a=b", "");
    assert_eq!((moved.status, moved.field("location")), (301, Some("/sub/?a=b")));
    assert_eq!(server.get("/bare/", "").status, 404);
}

#[test]
fn a_folder_without_an_index_is_listed_on_request_only() {
    let (folder, _server) = site();
    let server = serve(&folder.path().join("site"), &["--list"]);
    let page = server.get("/bare/", "");
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<a href=\"./%3Cb%3E.txt\">&lt;b&gt;.txt</a>"));
    let by_size = server.get("/bare/?sort=-size", "");
    assert!(
        by_size.text().contains("<th aria-sort=\"descending\"><a href=\"?sort=size\">Size</a>")
    );
    assert_eq!(server.get("/", "").text(), "<h1>home</h1>");
}

/// DNS rebinding: a page of another site requests the metrics by its own name, and the browser would let the page read
/// them.
#[test]
fn metrics_are_told_to_no_other_sites_name() {
    let (folder, _) = site();
    let mut command = thruway();
    command.arg("serve").arg(folder.path().join("site")).args(["-p", "0", "--status"]);
    command.args(["--metrics", "tcp://127.0.0.1:0"]);
    let (_server, metrics) = Server::start_with_metrics(&mut command);
    let address = metrics.trim_start_matches("http://");
    let status = |path: &str, host: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response[9..12].parse::<u16>().unwrap()
    };
    // Whoever probes a server's health learns nothing else.
    for (path, foreign) in
        [("/metrics", 421), ("/stats", 421), ("/", 421), ("/live", 200), ("/ready", 200)]
    {
        for host in [address, "localhost:1", "127.0.0.1", "[::1]:9"] {
            assert_eq!(status(path, host), 200, "{path} of {host}");
        }
        assert_eq!(status(path, "rebound.example:9394"), foreign, "{path}");
    }
    let mut old = TcpStream::connect(address).unwrap();
    old.write_all(b"GET /stats HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    old.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "no browser: {response}");
}

/// Names of Linux are bytes. Windows would take these for devices, streams, drives and short names.
#[test]
fn every_file_that_is_listed_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let names: [&[u8]; 13] = [
        b"aux.js",
        b"con.css",
        b"nul",
        b"prn.txt",
        b"com1.html",
        b"a~1.txt",
        b"trail.",
        b"blank ",
        b"x\\y",
        b"ab:cd",
        b"c:d",
        b"2026-11-25T10:00.log",
        b"\xff.bin",
    ];
    for name in names {
        fs::write(folder.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let server = serve(folder.path(), &["--list"]);
    let page = server.get("/", "");
    let links = page.text().split("href=\"./").skip(1);
    let links: Vec<_> = links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    assert_eq!(links.len(), names.len(), "{links:?}");
    for link in links {
        let response = server.get(&format!("/{link}"), "");
        assert_eq!(response.status, 200, "{link}");
        assert!(names.contains(&response.body.as_slice()), "{link}");
    }
    // Repeated slashes count as one anywhere in the path.
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/f"), "f").unwrap();
    for path in ["//d/f", "/d//f", "//d//f", "///d///f", "/%2Fd/f"] {
        assert_eq!(server.get(path, "").text(), "f", "{path}");
    }
    assert_eq!(server.get("//d", "").field("location"), Some("/d/"), "not another host");
}

#[test]
fn nothing_outside_and_nothing_hidden_is_served() {
    let (_folder, server) = site();
    for path in ["/.secret", "/leak.txt", "/none", "/a.txt/", "/sub/deep/%5c", "/a.txt::$DATA"] {
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    for path in ["/../outside.txt", "/%2e%2e/outside.txt", "/sub/../../outside.txt"] {
        assert_eq!(server.get(path, "").status, 400, "{path}");
    }
    assert_eq!(server.get("/sub/deep/.well-known", "").text(), "yes");
}

#[test]
fn only_what_a_folder_can_do_is_done() {
    let (_folder, server) = site();
    let mut client = server.connect();
    let head = client.request("HEAD", "/a.txt", "");
    assert_eq!((head.status, head.field("content-length")), (200, Some("10")));
    let options = client.request("OPTIONS", "/a.txt", "");
    assert_eq!((options.status, options.field("allow")), (204, Some("GET, HEAD, OPTIONS")));
    client.send(b"POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response(false).status, 405);
    client.send(b"PUT /a.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.response(false).status, 405);
    assert_eq!(client.request("GET", "/a.txt", "").text(), "0123456789");
}

#[test]
fn requests_in_one_packet_are_answered_in_their_order() {
    let (_folder, server) = site();
    let mut client = server.connect();
    let one = "GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=";
    let all: String = (0..10).map(|n| format!("{one}{n}-{n}\r\n\r\n")).collect();
    client.send(all.as_bytes());
    for n in 0..10 {
        assert_eq!(client.response(false).text(), n.to_string());
    }
}

#[test]
fn a_request_may_come_a_byte_at_a_time() {
    let (_folder, server) = site();
    let mut client = server.connect();
    for byte in b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n" {
        client.send(&[*byte]);
    }
    assert_eq!(client.response(false).text(), "0123456789");
}

#[test]
fn the_connection_ends_when_the_client_says_so() {
    let (_folder, server) = site();
    let mut client = server.connect();
    assert_eq!(client.request("GET", "/a.txt", "Connection: close\r\n").status, 200);
    assert!(client.is_closed());
    let mut old = server.connect();
    old.send(b"GET /a.txt HTTP/1.0\r\n\r\n");
    let response = old.response(false);
    assert_eq!(response.field("connection"), Some("close"));
    assert!(old.is_closed());
    let mut kept = server.connect();
    kept.send(b"GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(kept.response(false).field("connection"), Some("keep-alive"));
    assert_eq!(kept.request("GET", "/a.txt", "").status, 200);
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answers() {
    let (_folder, server) = site();
    let mut client = server.connect();
    client.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /sub/ HTTP/1.1\r\nHost: a\r\n\r\n");
    client.socket().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.response(false).text(), "0123456789");
    assert_eq!(client.response(false).text(), "sub");
    assert!(client.is_closed());
}

#[test]
fn every_malformed_request_is_refused_and_hung_up_on() {
    let (_folder, server) = site();
    let vectors = include_str!("../../crates/http1/tests/vectors/request_head.tsv");
    let mut refused = 0;
    for row in vectors.lines().filter(|row| !row.starts_with('#')) {
        let (bytes, expected) = row.split_once('\t').unwrap();
        let status: Option<u16> = expected.split(' ').next_back().and_then(|s| s.parse().ok());
        let Some(status) = status.filter(|_| !expected.starts_with("ok")) else { continue };
        if bytes.starts_with("PRI * HTTP/2.0") {
            // These bytes begin HTTP/2, which tests/it/http2.rs covers.
            continue;
        }
        let mut client = server.connect();
        client.send(&thruway_testing::table::unescape(bytes));
        let response = client.response(false);
        assert_eq!((response.status, client.is_closed()), (status, true), "{bytes}");
        refused += 1;
    }
    assert!(refused > 80, "the vectors are there");
}

#[test]
fn a_large_file_arrives_whole_however_slowly_it_is_taken() {
    let (folder, server) = site();
    let bytes: Vec<u8> = (0..20_u32 << 18).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(folder.path().join("site/large.bin"), &bytes).unwrap();
    let mut slow = server.connect();
    slow.send(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(server.get("/large.bin", "").body == bytes);
    assert!(slow.response(false).body == bytes);
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let (folder, server) = site();
    let path = folder.path().join("site/shrinking.bin");
    fs::write(&path, vec![7; 64 << 20]).unwrap();
    let mut client = server.connect();
    client.send(b"GET /shrinking.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut first = [0; 1000];
    let mut socket = client.socket().try_clone().unwrap();
    socket.read_exact(&mut first).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let mut rest = Vec::new();
    // The connection ends early, with or without an error.
    let _ = socket.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
    assert_eq!(server.get("/a.txt", "").status, 200);
}

#[test]
fn a_unix_socket_is_served_too() {
    let (folder, _server) = site();
    let socket = folder.path().join("socket");
    let bind = format!("unix://{}", socket.display());
    let site = folder.path().join("site");
    let _server = Server::start(thruway().arg("serve").arg(site).args(["-b", &bind]));
    let mut client = Client::unix(&socket);
    assert_eq!(client.request("GET", "/a.txt", "").text(), "0123456789");
}

#[test]
fn a_signal_ends_the_server_when_what_was_begun_is_sent() {
    let (folder, _server) = site();
    let socket = folder.path().join("socket");
    let bind = format!("unix://{}", socket.display());
    let site = folder.path().join("site");
    fs::write(site.join("large.bin"), vec![7; 20 << 20]).unwrap();
    for signal in ["-TERM", "-INT", "-QUIT"] {
        let server =
            Server::start(thruway().arg("serve").arg(&site).args(["-b", &bind, "-w", "2"]));
        let mut idle = Client::unix(&socket);
        assert_eq!(idle.request("GET", "/a.txt", "").status, 200);
        let mut client = Client::unix(&socket);
        client.send(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        client.wait_for_answer();
        let stopped = std::thread::spawn(move || server.stop(signal));
        assert!(idle.is_closed());
        assert!(UnixStream::connect(&socket).is_err(), "nothing would answer");
        assert!(client.response(false).body == vec![7; 20 << 20]);
        assert!(stopped.join().unwrap().success());
        assert!(socket.metadata().is_err());
    }
}

#[test]
fn connections_are_refused_while_the_server_drains() {
    let (folder, server) = site();
    fs::write(folder.path().join("site/large.bin"), vec![7; 20 << 20]).unwrap();
    let mut client = server.connect();
    client.send(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    client.wait_for_answer();
    let address = server.address().to_owned();
    let stopped = std::thread::spawn(move || server.stop("-TERM"));
    let is_refused = || {
        TcpStream::connect(&address)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    crate::eventually(is_refused);
    assert!((0..10).all(|_| is_refused()));
    assert!(client.response(false).body == vec![7; 20 << 20]);
    assert!(stopped.join().unwrap().success());
}

#[test]
fn signals_that_are_not_for_a_folder_are_told_and_do_no_harm() {
    let (folder, _server) = site();
    let log = folder.path().join("log");
    let said = fs::File::create(&log).unwrap();
    let mut command = thruway();
    command.arg("serve").arg(folder.path().join("site")).args(["-p", "0"]).stderr(said);
    let server = Server::start(&mut command);
    for signal in ["HUP", "USR1", "USR2", "TTIN", "TTOU", "PWR"] {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let line = format!("thruway: {signal} ignored: it has no effect on a server of a folder\n");
        crate::eventually(|| fs::read_to_string(&log).unwrap().ends_with(&line));
    }
    assert_eq!(server.get("/a.txt", "").status, 200);
    assert!(server.stop("-TERM").success());
}

#[test]
fn limits_of_heads_have_options() {
    let (folder, _server) = site();
    let limits = ["--request-line-limit", "50", "--head-limit", "200", "--head-fields-limit", "3"];
    let server = serve(&folder.path().join("site"), &limits);
    let status = |path: &str, fields: &str| server.get(path, fields).status;
    assert_eq!(status("/a.txt", ""), 200);
    assert_eq!(status(&format!("/{}", "x".repeat(50)), ""), 414);
    assert_eq!(status("/a.txt", &format!("A: {}\r\n", "x".repeat(200))), 431);
    assert_eq!(status("/a.txt", "A: b\r\nC: d\r\nE: f\r\n"), 431);
}

#[test]
fn an_address_of_another_kind_is_named() {
    let (folder, _server) = site();
    let site = folder.path().join("site");
    for (bind, text) in [
        ("foo://bar", "foo://bar is none of tcp://HOST:PORT, ssl://HOST:PORT and unix://PATH"),
        ("ssl://127.0.0.1:0", "ssl://127.0.0.1:0 names no certificate: add ?cert=FILE&key=FILE"),
    ] {
        let output = run(&["serve", site.to_str().unwrap(), "-b", bind]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output), format!("thruway: {text}\n"));
    }
}

#[test]
fn an_idle_client_costs_no_other_one_anything() {
    let (_folder, server) = site();
    let mut idle: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for client in idle.iter_mut().step_by(2) {
        client.send(b"GET /a.txt HTTP/1.1\r\nHo");
    }
    assert_eq!(server.get("/a.txt", "").text(), "0123456789");
    for client in idle.iter_mut().step_by(2) {
        client.send(b"st: a\r\n\r\n");
        assert_eq!(client.response(false).text(), "0123456789");
    }
}

#[test]
fn more_clients_than_descriptors_wait_their_time_and_the_log_says_so() {
    let (folder, _) = site();
    let log = folder.path().join("log");
    let binary = env!("CARGO_BIN_EXE_thruway");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 96; exec \"$@\"", "sh", binary, "serve"]);
    limited.arg(folder.path().join("site")).args(["-p", "0", "-w", "2"]);
    let begun = std::time::Instant::now();
    let server = Server::start(limited.stderr(fs::File::create(&log).expect("a log")));
    // The file is larger than the system buffers of a response, so it stays open until the client reads.
    let large = "0123456789".repeat(1 << 20);
    fs::write(folder.path().join("site/large.txt"), &large).expect("it is written");
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for (client, name) in clients.iter_mut().zip(["a.txt", "large.txt"].into_iter().cycle()) {
        client.send(format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    for (mut client, body) in clients.into_iter().zip(["0123456789", &large].into_iter().cycle()) {
        assert!(client.response(false).text() == body, "a response is not the file");
    }
    let said = fs::read_to_string(&log).expect("it is text");
    let (open, rest) = said
        .strip_prefix("thruway: cannot accept a connection: ")
        .and_then(|rest| rest.split_once(' '))
        .expect("it says what it cannot do");
    // Other descriptors that are open at the moment change the count by one or two.
    assert!((10..48).contains(&open.parse().unwrap_or(0)), "{said}");
    assert!(rest.starts_with("are open, as many as may be"), "{said}");
    let lines_max = 2 + begun.elapsed().as_secs() / 10 * 2;
    let lines = said.lines().count() as u64;
    assert!(
        lines <= lines_max,
        "a line for each thread in ten seconds, not for each client: {said}"
    );
}

#[test]
fn a_port_in_use_is_named_with_its_cure() {
    let (folder, server) = site();
    let port = server.address().rsplit(':').next().unwrap();
    let site = folder.path().join("site");
    let output = run(&["serve", site.to_str().unwrap(), "-p", port]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        format!(
            "thruway: cannot listen on http://127.0.0.1:{port}: Address already in use (os error 98)\n\n\
             hint: another process listens there; stop it, or choose another port with -p\n"
        )
    );
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let output = run(&["serve", "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "thruway: cannot serve /nowhere/at/all: ";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
}

#[test]
fn a_client_that_resets_leaves_the_server_as_it_was() {
    let (folder, server) = site();
    fs::write(folder.path().join("site/large.bin"), vec![1; 8 << 20]).unwrap();
    for _ in 0..50 {
        let mut client = server.connect();
        client.send(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let mut client = server.connect();
    for _ in 0..100 {
        assert_eq!(client.request("GET", "/a.txt", "").status, 200);
    }
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    crate::eventually(|| descriptors() < 40);
    drop(client.socket().write(b""));
}
