//! Automatic certificates, with Pebble as the authority: Let's Encrypt's own server for tests.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;
use thruway_testing::{certificate, free_port, skipped};

use crate::http::Server;
use crate::{eventually, run, stderr, stdout, thruway};

/// A running authority with its own resolver, in which each name leads to this machine.
struct Authority {
    folder: TempDir,
    /// The resolver and Pebble.
    processes: Vec<Child>,
    /// Starts Pebble.
    command: Command,
    port: u16,
    http_port: u16,
    tls_port: u16,
}

impl Drop for Authority {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Finds a program of Pebble: in the folder of `scripts/setup`, or on the path.
fn program(name: &str) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Authority {
    /// An authority whose certificates are valid for so many seconds, with these faults; none on a machine without
    /// Pebble.
    fn start(validity_s: u64, faults: &[(&str, &str)]) -> Option<Self> {
        Self::start_with_keys(validity_s, faults, &[])
    }

    /// Starts an authority that binds each account to one of these external accounts: pairs of an identifier and a key.
    fn start_with_keys(
        validity_s: u64,
        faults: &[(&str, &str)],
        keys: &[(&str, &str)],
    ) -> Option<Self> {
        let found = program("pebble").zip(program("pebble-challtestsrv"));
        let Some((pebble, resolver)) = found else {
            skipped(
                "automatic certificates, for want of pebble (scripts/setup installs it where Go is)",
            );
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let pair = certificate::issued_for_localhost(folder.path());
        let [port, dns, http_port, tls_port] = [(); 4].map(|()| free_port());
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "certificate": pair.certificate, "privateKey": pair.key,
            "httpPort": http_port, "tlsPort": tls_port, "ocspResponderURL": "",
            "externalAccountBindingRequired": !keys.is_empty(),
            "externalAccountMACKeys": keys.iter().copied().collect::<HashMap<_, _>>(),
            "retryAfter": { "authz": 1, "order": 1 },
            "domainBlocklist": ["blocked.example"], "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "", "validityPeriod": validity_s } } } });
        fs::write(folder.path().join("pebble.json"), config.to_string()).expect("it is written");
        let log = |name: &str| File::create(folder.path().join(name)).expect("it is made");
        // The port is claimed by a socket of UDP at 127.0.0.1.
        let dns = format!("127.0.0.2:{dns}");
        let resolver = Command::new(resolver)
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dnsserver", &dns])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-management", ""])
            .stdout(log("dns.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the resolver starts");
        let mut command = Command::new(pebble);
        command
            .args(["-config", "pebble.json", "-dnsserver", &dns])
            .current_dir(folder.path())
            .envs(faults.iter().copied())
            .stdout(log("pebble.log"))
            .stderr(Stdio::null());
        let processes = vec![resolver, command.spawn().expect("pebble starts")];
        let authority = Self { folder, processes, command, port, http_port, tls_port };
        eventually(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        fs::create_dir(authority.path("site")).expect("it is made");
        fs::write(authority.path("site/index.html"), "hello").expect("it is written");
        Some(authority)
    }

    /// Restarts Pebble, which forgets all accounts and orders.
    fn restart(&mut self) {
        let mut old = self.processes.pop().expect("Pebble runs");
        old.kill().expect("it can be killed");
        old.wait().expect("it ends");
        self.processes.push(self.command.spawn().expect("pebble starts"));
        let port = self.port;
        eventually(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server of the folder at the ports where the authority looks for answers.
    fn command(&self, names: &[&str]) -> Command {
        self.command_at(names, self.http_port, self.tls_port)
    }

    fn command_at(&self, names: &[&str], http_port: u16, tls_port: u16) -> Command {
        let mut command = thruway();
        command.arg("serve").arg(self.path("site")).args(["-w", "2", "--hsts=60"]);
        command.args(["-b", &format!("tcp://127.0.0.1:{http_port}")]);
        command.args(["-b", &format!("ssl://127.0.0.1:{tls_port}")]);
        command.args(["--acme-directory", &format!("https://localhost:{}/dir", self.port)]);
        command.arg("--acme-ca").arg(self.path("ca.pem"));
        command.arg("--acme-storage").arg(self.path("storage"));
        command.args(names.iter().flat_map(|name| ["--acme-domain", name]));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log"));
        command.env("THRUWAY_ACME_RETRY_SECONDS", "1").stderr(log.expect("it is opened"));
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("it is there")
    }

    /// The file of a name's certificate.
    fn certificate(&self, name: &str) -> PathBuf {
        let folder = format!("storage/localhost-{}-dir/certificates/{name}.pem", self.port);
        self.path(&folder)
    }
}

/// Requests the page at a name, with its head, from any holder of a certificate for the name. The issuer need not be
/// trusted, because the authority generates its root anew at each start.
fn https(name: &str, port: u16) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sSik", "--max-time", "30", "--noproxy", "*"]);
    command.args(["--resolve", &format!("{name}:{port}:127.0.0.1")]);
    command.arg(format!("https://{name}:{port}/")).output().expect("curl starts")
}

fn is_served(name: &str, port: u16) -> bool {
    stdout(&https(name, port)).ends_with("hello")
}

/// Returns the certificate that the server presents to a client for a name.
fn shown_certificate(name: &str, port: u16) -> String {
    let command = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername {name} </dev/null 2>/dev/null | openssl x509 -text"
    );
    let output = Command::new("sh").args(["-c", &command]).output().expect("sh starts");
    stdout(&output).to_owned()
}

#[test]
fn a_server_obtains_its_certificate_redirects_and_shares_its_storage() {
    let faults = [("PEBBLE_WFE_NONCEREJECT", "50"), ("PEBBLE_VA_NOSLEEP", "1")];
    let Some(authority) = Authority::start(7_776_000, &faults) else { return };
    let server = Server::start(&mut authority.command(&["Shop.Example", "b.example"]));
    // Each worker looks for certificates by itself, so one may have none yet where another serves.
    for name in ["shop.example", "b.example"] {
        eventually(|| is_served(name, authority.tls_port));
        let entry = format!("DNS:{name}");
        eventually(|| shown_certificate(name, authority.tls_port).contains(&entry));
    }
    let field = "strict-transport-security: max-age=60";
    eventually(|| {
        let page = https("shop.example", authority.tls_port);
        stdout(&page).to_lowercase().contains(field)
    });
    let unknown = https("unknown.example", authority.tls_port);
    assert!(!unknown.status.success(), "a name without a certificate gets none: {unknown:?}");

    let at = format!("https://shop.example:{}", authority.tls_port);
    let ask = |bytes: &[u8]| {
        let mut response = None;
        eventually(|| {
            let mut client = server.connect();
            client.send(bytes);
            // A worker without the certificate has nowhere to send a client to.
            response = Some(client.response(false)).filter(|response| response.status != 503);
            response.is_some()
        });
        response.expect("there is one")
    };
    let moved = ask(b"GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert_eq!((moved.status, moved.field("location")), (301, Some(&*format!("{at}/a?b=c"))));
    let moved = ask(b"POST /a HTTP/1.1\r\nHost: SHOP.example:80\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((moved.status, moved.field("location")), (308, Some(&*format!("{at}/a"))));
    let moved = ask(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(moved.field("location"), Some(&*format!("{at}/")), "no client is sent elsewhere");

    for (path, mode) in [("storage", 0o700), ("storage/localhost-PORT-dir/account.json", 0o600)] {
        let path = authority.path(&path.replace("PORT", &authority.port.to_string()));
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, mode, "{path:?}");
    }
    let file = authority.certificate("shop.example");
    let before = fs::metadata(&file).expect("it is there");
    assert_eq!(before.mode() & 0o777, 0o600);

    // Another server uses the stored certificates, and requests none.
    let [http_port, tls_port] = [(); 2].map(|()| free_port());
    let mut other = authority.command_at(&["shop.example"], http_port, tls_port);
    let _other = Server::start(&mut other);
    eventually(|| is_served("shop.example", tls_port));
    assert_eq!(fs::metadata(&file).expect("it is there").ino(), before.ino());

    let listed = run(&["certificates", authority.path("storage").to_str().expect("it is UTF-8")]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert!(stdout(&listed).starts_with("b.example: valid until "), "{}", stdout(&listed));
    assert_eq!(stdout(&listed).lines().count(), 2);
}

#[test]
fn a_certificate_is_renewed_while_workers_serve_by_the_other_challenge() {
    let Some(authority) = Authority::start(12, &[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    let mut command = authority.command(&["shop.example"]);
    let _server = Server::start(command.args(["--acme-challenge", "tls-alpn-01"]));
    // The other worker may have no certificate yet.
    let mut first = String::new();
    eventually(|| {
        first = shown_certificate("shop.example", authority.tls_port);
        !first.is_empty()
    });
    eventually(|| {
        let shown = shown_certificate("shop.example", authority.tls_port);
        !shown.is_empty() && shown != first
    });
}

#[test]
fn a_server_that_was_killed_or_whose_files_are_damaged_goes_on() {
    let Some(authority) = Authority::start(7_776_000, &[("PEBBLE_VA_SLEEPTIME", "2")]) else {
        return;
    };
    let server = Server::start(&mut authority.command(&["shop.example", "blocked.example"]));
    let answers = authority.path(&format!("storage/localhost-{}-dir/http-01", authority.port));
    eventually(|| fs::read_dir(&answers).is_ok_and(|mut entries| entries.next().is_some()));
    // The server is killed in the middle of an order, and its agent ends with it.
    server.stop("-KILL");
    let server = Server::start(&mut authority.command(&["shop.example", "blocked.example"]));
    eventually(|| is_served("shop.example", authority.tls_port));
    eventually(|| {
        authority.log().contains("no certificate for blocked.example: the authority refuses")
    });
    server.stop("-KILL");

    fs::write(authority.certificate("shop.example"), "no certificate").expect("it is written");
    let account = authority.path(&format!("storage/localhost-{}-dir/account.json", authority.port));
    fs::write(account, "{").expect("it is written");
    let _server = Server::start(&mut authority.command(&["shop.example"]));
    eventually(|| is_served("shop.example", authority.tls_port));
    let log = authority.log();
    assert!(
        log.contains("it holds no certificate in PEM") && log.contains("it is not an account"),
        "{log}"
    );
}

/// The resource of a server's metrics, as text.
fn metrics(address: &str, path: &str) -> String {
    let output = Command::new("curl").args(["-sS", &format!("{address}{path}")]).output();
    stdout(&output.expect("curl starts")).to_owned()
}

#[test]
fn an_account_is_bound_to_an_external_one_and_replaced_if_the_authority_has_lost_it() {
    const KEY: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let faults = [("PEBBLE_VA_NOSLEEP", "1")];
    let Some(mut authority) = Authority::start_with_keys(12, &faults, &[("kid-1", KEY)]) else {
        return;
    };
    let server = Server::start(&mut authority.command(&["shop.example"]));
    eventually(|| authority.log().contains("hint: get a key from the authority"));
    assert!(server.stop("-TERM").success());

    let file = authority.path("eab.key");
    fs::write(&file, "d3Jvbmc=\n").expect("it is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is allowed");
    let bound = |authority: &Authority| {
        let mut command = authority.command(&["shop.example"]);
        command.args(["--acme-eab-kid", "kid-1", "--acme-eab-key-file"]).arg(&file);
        command
    };
    let before = authority.log().len();
    let server = Server::start(&mut bound(&authority));
    eventually(|| authority.log()[before..].contains("no certificate for shop.example: "));
    let log = authority.log();
    assert!(log[before..].contains("the authority refuses the request"), "{log}");
    assert!(!authority.certificate("shop.example").try_exists().expect("it is known"));
    assert!(server.stop("-TERM").success());

    fs::write(&file, format!("{KEY}\n")).expect("it is written");
    let _server = Server::start(&mut bound(&authority));
    eventually(|| is_served("shop.example", authority.tls_port));
    assert!(!authority.log().contains(KEY));

    // The renewal finds that its account is unknown, and creates another account with the same key.
    let account = authority.path(&format!("storage/localhost-{}-dir/account.json", authority.port));
    let old = fs::read(&account).expect("it is there");
    authority.restart();
    // A certificate may have been renewed with the old account, right before the restart.
    eventually(|| fs::read(&account).is_ok_and(|account| account != old));
    let certificate = authority.certificate("shop.example");
    let renewed = fs::read(&certificate).expect("it is there");
    eventually(|| fs::read(&certificate).expect("it is there") != renewed);
    eventually(|| is_served("shop.example", authority.tls_port));
}

#[test]
fn certificates_are_seen_from_outside_in_statistics_metrics_and_by_the_doctor() {
    let Some(authority) = Authority::start(7_776_000, &[("PEBBLE_VA_NOSLEEP", "1")]) else {
        return;
    };
    let mut command = authority.command(&["shop.example", "blocked.example"]);
    let (_server, address) =
        Server::start_with_metrics(command.args(["--metrics", "tcp://127.0.0.1:0"]));
    let mut certificates = serde_json::Value::Null;
    eventually(|| {
        let stats = metrics(&address, "/stats");
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("it is JSON");
        certificates = stats["certificates"].clone();
        certificates[0]["not_after_seconds"].is_u64() && !certificates[1]["last_error"].is_null()
    });
    let [shop, blocked] = [&certificates[0], &certificates[1]];
    let not_after_s = shop["not_after_seconds"].as_u64().expect("it is a number");
    assert_eq!((&shop["name"], &shop["failures"]), (&"shop.example".into(), &0.into()));
    assert!(
        shop["last_error"].is_null() && shop["due_seconds"].as_u64() < Some(not_after_s),
        "{shop}"
    );
    assert_eq!(
        (&blocked["name"], &blocked["not_after_seconds"]),
        (&"blocked.example".into(), &().into())
    );
    let error = blocked["last_error"].as_str().expect("it is text");
    assert!(error.contains("the authority refuses the request"), "{error}");
    let text = metrics(&address, "/metrics");
    let line =
        format!("thruway_certificate_expiry_time_seconds{{name=\"shop.example\"}} {not_after_s}\n");
    assert!(text.contains(&line), "{text}");
    assert!(!text.contains("expiry_time_seconds{name=\"blocked.example\"}"), "{text}");

    // The doctor searches the folder in which a server of this user keeps its certificates.
    let state = authority.path("state/thruway");
    fs::create_dir_all(&state).expect("it is made");
    std::os::unix::fs::symlink(authority.path("storage"), state.join("certificates")).unwrap();
    let mut doctor = thruway();
    doctor.arg("doctor").current_dir(&state).env("XDG_STATE_HOME", authority.path("state"));
    let output = doctor.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = "no     certificates        blocked.example: no certificate: the authority refuses";
    assert!(stdout(&output).contains(told), "{}", stdout(&output));
}

/// Runs `use_it` while a small file system is mounted over `folder`, if one can be.
fn on_a_small_disk(folder: &Path, use_it: impl FnOnce()) {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=256k,mode=700", "none"]).arg(folder);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        return skipped("no small file system can be mounted here");
    }
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(use_it));
    Command::new("umount").arg("-l").arg(folder).status().expect("umount starts");
    if let Err(panic) = used {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_full_disk_is_reported_loses_no_certificate_and_keeps_no_name_waiting() {
    let Some(authority) = Authority::start(12, &[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    let storage = authority.path("storage");
    fs::create_dir(&storage).expect("it is made");
    on_a_small_disk(&storage, || {
        let mut command = authority.command(&["shop.example"]);
        let (server, address) =
            Server::start_with_metrics(command.args(["--metrics", "tcp://127.0.0.1:0"]));
        eventually(|| is_served("shop.example", authority.tls_port));
        let certificate = fs::read(authority.certificate("shop.example")).expect("it is there");
        let filler = storage.join("filler");
        let mut file = File::create(&filler).expect("it is made");
        while file.write_all(&[0; 4096]).is_ok() {}
        drop(file);
        eventually(|| metrics(&address, "/stats").contains("No space left on device"));
        assert!(authority.log().contains("hint: the disk is full; make room"));
        let kept = fs::read(authority.certificate("shop.example")).expect("it is there");
        assert!(!kept.is_empty() && kept.starts_with(b"-----BEGIN PRIVATE KEY"), "{kept:?}");
        // Another server starts on a disk that is already full, and serves the stored certificates.
        assert!(server.stop("-TERM").success());
        let _server = Server::start(&mut authority.command(&["shop.example"]));
        eventually(|| !shown_certificate("shop.example", authority.tls_port).is_empty());
        fs::remove_file(&filler).expect("it can be removed");
        eventually(|| {
            let renewed = fs::read(authority.certificate("shop.example")).expect("it is there");
            renewed != kept && renewed != certificate
        });
        eventually(|| is_served("shop.example", authority.tls_port));
    });
}

#[test]
fn a_name_that_leads_elsewhere_is_refused_in_the_words_of_the_authority() {
    let Some(authority) = Authority::start(7_776_000, &[("PEBBLE_VA_NOSLEEP", "1")]) else {
        return;
    };
    let [http_port, tls_port] = [(); 2].map(|()| free_port());
    let _server = Server::start(&mut authority.command_at(&["shop.example"], http_port, tls_port));
    for challenge in ["http", "tls"] {
        let port = if challenge == "http" { authority.http_port } else { authority.tls_port };
        let reason = format!(":{port}");
        eventually(|| {
            let log = authority.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains("refuses shop.example: ") && line.contains(&reason))
        });
    }
    assert!(authority.log().contains("hint: the name must lead to this server"));
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = folder.path().join("open");
    fs::create_dir(&storage).expect("it is made");
    fs::set_permissions(&storage, fs::Permissions::from_mode(0o755)).expect("it is allowed");
    let key = folder.path().join("key");
    fs::write(&key, "c2VjcmV0").expect("it is written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is allowed");
    let own = folder.path().join("own");
    let refusal = |words: &[&str]| {
        let mut command = thruway();
        command.arg("serve").arg(folder.path()).args(["-b", "ssl://127.0.0.1:0"]);
        if !words.contains(&"--acme-storage") {
            command.arg("--acme-storage").arg(&own);
        }
        let output = command.args(words).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        stderr(&output).to_owned()
    };
    let plain =
        thruway().arg("serve").arg(folder.path()).args(["-p", "0", "--hsts"]).output().unwrap();
    assert_eq!(plain.status.code(), Some(2), "{plain:?}");
    assert!(stderr(&plain).starts_with("thruway: hsts needs an address that speaks TLS\n"));
    let path = |path: &Path| path.to_str().expect("it is UTF-8").to_owned();
    for (words, reason) in [
        (&["--acme-domain", "*.example"][..], "DNS-01"),
        (&["--acme-domain", "192.0.2.1"], "is an address"),
        (
            &["--acme-domain", "a.example", "--acme-directory", "http://a/dir"],
            "is not an HTTPS URL",
        ),
        (&["--acme-domain", "a.example", "--acme-challenge", "dns-01"], "dns-01 is not supported"),
        (&["--acme-domain", "a.example", "--acme-contact", "ops"], "is not an e-mail address"),
        (&["--acme-domain", "a.example", "--acme-eab-kid", "k"], "has no key"),
        (
            &[
                "--acme-domain",
                "a.example",
                "--acme-eab-kid",
                "k",
                "--acme-eab-key-file",
                &path(&key),
            ],
            "every user may read this key",
        ),
        (
            &["--acme-domain", "a.example", "--acme-storage", &path(&storage)],
            "others may use it (mode 755)",
        ),
        (
            &["--acme-domain", "a.example", "--acme-storage", "/dev/null/a"],
            "cannot make the folder",
        ),
        (&["--https-port", "444"], "needs a name to obtain a certificate for"),
    ] {
        let error = refusal(words);
        assert!(error.contains(reason), "{words:?}: {error}");
    }
    assert!(own.metadata().is_err(), "a refused command leaves nothing");
    let inside = folder.path().join("keys");
    let words = ["--acme-domain", "a.example", "--acme-storage", &path(&inside)];
    assert!(refusal(&words).contains("clients could read the keys"));
}
