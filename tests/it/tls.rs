//! Tests of `thruway serve DIR -b ssl://…`, with curl and openssl as clients.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use thruway_testing::certificate::{self, Pair};
use thruway_testing::free_port;

use crate::http::Server;
use crate::{eventually, run, stderr, thruway};

/// A folder of certificates, and a folder to serve.
struct Site {
    folder: TempDir,
    pair: Pair,
    other: Pair,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [pair, other] = [certificate::localhost, certificate::other].map(|c| c(folder.path()));
        fs::create_dir(folder.path().join("site")).expect("it is made");
        fs::write(folder.path().join("site/a.txt"), "0123456789").expect("it is written");
        Self { folder, pair, other }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a server of the folder, in four threads.
    fn serve(&self, parameters: &str) -> Server {
        self.serve_in("4", parameters)
    }

    /// Starts a server of the folder, in this number of threads.
    fn serve_in(&self, threads: &str, parameters: &str) -> Server {
        let bind = format!("ssl://127.0.0.1:0?{parameters}");
        let mut command = thruway();
        command.arg("serve").arg(self.path("site")).args(["-w", threads, "-b", &bind]);
        Server::start(command.stderr(fs::File::create(self.path("log")).expect("it is made")))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("it is there")
    }
}

fn port(server: &Server) -> &str {
    server.address().rsplit(':').next().expect("it has a port")
}

/// Runs curl against `host`, which leads to this machine.
fn curl(server: &Server, host: &str, trusted: &Path, options: &[&str]) -> Output {
    curl_path(port(server), host, "a.txt", trusted, options)
}

fn curl_path(port: &str, host: &str, path: &str, trusted: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "30", "--noproxy", "*", "--cacert"]).arg(trusted);
    command.args(["--resolve", &format!("{host}:{port}:127.0.0.1")]).args(options);
    command.arg(format!("https://{host}:{port}/{path}")).output().expect("curl starts")
}

/// Returns the output of openssl's client after a request.
fn s_client(server: &Server, options: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", server.address(), "-ign_eof"]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("openssl starts");
    let request = b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // The write fails if the handshake has failed.
    let _ = child.stdin.take().expect("it is a pipe").write_all(request);
    child.wait_with_output().expect("it ends")
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    streams.concat()
}

#[test]
fn clients_of_both_versions_are_served_and_older_ones_are_not() {
    let site = Site::new();
    let server = site.serve(&site.pair.parameters());
    assert!(server.line.contains(" on https://127.0.0.1:"), "{}", server.line);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let got = curl(&server, "localhost", &site.pair.certificate, version);
        assert_eq!(got.stdout, b"0123456789", "{version:?}: {}", stderr(&got));
    }
    for (offered, chosen) in [("h2,http/1.1", "h2"), ("http/1.1", "http/1.1")] {
        let alpn = text(&s_client(&server, &["-alpn", offered]));
        assert!(alpn.contains(&format!("ALPN protocol: {chosen}\n")), "{alpn}");
    }
    let old = s_client(&server, &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
    assert!(text(&old).contains("alert"), "{}", text(&old));
}

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let site = Site::new();
    let server = site.serve(&format!("{}&{}", site.pair.parameters(), site.other.parameters()));
    for (host, pair) in
        [("localhost", &site.pair), ("x.a.example", &site.pair), ("b.example", &site.other)]
    {
        let got = curl(&server, host, &pair.certificate, &[]);
        assert_eq!(got.stdout, b"0123456789", "{host}: {}", stderr(&got));
    }
    // Other names, and a missing name, get the first certificate.
    for name in [&["-servername", "c.example"][..], &["-noservername"]] {
        let got = s_client(&server, name);
        // OpenSSL 3.5 writes no spaces there.
        let said = text(&got).replace(" = ", "=");
        assert!(said.contains("subject=CN=localhost"), "{said}");
    }
}

#[test]
fn a_session_is_resumed_in_every_worker() {
    let site = Site::new();
    let server = site.serve(&site.pair.parameters());
    // A connection goes to the worker with the fewest, so each idle one sends the next to another worker.
    let mut idle = Vec::new();
    for version in ["-tls1_2", "-tls1_3"] {
        let session = site.path(version);
        let session = session.to_str().expect("it is text");
        let first = s_client(&server, &[version, "-sess_out", session]);
        assert!(text(&first).contains("\nNew, "), "{version}: {}", text(&first));
        for _ in 0..12 {
            idle.push(TcpStream::connect(server.address()).expect("the server accepts"));
            let next = s_client(&server, &[version, "-sess_in", session, "-sess_out", session]);
            assert!(text(&next).contains("\nReused, "), "{version}: {}", text(&next));
        }
    }
}

#[test]
fn a_session_goes_past_no_rules_of_another_listener() {
    let site = Site::new();
    let open = format!("ssl://127.0.0.1:0?{}", site.pair.parameters());
    let ca = site.other.certificate.display();
    let closed = format!("{open}&ca={ca}&verify_mode=force_peer");
    let mut command = thruway();
    command.arg("serve").arg(site.path("site")).args(["-b", &open, "-b", &closed]);
    let server = Server::start(&mut command);
    let addresses: Vec<_> = server
        .line
        .split("https://")
        .skip(1)
        .map(|a| a.split([',', ' ']).next().unwrap())
        .collect();
    let session = site.path("session");
    let session = session.to_str().expect("it is text");
    let first = s_client(&server, &["-sess_out", session]);
    assert!(text(&first).contains("0123456789"), "{}", text(&first));
    let port = addresses[1].rsplit(':').next().unwrap();
    let connect = ["-connect", addresses[1], "-sess_in", session];
    let past = s_client(&server, &connect);
    assert!(!text(&past).contains("0123456789"), "{}", text(&past));
    let refused = curl_path(port, "localhost", "a.txt", &site.pair.certificate, &[]);
    assert_ne!(refused.status.code(), Some(0));
}

#[test]
fn a_long_file_arrives_whole_and_with_an_end() {
    let site = Site::new();
    let long: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(site.path("site/long"), &long).unwrap();
    let server = site.serve(&site.pair.parameters());
    let trusted = &site.pair.certificate;
    let got = curl_path(port(&server), "localhost", "long", trusted, &[]);
    assert!(got.stdout == long, "{} bytes: {}", got.stdout.len(), stderr(&got));
    let part = curl_path(port(&server), "localhost", "long", trusted, &["-r", "5-1000004"]);
    assert!(part.stdout == long[5..1_000_005]);
    // A truncated connection has no end of its own, which this client reports.
    let ended = s_client(&server, &[]);
    assert!(!text(&ended).contains("unexpected eof"), "{}", text(&ended));
    assert!(text(&ended).contains("0123456789"), "{}", text(&ended));
}

/// Starts a proxy to `server` that forwards the client's bytes one at a time.
fn byte_by_byte(server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let (address, server) = (listener.local_addr().expect("it has one"), server.to_owned());
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("the client connects");
        let server = TcpStream::connect(server).expect("the server accepts");
        server.set_nodelay(true).expect("it is TCP");
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor is left");
        let (mut from, mut to) = (clone(&server), clone(&client));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        for byte in BufReader::new(client).bytes().map_while(Result::ok) {
            if (&server).write_all(&[byte]).is_err() {
                return;
            }
        }
    });
    address.port().to_string()
}

#[test]
fn handshakes_and_requests_may_come_byte_by_byte() {
    let site = Site::new();
    let server = site.serve(&site.pair.parameters());
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let port = byte_by_byte(server.address());
        let got = curl_path(&port, "localhost", "a.txt", &site.pair.certificate, version);
        assert_eq!(got.stdout, b"0123456789", "{version:?}: {}", stderr(&got));
    }
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let site = Site::new();
    let [cert, key, other] =
        [&site.pair.certificate, &site.pair.key, &site.other.key].map(|path| path.display());
    let write = |name: &str, text: &str, mode| {
        let path = site.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    let text = fs::read_to_string(&site.pair.key).unwrap();
    let open = write("open", &text, 0o644);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = write("encrypted", encrypted, 0o600);
    let empty = write("empty", "", 0o600);
    let (pipe, curve) = (site.path("pipe"), site.path("curve"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let made = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521", "-out"];
    assert!(Command::new("openssl").args(made).arg(&curve).status().unwrap().success());
    for (parameters, file, reason) in [
        (format!("cert={cert}&key={other}"), &site.other.key, "it is not the key of"),
        (format!("cert={cert}&key={}", open.display()), &open, "every user may use this key"),
        (format!("cert={cert}&key={}", encrypted.display()), &encrypted, "its key is encrypted"),
        (format!("cert={cert}&key={}", empty.display()), &empty, "it holds no private key"),
        (format!("cert={}&key={key}", empty.display()), &empty, "it holds no certificate"),
        (format!("cert={cert}&key=/none"), &PathBuf::from("/none"), "No such file"),
        (format!("cert={cert}&key=/"), &PathBuf::from("/"), "it is not a file"),
        (format!("cert={cert}&key={}", pipe.display()), &pipe, "it is not a file"),
        (format!("cert={cert}&key={}", curve.display()), &curve, "its key is not RSA of 2048"),
    ] {
        let bind = format!("ssl://127.0.0.1:0?{parameters}");
        let output = run(&["serve", site.path("site").to_str().unwrap(), "-b", &bind]);
        assert_eq!(output.status.code(), Some(2), "{parameters}");
        let expected = format!("thruway: cannot use {}: {reason}", file.display());
        assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1);
    }
}

#[test]
fn certificates_are_read_anew_when_their_files_change() {
    let site = Site::new();
    let live = site.path("live");
    fs::create_dir(&live).unwrap();
    let live = site.pair.copy_to(&live);
    // Each worker notices a change by itself, and twelve connections may miss one of four workers. Checks that depend
    // on all workers are therefore made with a single worker.
    for workers in ["1", "4"] {
        let server = site.serve_in(workers, &live.parameters());
        let has = |host: &str, pair: &Pair| {
            curl(&server, host, &pair.certificate, &[]).stdout == b"0123456789"
        };
        assert!(has("localhost", &site.pair));
        live.replace_by(&site.other);
        eventually(|| (0..12).all(|_| has("b.example", &site.other)));
        if workers == "1" {
            fs::copy(&site.pair.key, &live.key).unwrap();
            eventually(|| {
                assert!(has("b.example", &site.other), "what was read before stays in use");
                site.log().contains("cannot use changed certificates: cannot use ")
            });
        }
        live.replace_by(&site.pair);
        eventually(|| (0..12).all(|_| has("localhost", &site.pair)));
    }
}

#[test]
fn a_certificate_that_cannot_be_used_keeps_no_other_from_being_renewed() {
    let site = Site::new();
    let [live, broken, new] = ["live", "broken", "new"].map(|name| {
        let folder = site.path(name);
        fs::create_dir(&folder).unwrap();
        folder
    });
    let (live, broken) = (site.pair.copy_to(&live), site.other.copy_to(&broken));
    let server = site.serve(&format!("{}&{}", live.parameters(), broken.parameters()));
    let has = |host: &str, pair: &Pair| {
        curl(&server, host, &pair.certificate, &[]).stdout == b"0123456789"
    };
    fs::write(&broken.key, "").unwrap();
    eventually(|| {
        assert!(has("b.example", &site.other));
        site.log().contains("it holds no private key")
    });
    let new = certificate::localhost(&new);
    live.replace_by(&new);
    eventually(|| (0..12).all(|_| has("localhost", &new)));
    assert!(has("b.example", &site.other), "what was read before stays in use");
}

#[test]
fn clients_that_vanish_in_a_handshake_leave_nothing() {
    let site = Site::new();
    let server = site.serve(&site.pair.parameters());
    let open = || fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let got = curl(&server, "localhost", &site.pair.certificate, &[]);
    assert_eq!(got.stdout, b"0123456789");
    // The connection of that client may be open still.
    let before = open();
    for length in [0, 1, 5, 60] {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(&[&[0x16, 3, 1, 2, 0][..], &[7; 60]].concat()[..length]).unwrap();
        drop(client);
        let mut half = TcpStream::connect(server.address()).unwrap();
        half.write_all(&[0x16, 3, 1]).unwrap();
        half.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(half.read(&mut [0; 100]).unwrap_or(0), 0);
    }
    eventually(|| open() <= before);
    let got = curl(&server, "localhost", &site.pair.certificate, &[]);
    assert_eq!(got.stdout, b"0123456789");
}

/// Returns the report of `thruway load` on `url`.
fn load(url: &str, options: &[&str]) -> serde_json::Value {
    let output = run(&[&["load", url, "--json", "--insecure"], options].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

#[test]
fn load_asks_over_tls_with_clients_of_every_kind() {
    let site = Site::new();
    fs::write(site.path("site/long"), vec![7; 20_000]).expect("it is written");
    let server = site.serve(&site.pair.parameters());
    let url = format!("https://{}", server.address());
    let report = load(&format!("{url}/a.txt"), &["-c", "4", "-n", "200"]);
    let total = &report["total"];
    assert_eq!((&total["status"]["2xx"], &total["failed"]), (&200.into(), &0.into()));
    assert_eq!((&total["connects"], &report["connections"][3]["connects"]), (&4.into(), &1.into()));
    let mix = ["--mix", "greedy=1,pipelined=1,slow-read=1,trickle=1", "-n", "60"];
    let total = &load(&format!("{url}/long"), &mix)["total"];
    assert_eq!((&total["status"]["2xx"], &total["failed"]), (&60.into(), &0.into()));
}

#[test]
fn load_asks_a_server_of_openssl_that_ends_each_connection() {
    let site = Site::new();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("openssl");
    command.args(["s_server", "-www", "-quiet", "-accept", &address, "-cert"]);
    command.arg(&site.pair.certificate).arg("-key").arg(&site.pair.key);
    let mut server = command.stdin(Stdio::null()).spawn().expect("openssl starts");
    eventually(|| TcpStream::connect(&address).is_ok());
    let report = load(&format!("https://{address}/"), &["-c", "1", "-n", "10"]);
    let _ = server.kill();
    let _ = server.wait();
    let total = &report["total"];
    assert_eq!((&total["status"]["2xx"], &total["failed"]), (&10.into(), &0.into()));
    assert_eq!(total["connects"], 10);
}

/// Servers refuse certificates of version 1; whoever has one would look for the reason elsewhere.
#[test]
fn a_refused_certificate_of_a_client_is_logged_with_the_reason() {
    let site = Site::new();
    let folder = site.path("");
    let openssl = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let output = Command::new("openssl").args(words).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=ca -keyout ca.key -out ca.pem");
    openssl("req -newkey rsa:2048 -nodes -subj /CN=me -keyout me.key -out me.csr");
    openssl("x509 -req -in me.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -out me.pem");
    let bind = format!(
        "ssl://127.0.0.1:0?{}&ca={}&verify_mode=force_peer",
        site.pair.parameters(),
        site.path("ca.pem").display()
    );
    let log = fs::File::create(site.path("log")).unwrap();
    let mut command = thruway();
    command.arg("serve").arg(site.path("site")).args(["-w", "1", "-b", &bind]).stderr(log);
    let server = Server::start(&mut command);
    let [own, key] = [site.path("me.pem"), site.path("me.key")];
    let own = ["--cert", own.to_str().unwrap(), "--key", key.to_str().unwrap()];
    let refused = curl_path(port(&server), "localhost", "a.txt", &site.pair.certificate, &own);
    assert_ne!(refused.status.code(), Some(0), "{}", text(&refused));
    let logged = || fs::read_to_string(site.path("log")).unwrap();
    eventually(|| logged().contains("certificate of the client: "));
    assert!(
        logged().contains("thruway: cannot complete a TLS handshake: 127.0.0.1"),
        "{}",
        logged()
    );
    drop(server);
}
