//! TLS of `thruway load`: what is trusted, whose name is expected, and where connections lead.

use std::fs;

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
    let text = |path: &std::path::Path| path.to_str().expect("it is text").to_owned();
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
