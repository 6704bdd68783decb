//! Tests of `thruway serve DIR` by HTTP/2, with curl, nghttp and h2load as clients.

use std::fs;
use std::process::{Command, Output};

use serde_json::json;
use thruway_testing::certificate;
use thruway_testing::skipped;

use crate::browser::Browser;
use crate::http::Server;
use crate::site::Site;
use crate::thruway;

/// The size of a file that exceeds any window.
const LARGE_BYTES: usize = 3_000_000;

impl Site {
    fn curl(&self, server: &Server, path: &str, options: &[&str]) -> Output {
        let scheme = if std::ptr::eq(server, &raw const self.tls) { "https" } else { "http" };
        let port = server.address().rsplit(':').next().expect("it has a port");
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "30", "--noproxy", "*", "--cacert"]);
        command.arg(&self.pair.certificate).args(options);
        command.arg(format!("{scheme}://localhost:{port}/{path}"));
        command.output().expect("curl starts")
    }
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn curl_speaks_it_by_alpn_and_with_prior_knowledge() {
    let site = Site::new(LARGE_BYTES);
    let told = ["-w", " %{http_version} %{http_code}"];
    for (server, how) in [(&site.tls, "--http2"), (&site.plain, "--http2-prior-knowledge")] {
        let got = site.curl(server, "short", &[&told[..], &[how]].concat());
        assert_eq!(text(&got), "0123456789 2 200");
        let got = site.curl(server, "short", &[&told[..], &[how, "-r", "2-4"]].concat());
        assert_eq!(text(&got), "234 2 206");
        let got = site.curl(server, "none", &[&told[..], &[how, "-o", "/dev/null"]].concat());
        assert_eq!(text(&got), " 2 404");
        let got =
            site.curl(server, "short", &[&told[..], &[how, "-I", "-o", "/dev/null"]].concat());
        assert_eq!(text(&got), " 2 200");
        let large = site.curl(server, "large", &[how]);
        assert_eq!(large.stdout.len(), LARGE_BYTES, "{}", text(&large).len());
        assert_eq!(large.stdout, fs::read(site.file("large")).expect("it is there"));
    }
    let old = site.curl(&site.tls, "short", &[&told[..], &["--http1.1"]].concat());
    assert_eq!(text(&old), "0123456789 1.1 200", "clients may choose the older version");
}

#[test]
fn an_option_leaves_http_1_1_alone_for_folders_and_applications() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a"), "file").expect("it is written");
    let pair = certificate::localhost(folder.path());
    let application = "run ->(env) { [200, {}, [env['SERVER_PROTOCOL']]] }";
    for (config, body) in [(None, "file"), (Some(application), "HTTP/1.1")] {
        if let Some(text) = config {
            fs::write(folder.path().join("config.ru"), text).expect("it is written");
        }
        let bind = format!("ssl://127.0.0.1:0?{}", pair.parameters());
        let mut command = thruway();
        let command = command.arg("serve").arg(folder.path()).args(["-b", &bind, "--no-http2"]);
        let server = Server::start(command);
        let port = server.address().rsplit(':').next().expect("it has a port");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "--noproxy", "*", "--http2", "--cacert"]);
        curl.arg(&pair.certificate).args(["-w", " %{http_version}"]);
        let got = curl.arg(format!("https://localhost:{port}/a")).output().expect("curl starts");
        assert_eq!(text(&got), format!("{body} 1.1"));
    }
}

/// An application that greets each socket with its protocol, echoes messages, and refuses one socket.
const SOCKETS: &str = r#"
class Echo
  def on_open(client) = client.write(client.env.values_at("SERVER_PROTOCOL", "REQUEST_METHOD").join(" "))
  def on_message(client, data) = client.write(data)
end
run(lambda do |env|
  env["rack.upgrade"] = Echo.new if env["rack.upgrade?"] == :websocket && env["PATH_INFO"] == "/echo"
  [200, { "content-type" => "text/html" }, ["a page"]]
end)
"#;

#[test]
fn a_page_opens_its_websockets_on_its_connection_of_http_2() {
    if Command::new("chromium").arg("--version").output().is_err() {
        return skipped(format_args!("chromium is not installed"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pair = certificate::localhost(folder.path());
    fs::create_dir(folder.path().join("config")).expect("it is made");
    let files = [("config.ru", SOCKETS), ("config/thruway.rb", "http2_sockets\nworkers 2")];
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("it is written");
    }
    let bind = format!("ssl://127.0.0.1:0?{}", pair.parameters());
    let mut command = thruway();
    let server = Server::start(command.arg("serve").arg(folder.path()).args(["-b", &bind]));
    let port = server.address().rsplit(':').next().expect("it has a port").to_owned();
    let mut browser = Browser::start(folder.path());
    browser.open(&format!("https://localhost:{port}/"));
    browser.value(
        "var said = ['echo', 'echo', 'none'].map((name) => { \
         const texts = [], socket = new WebSocket(`wss://${location.host}/${name}`); \
         socket.onmessage = (event) => { texts.push(event.data); \
         texts.length === 1 ? socket.send('é'.repeat(50000)) : socket.close(4000) }; \
         socket.onclose = (event) => texts.push(event.code); return texts }); void 0",
    );
    browser.wait_for("said.every((texts) => Number.isInteger(texts.at(-1)))");
    browser.value("said.forEach((texts) => { if (texts.length > 1) texts[1] = texts[1].length })");
    let echo = json!(["HTTP/2 GET", 50_000, 4000]);
    assert_eq!(browser.value("said"), json!([echo, echo, [1006]]));
    assert!(server.stop("-TERM").success());
}

#[test]
fn nghttp_gets_several_files_by_one_connection() {
    let site = Site::new(LARGE_BYTES);
    let url = |path: &str| format!("http://{}/{path}", site.plain.address());
    let mut command = Command::new("nghttp");
    command.args(["-n", "-s", "-t", "30"]).args([url("short"), url("large"), url("none")]);
    let said = text(&command.output().expect("nghttp starts"));
    let counts = |status: &str| said.lines().filter(|line| line.contains(status)).count();
    assert_eq!((counts(" 200 "), counts(" 404 ")), (2, 1), "{said}");
}

#[test]
fn h2load_has_each_of_its_streams_served() {
    let site = Site::new(LARGE_BYTES);
    let url = format!("http://{}/short", site.plain.address());
    let mut command = Command::new("h2load");
    let said = text(
        &command.args(["-n", "2000", "-c", "4", "-m", "50", &url]).output().expect("it starts"),
    );
    assert!(said.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
}
