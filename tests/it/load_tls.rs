//! TLS of `thruway load`: what is trusted, whose name is expected, and where connections lead.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use thruway_testing::certificate;
use thruway_testing::http_server::{HELLO, HttpServer};

use crate::http::Server;
use crate::{run, stderr, stdout, thruway};

#[test]
fn a_server_is_believed_by_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = certificate::localhost(folder.path());
    let other = certificate::other(folder.path());
    fs::write(folder.path().join("index.html"), "hello").expect("it is written");
    let bind = format!(
        "ssl://127.0.0.1:0?{}&ca={}&verify_mode=force_peer",
        pair.parameters(),
        other.certificate.display()
    );
    let mut command = thruway();
    let server = Server::start(command.arg("serve").arg(folder.path()).args(["-b", &bind]));
    let port = server.address().rsplit(':').next().expect("it has a port").to_owned();
    let here = format!("https://127.0.0.1:{port}/");
    let text = |path: &Path| path.to_str().expect("it is text").to_owned();
    let (ca, strange) = (text(&pair.certificate), text(&other.certificate));
    let [cert, key] = [text(&other.certificate), text(&other.key)];
    let client = ["--cert", &cert, "--key", &key];
    let ask = |url: &str, options: &[&str]| {
        run(&[&["load", url, "-c", "1", "-n", "3"], options].concat())
    };
    for (url, options) in [
        (here.as_str(), &["--cacert", &ca][..]),
        (&here, &["-k"]),
        (&here, &["--cacert", &ca, "--sni", "x.a.example"]),
        ("https://x.a.example/", &["--cacert", &ca, "--connect-to", &format!("127.0.0.1:{port}")]),
    ] {
        let output = ask(url, &[options, &client].concat());
        assert!(stdout(&output).contains("  status    2xx 3\n"), "{options:?}: {output:?}");
    }
    let none = folder.path().join("none");
    for (url, options, why) in [
        (here.as_str(), &client[..], "TLS failed: certificate of the server: its issuer is "),
        (&here, &["--cacert", &strange], "certificate of the server: "),
        (&here, &["--cacert", &ca, "--sni", "b.example"], "it is not valid for the requested name"),
        (&here, &["--cacert", &ca], "certificate_required"),
        (&here, &["--cacert", &text(&none)], "No such file or directory"),
        (&here, &["--cert", &cert], "--key <FILE>"),
        (&here, &["-k", "--cacert", &ca], "cannot be used with"),
        (&here, &["--sni", "no name"], "\"no name\" is not a valid server name"),
        (&here, &["--connect-to", "127.0.0.1/x"], "is not HOST:PORT"),
        (&here, &["--connect-to", "192.0.2.1:80"], "192.0.2.1 is another machine"),
    ] {
        let output = ask(url, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {output:?}");
        assert!(stderr(&output).contains(why), "{options:?}: {}", stderr(&output));
    }
    let output = ask(&here, &client);
    assert!(stderr(&output).contains("\nhint: --cacert FILE trusts"), "{output:?}");
}

#[test]
fn options_of_tls_are_for_urls_with_tls() {
    let server = HttpServer::answering(HELLO);
    for options in
        [&["-k"][..], &["--cacert", "x"], &["--sni", "x"], &["--cert", "x", "--key", "x"]]
    {
        let output = run(&[&["load", &server.url("/")], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(" has no effect in this run\n"), "{output:?}");
    }
    let address = server.address.to_string();
    let output = run(&["load", "http://app.example/", "--connect-to", &address, "-n", "9"]);
    assert!(stdout(&output).contains("  status    2xx 9\n"), "{output:?}");
}

/// A server of openssl's, which accepts what other servers refuse to start with.
struct OpensslServer {
    process: Child,
    port: String,
}

impl OpensslServer {
    fn start(folder: &Path, name: &str) -> Self {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_server", "-accept", "127.0.0.1:0", "-www", "-naccept", "2"]);
        openssl.args(["-cipher", "DEFAULT@SECLEVEL=0", "-cert", &format!("{name}.pem")]);
        openssl.args(["-key", &format!("{name}.key")]).current_dir(folder);
        openssl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = openssl.spawn().expect("openssl is installed");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let accepts =
            |line: String| line.strip_prefix("ACCEPT ")?.rsplit(':').next().map(str::to_owned);
        let port = lines.find_map(|line| accepts(line.expect("it is text"))).expect("a port");
        Self { process, port }
    }
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Creates `ca.pem`, and certificates that it has issued, each with something that clients refuse.
const REFUSED: &str = r#"
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=tests
own='subjectAltName=DNS:localhost,IP:127.0.0.1'
issue() { # a name, the size of its key, its digest, its extension
  openssl req -newkey "rsa:$2" -nodes -keyout "$1.key" -out request.pem -subj /CN=localhost
  printf 'basicConstraints=CA:FALSE\n%b\n' "$4" >extensions
  openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out "$1.pem" -days 2 "-$3" \
    -extfile extensions
}
issue weak 1024 sha256 "$own"
issue old 2048 sha1 "$own"
issue client 2048 sha256 "$own\nextendedKeyUsage=clientAuth"
issue other 2048 sha256 'subjectAltName=DNS:b.example'
issue nameless 2048 sha256 ''
openssl req -x509 -newkey rsa:2048 -nodes -keyout self.key -out self.pem -days 2 -subj /CN=localhost -addext "$own"
"#;

#[test]
fn each_refused_certificate_has_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("sh").args(["-euc", REFUSED]).current_dir(folder.path()).output();
    let made = made.expect("sh starts");
    assert!(made.status.success(), "{}", stderr(&made));
    let ask = |name: &str, authority: &str| {
        let server = OpensslServer::start(folder.path(), name);
        let mut load = thruway();
        load.args(["load", &format!("https://localhost:{}/", server.port), "-c", "1", "-n", "1"]);
        load.args(["-q", "--cacert", authority]).current_dir(folder.path());
        load.output().expect("the binary starts")
    };
    for (name, why) in [
        ("weak", "its RSA key has fewer than 2,048 bits"),
        ("old", "it is signed with an algorithm that is no longer accepted, such as SHA-1"),
        ("client", "allows client authentication"),
        ("other", "it is not valid for the requested name: it is for b.example"),
        ("nameless", "it is not valid for the requested name: it has no name (subjectAltName)"),
        ("self", "it is an authority's own certificate, as many self-signed ones are"),
    ] {
        let output = ask(name, "ca.pem");
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        let text = stderr(&output);
        assert!(text.contains(why), "{name}: {text}");
        assert!(text.contains("\nhint: --cacert FILE trusts"), "{name}: {text}");
    }
    // The cure of the hint.
    let output = ask("self", "self.pem");
    assert!(stdout(&output).contains("  status    2xx 1\n"), "{output:?}");
}
