use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use thruway_testing::http_server::{HELLO, HttpServer, Next, write};
use thruway_testing::{certificate, free_port, skipped};

use crate::http::Server;
use crate::site::Site;
use crate::{eventually, run, stderr, stdout, thruway};

/// Options of a run that ends when one connection has had its thousand responses and the others have timed out. The run
/// takes no longer on a busy machine.
const UNTIL_GIVEN_UP: [&str; 4] = ["-n", "1000", "--timeout", "3"];

/// Runs `thruway load` on `server` with `options`.
fn load(server: &HttpServer, options: &[&str]) -> Output {
    let output = thruway().arg("load").arg(server.url("/")).args(options).output();
    output.expect("the binary starts")
}

#[test]
fn a_run_is_reported_with_each_connections_share() {
    let server = HttpServer::answering(HELLO);
    let output = load(&server, &["-c", "2", "-n", "500", "--per-connection"]);
    let text = stdout(&output);
    assert!(text.starts_with(&format!("{}: 2 connections, ", server.url("/"))), "{text}");
    for part in ["  requests  500   ", "  status    2xx 500\n", "  fairness  Jain ", "  greedy 2 "]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

/// Kernels before 5.11, some sandboxes and QEMU lack the system call.
#[test]
fn a_kernel_without_fine_waits_can_be_measured_on() {
    let server = HttpServer::answering(HELLO);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=epoll_pwait2"]);
    strace.args(["-e", "inject=epoll_pwait2:error=ENOSYS", env!("CARGO_BIN_EXE_thruway"), "load"]);
    let options = [server.url("/"), "-c".into(), "2".into(), "-n".into(), "50".into()];
    let output = strace.args(options).output().expect("scripts/setup installs it");
    assert!(stdout(&output).contains("  status    2xx 50\n"), "{output:?}");
}

#[test]
fn an_unfair_server_is_told_by_the_exit_status() {
    let starving = HttpServer::starving(1);
    let output = load(&starving, &[&["-c", "4", "--fair", "0.9"], &UNTIL_GIVEN_UP[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("\nunfair: Jain 0."), "{}", stdout(&output));
    assert!(stdout(&output).contains("; 3 starved\n"), "{}", stdout(&output));
    let fair = HttpServer::answering(HELLO);
    assert_eq!(load(&fair, &["-c", "1", "-n", "10", "--fair", "1"]).status.code(), Some(0));
}

#[test]
fn json_holds_the_same_numbers() {
    let server = HttpServer::answering(HELLO);
    let output = load(&server, &["--mix", "greedy=2,idle=1", "-n", "50", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["total"]["requests"], 50);
    assert_eq!(json["total"]["status"]["2xx"], 50);
    assert_eq!(json["classes"][1]["name"], "idle");
    assert_eq!(json["connections"].as_array().unwrap().len(), 3);
    assert!(json["total"]["latency"]["p99_ns"].as_u64().unwrap() > 0);
}

#[test]
fn a_rate_is_kept_by_all_connections_together() {
    let server = HttpServer::answering(HELLO);
    let output = load(&server, &["--rate", "400", "-c", "4", "-n", "80", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["total"]["requests"], &json["total"]["failed"]), (&80.into(), &0.into()));
    // The last is due 79 / 400 s after the first, however fast the responses are.
    assert!(json["seconds"].as_f64().unwrap() > 79.0 / 400.0);
    for options in [&["--mix", "greedy=1"][..], &["--rate", "0"], &["--rate", "often"]] {
        let refused = load(&server, &[&["--rate", "1"], options].concat());
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
    }
}

/// Runs `thruway load` on several paths of `server`, and parses its JSON.
fn load_paths(server: &HttpServer, paths: &[&str], options: &[&str]) -> serde_json::Value {
    let urls = paths.iter().map(|path| server.url(path));
    let output = thruway().arg("load").args(urls).args(options).arg("--json").output();
    let output = output.expect("the binary starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

#[test]
fn several_urls_are_asked_by_weight_and_reported_one_by_one() {
    let server = HttpServer::answering(HELLO);
    let options = ["--weights", "4,1", "-c", "1", "-n", "100"];
    let json = load_paths(&server, &["/short", "/long"], &options);
    let of = |url: usize, name: &str| json["urls"][url][name].clone();
    assert_eq!([of(0, "url"), of(1, "url")], ["/short", "/long"]);
    assert_eq!([of(0, "requests"), of(1, "requests")], [80, 20]);
    assert!(of(1, "latency")["p999_ns"].as_u64().unwrap() > 0);
    let urls = ["/short", "/long"].map(|path| server.url(path));
    let output = thruway().arg("load").args(urls).args(options).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with(&format!("http://{}, 2 URLs: 1 connection, ", server.address)));
    let words = |first: &str| {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.first() == Some(&first)).unwrap_or_default()
    };
    let heads = ["URL", "requests", "/s", "p50", "p90", "p99", "p99.9", "max", "Jain", "lost"];
    assert_eq!(words("URL"), heads, "{text}");
    assert_eq!(words("/long").get(1), Some(&"20"), "{text}");
}

#[test]
fn classes_have_urls_and_rates_of_their_own() {
    let server = HttpServer::answering(HELLO);
    let classes = ["scheduled=2,rate=180,arrivals=poisson,url=1", "scheduled=2,rate=20,url=2"];
    let options = ["--class", classes[0], "--class", classes[1], "-n", "100"];
    let json = load_paths(&server, &["/short", "/long"], &options);
    let requests = |part: &str, place: usize| json[part][place]["requests"].as_u64().unwrap();
    for place in [0, 1] {
        assert_eq!(json["classes"][place]["name"], "scheduled");
        assert_eq!(json["classes"][place]["url"], json["urls"][place]["url"]);
        assert_eq!(requests("classes", place), requests("urls", place), "{json:#}");
    }
    assert_eq!(requests("urls", 0) + requests("urls", 1), 100);
    assert!(requests("urls", 0) > 4 * requests("urls", 1), "{json:#}");
}

#[test]
fn a_run_loads_one_server() {
    let server = HttpServer::answering(HELLO);
    let output = run(&["load", &server.url("/a"), "http://127.0.0.1:1/b"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "thruway: http://127.0.0.1:1/b and http://127.0.0.1:";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    assert!(stderr(&output).contains("\n\nhint: a run loads one server"), "{}", stderr(&output));
}

#[test]
fn a_class_that_is_starved_is_unfair_whatever_the_others_got() {
    let starving = HttpServer::starving(1);
    let mix = [&["--mix", "greedy=2,polite=2", "--fair", "0.1"], &UNTIL_GIVEN_UP[..]].concat();
    let output = load(&starving, &mix);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let json = load(&HttpServer::starving(1), &[&mix[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(report["total"]["fairness"]["starved"].as_u64().unwrap() >= 1, "{report}");
}

/// The binary, which Ctrl-C ends even if a script runs the tests in the background, and they ignore the signal.
pub(crate) fn interruptible() -> Command {
    let mut env = Command::new("env");
    env.args(["--default-signal=INT", env!("CARGO_BIN_EXE_thruway")]);
    env
}

#[test]
fn ctrl_c_ends_the_run_with_its_report() {
    use std::os::unix::process::ExitStatusExt;
    let (told, begun) = std::sync::mpsc::channel();
    let server = HttpServer::new(move |stream, request| {
        // The client has had a response. Without any, its run would fail.
        if request.earlier > 0 {
            let _ = told.send(());
        }
        write(stream, HELLO)
    });
    let mut load = interruptible();
    load.arg("load").arg(server.url("/")).args(["-d", "60"]).stdout(Stdio::piped());
    let child = load.spawn().unwrap();
    begun.recv().unwrap();
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).contains("  requests  "), "{}", stdout(&output));
    assert_eq!(output.status.signal(), Some(2));
}

#[test]
fn a_server_that_never_answers_is_a_failure_after_its_report() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = HttpServer::new(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Next::Hang
    });
    // On a busy machine, a run may end before it has sent its three requests.
    let mut output = None;
    eventually(|| {
        requests.store(0, Ordering::Relaxed);
        output = Some(load(&server, &["-c", "3", "-d", "0.3"]));
        requests.load(Ordering::Relaxed) == 3
    });
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("3 starved   3 pending, the oldest for "));
    assert!(stderr(&output).contains(": no complete response\n\nhint: "));
}

/// A server of another protocol is named, with the cure if there is one.
#[test]
fn a_server_that_does_not_speak_http_is_told_by_its_first_bytes() {
    for (bytes, why, cure) in [
        ("\x15\x03\x01\0\x02\x02\x46", "the server speaks TLS", "write the URL with https://"),
        (
            "\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64",
            "the server speaks HTTP/2",
            "--http2 asks by HTTP/2",
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "the response begins with \"SSH-2.0-OpenSSH_9.2\"",
            "check that it is the right server, and that it speaks HTTP",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Le",
            "no complete response",
            "check that it is the right server, and that it speaks HTTP",
        ),
    ] {
        let server = HttpServer::new(move |stream, _| {
            write(stream, bytes);
            Next::Close
        });
        let output = load(&server, &["-n", "3", "-c", "1"]);
        assert_eq!(output.status.code(), Some(2), "{why}: {output:?}");
        let expected =
            format!("thruway: no response from {}: {why}\n\nhint: {cure}\n", server.url("/"));
        assert_eq!(stderr(&output), expected);
    }
    let silent = HttpServer::new(|_, _| Next::Hang);
    let output = load(&silent, &["-n", "2", "-c", "1", "--timeout", "50ms"]);
    assert!(
        stderr(&output)
            .ends_with("\nhint: requests waited for 50.0 ms; --timeout TIME waits longer\n"),
        "{output:?}"
    );
}

#[test]
fn a_port_without_a_listener_is_one_clear_line() {
    let closed = format!("127.0.0.1:{}", free_port());
    let output = run(&["load", &closed, "-d", "60"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!("thruway: no response from http://{closed}/: Connection refused");
    assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
}

#[test]
fn another_machine_is_not_loaded_unless_allowed() {
    let output = run(&["load", "http://192.0.2.1/"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "thruway: 192.0.2.1 is another machine\n\n\
         hint: use --allow-remote to load another machine, only with its owner's permission\n"
    );
}

#[test]
fn a_unix_socket_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        while stream.read(&mut request).unwrap() > 0 {
            stream.write_all(HELLO.as_bytes()).unwrap();
        }
    });
    let path = path.to_str().unwrap();
    let output = run(&["load", "http://app/x", "--unix-socket", path, "-c", "1", "-n", "7"]);
    assert!(stdout(&output).contains("requests  7 "), "{}", stderr(&output));
    server.join().unwrap();
}

#[test]
fn the_request_is_as_it_was_asked_for() {
    let server = HttpServer::answering(HELLO);
    for (options, part) in [
        (&["-H", "no colon"][..], "cannot send \"no colon\": a header is written as Name: value"),
        (&["--method", "GE T"], "cannot send \"GE T\": not a valid method"),
        (&["--body", "@/no/such/file"], "cannot read /no/such/file: "),
        (&["--mix", "rude=1"], "\"rude\" is not a kind of client: the kinds are greedy, "),
        (&["--mix", "greedy=1,depth=2"], "options of a class are for --class"),
        (&["--mix", "scheduled=1"], "scheduled clients need a rate: --class scheduled=N,rate="),
        (&["--class", "polite=1,rate=1"], "polite clients have no \"rate\"; they take: pause, url"),
        (&["--class", "greedy=1,url=2"], "--class names URL 2 of 1\n\nhint: url=K is "),
        (&["--class", "greedy=1", "--rate", "1"], "cannot be used with"),
        (&["--weights", "1,2"], "--weights has 2 numbers for 1 URLs\n\nhint: give one for each"),
        (&["--weights", "0"], "0 is not in 1..=1000"),
        (&["--arrivals", "late"], "arrivals must be even or poisson"),
        (&["-c", "0"], "0 is not in 1..=1000000"),
        (&["--fair", "2"], "must be between 0 and 1"),
        (&["-d", "0"], "must be more than 0 seconds"),
    ] {
        let output = load(&server, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(part), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn an_option_that_would_change_nothing_is_refused() {
    let server = HttpServer::answering(HELLO);
    for (options, option) in [
        (&["--arrivals", "poisson"][..], "--arrivals"),
        (&["--arrivals", "even", "--mix", "greedy=1"], "--arrivals"),
        (&["--arrivals", "even", "--class", "scheduled=1,rate=1,arrivals=even"], "--arrivals"),
        (&["--pause", "5", "-c", "2"], "--pause"),
        (&["--pause", "5", "--class", "polite=1,pause=1"], "--pause"),
        (&["--pipeline", "2", "--mix", "polite=1,idle=1"], "--pipeline"),
        (&["--pipeline", "2", "--class", "greedy=1,depth=4"], "--pipeline"),
        (&["--http2", "--streams", "2", "--mix", "polite=1"], "--streams"),
        (&["--weights", "2", "--class", "greedy=1,url=1"], "--weights"),
        (&["--fair", "0.5", "--mix", "idle=1,trickle=1"], "--fair"),
    ] {
        let output = load(&server, &[options, &["-d", "0.1"]].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let expected = format!("thruway: {option} has no effect in this run\n\nhint: ");
        assert!(stderr(&output).starts_with(&expected), "{options:?}: {}", stderr(&output));
    }
    let depth = ["--broadcast", "--rate", "9", "--pipeline", "2"];
    let output = run(&[&["load", "ws://127.0.0.1:1/"], &depth[..]].concat());
    assert!(stderr(&output).starts_with("thruway: --pipeline has no effect"), "{output:?}");
    for options in [
        &["--arrivals", "poisson", "--rate", "500"][..],
        &["--arrivals", "poisson", "--class", "scheduled=1,rate=500"],
        &["--pause", "1", "--mix", "greedy=1,polite=1"],
        &["--pipeline", "2", "--class", "greedy=1,depth=4", "--class", "greedy=1"],
        &["--weights", "2", "--class", "greedy=1,url=1", "--class", "greedy=1"],
    ] {
        let output = load(&server, &[options, &["-n", "20"]].concat());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{options:?}");
    }
}

#[test]
fn clients_that_keep_a_connection_are_refused_without_keep_alive() {
    let server = HttpServer::answering(HELLO);
    for (classes, kind) in [
        (["--mix", "greedy=1,idle=1"], "idle"),
        (["--mix", "pipelined=1"], "pipelined"),
        (["--class", "scheduled=1,rate=1,depth=2"], "scheduled"),
    ] {
        let output = load(&server, &[&classes[..], &["--no-keep-alive", "-n", "1"]].concat());
        assert_eq!(output.status.code(), Some(2), "{classes:?}");
        let expected = format!("thruway: --no-keep-alive is not for {kind} clients\n\nhint: ");
        assert!(stderr(&output).starts_with(&expected), "{output:?}");
    }
    let output = load(&server, &["--class", "pipelined=1,depth=1", "--no-keep-alive", "-n", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Returns the report on a URL for a run with `options`.
fn report(url: &str, options: &[&str]) -> serde_json::Value {
    let output = thruway().arg("load").arg(url).args(options).arg("--json").output();
    let output = output.expect("the binary starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Requests a short file and a large one over HTTP/2, and checks the reports.
fn assert_http2(short: &str, large: &str, tls: &[&str]) {
    let options = ["--http2", "-c", "2", "--streams", "8", "-n", "400"];
    let total = &report(short, &[&options[..], tls].concat())["total"];
    assert_eq!((&total["requests"], &total["failed"]), (&json!(400), &json!(0)), "{total}");
    assert_eq!((&total["status"]["2xx"], &total["connects"]), (&json!(400), &json!(2)), "{total}");
    let streams = &total["streams"];
    assert_eq!((&streams["each"], &streams["starved"]), (&json!(8), &json!(0)), "{total}");
    let options = ["--http2", "-c", "1", "--streams", "3", "-n", "9"];
    let body = report(large, &[&options[..], tls].concat());
    let total = &body["total"];
    assert_eq!((&total["requests"], &total["failed"]), (&json!(9), &json!(0)), "{total}");
    let number = |value: &serde_json::Value| value.as_f64().expect("it is a number");
    let bytes = number(&total["bytes_per_second"]) * number(&body["seconds"]);
    assert!(bytes > 9e6, "{body}");
}

#[test]
fn http2_is_spoken_with_streams_as_clients() {
    let site = Site::new(1_000_000);
    for (short, large) in site.urls("short").iter().zip(&site.urls("large")) {
        assert_http2(short, large, if short.starts_with("https") { &["-k"] } else { &[] });
    }
}

/// Tests against a foreign server with a foreign HTTP/2 library.
#[test]
fn http2_is_spoken_with_nginx() {
    if Command::new("nginx").arg("-v").output().is_err() {
        return skipped(format_args!("nginx is not installed"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pair = certificate::localhost(folder.path());
    let [plain, tls] = [(); 2].map(|()| free_port());
    fs::write(folder.path().join("short"), "0123456789").expect("it is written");
    fs::write(folder.path().join("large"), vec![7; 1_000_000]).expect("it is written");
    let root = folder.path().display();
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error;\n\
         events {{ }}\nhttp {{ access_log off; root {root}; client_body_temp_path {root}/b; \
         proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; \
         scgi_temp_path {root}/s; keepalive_requests 100;\n\
         server {{ listen 127.0.0.1:{plain} http2; listen 127.0.0.1:{tls} ssl http2; \
         ssl_certificate {}; ssl_certificate_key {}; }} }}\n",
        pair.certificate.display(),
        pair.key.display()
    );
    fs::write(folder.path().join("nginx.conf"), text).expect("it is written");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.path().join("nginx.conf")).stderr(Stdio::null());
    let mut nginx = command.spawn().expect("it starts");
    eventually(|| TcpStream::connect(("127.0.0.1", tls)).is_ok());
    // nginx sends GOAWAY after a hundred requests on a connection. Requests without a response are sent again.
    let asked = report(
        &format!("http://127.0.0.1:{plain}/short"),
        &["--http2", "--streams", "8", "-n", "1500"],
    );
    assert_http2_with_goodbyes(&asked["total"]);
    assert_http2_with_goodbyes(
        &report(
            &format!("https://127.0.0.1:{tls}/large"),
            &["--http2", "-k", "-c", "1", "--streams", "3", "-n", "9"],
        )["total"],
    );
    nginx.kill().expect("it is there");
    nginx.wait().expect("it ends");
}

fn assert_http2_with_goodbyes(total: &serde_json::Value) {
    assert_eq!((&total["failed"], &total["errors"]), (&json!(0), &json!({})), "{total}");
    assert_eq!(total["requests"], total["status"]["2xx"], "{total}");
    assert!(total["connects"].as_u64() <= Some(25), "{total}");
}

#[test]
fn a_server_without_http2_is_told_so() {
    let server = HttpServer::answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let output = load(&server, &["--http2", "-n", "1", "-d", "1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("\nhint: check that the server speaks HTTP/2"), "{output:?}");
}

#[test]
fn options_of_websockets_and_of_http2_have_their_urls() {
    for (url, options, expected) in [
        ("ws://127.0.0.1:1/", ["--http2", "-c1"], "--http2 is not for WebSockets"),
        ("ws://127.0.0.1:1/", ["--body", "x"], "--body is not for WebSockets"),
        ("http://127.0.0.1:1/", ["--broadcast", "-c1"], "--broadcast is for WebSockets"),
        (
            "ws://127.0.0.1:1/",
            ["--broadcast", "--message=x"],
            "the message of a broadcast lacks {id}",
        ),
        ("ws://127.0.0.1:1/", ["--message", "@/none/such"], "cannot read /none/such"),
        (
            "http://127.0.0.1:1/",
            ["--body", "@/dev/zero"],
            "cannot read /dev/zero: larger than 256 MB",
        ),
        ("ws://127.0.0.1:1/", ["--confirmed", ""], "a value is required for '--confirmed"),
    ] {
        let output = run(&[&["load", url], &options[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).starts_with(&format!("thruway: {expected}")), "{output:?}");
    }
}

#[test]
fn a_message_of_a_websocket_is_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    fs::write(&file, b"\xff{id}").unwrap();
    let named = format!("@{}", file.display());
    for option in ["--message", "--subscribe"] {
        let output = run(&["load", "ws://127.0.0.1:1/", option, &named]);
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("thruway: the text of {option} is not UTF-8\n\nhint: ");
        assert!(stderr(&output).starts_with(&expected), "{output:?}");
    }
}

/// An application that echoes messages at /echo, and broadcasts them at /hub.
const SOCKETS: &str = r#"
class Echo
  def on_message(client, data) = client.write(data)
end
class Hub
  def initialize = (@all, @lock = [], Mutex.new)
  def on_open(client) = client.write("welcome")
  def on_message(client, data)
    return @lock.synchronize { @all << client; client.write("you are in") } if data == "let me in"

    Thruway::Client.broadcast(@lock.synchronize { @all.dup }, "said: #{data}")
  end
end
echo, hub = Echo.new, Hub.new
run(lambda do |env|
  env["rack.upgrade"] = env["PATH_INFO"] == "/hub" ? hub : echo if env["rack.upgrade?"]
  [200, {}, ["no socket"]]
end)
"#;

#[test]
fn websockets_echo_and_broadcast() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = certificate::localhost(folder.path());
    fs::write(folder.path().join("config.ru"), SOCKETS).expect("it is written");
    let mut command = thruway();
    let tls = format!("ssl://127.0.0.1:0?{}", pair.parameters());
    let server = Server::start(command.arg("serve").arg(folder.path()).args(["-b", &tls]));
    let url = |path: &str| format!("wss://{}/{path}", server.address());
    let echo = &report(&url("echo"), &["-k", "-c", "3", "-n", "60", "--message", "é, and more"]);
    let total = &echo["total"];
    assert_eq!((&total["requests"], &total["failed"]), (&json!(60), &json!(0)), "{total}");
    let subscribed = ["--subscribe", "let me in", "--confirmed", "you are in"];
    let options = [&["-k", "-c", "4", "-n", "10", "--broadcast"], &subscribed[..]].concat();
    let hub = report(&url("hub"), &options);
    assert_eq!((&hub["total"]["requests"], &hub["broadcasts"]["whole"]), (&json!(40), &json!(10)));
    let output = thruway().arg("load").arg(url("hub")).args(options).output().unwrap();
    assert!(stdout(&output).contains("\n  broadcast 10 sent   10 to all   "), "{output:?}");
    assert!(server.stop("-TERM").success());
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let (server, folder) = (HttpServer::answering(HELLO), tempfile::tempdir().unwrap());
    let file = folder.path().join("earlier.json");
    let file = file.to_str().unwrap();
    fs::write(file, load(&server, &["-n", "50", "--json"]).stdout).unwrap();
    let output = load(&server, &["-n", "50", "--compare", file]);
    for part in ["  requests/s ", "now ÷ then", " ×\n", "  Jain "] {
        assert!(stdout(&output).contains(part), "{part:?} in {}", stdout(&output));
    }
    fs::write(file, "{}").unwrap();
    let output = load(&server, &["-n", "50", "--compare", file]);
    assert!(stderr(&output).contains("is not a report of thruway load"), "{output:?}");
}

#[test]
fn what_never_ends_is_not_compared_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let fifo = path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let long = path("long");
    fs::File::create(&long).unwrap().set_len(10 << 30).unwrap();
    let folder = folder.path().to_str().unwrap();
    let server = HttpServer::answering(HELLO);
    for (file, what) in [
        ("/dev/zero", "thruway: /dev/zero is not a report of thruway load\n\nhint: "),
        ("/dev/stdin", "thruway: /dev/stdin is not a report of thruway load\n\nhint: "),
        (&long, &format!("thruway: {long} is not a report of thruway load\n\nhint: ")),
        (folder, &format!("thruway: cannot read {folder}: Is a directory")),
        (&fifo, &format!("thruway: cannot read {fifo}: no end of file within 10 s")),
    ] {
        let mut load = Command::new("timeout");
        load.args(["20", env!("CARGO_BIN_EXE_thruway"), "load", &server.url("/")]);
        load.args(["-n", "1", "--compare", file]).stdin(Stdio::null());
        let output = load.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{file}: {output:?}");
        assert!(stderr(&output).starts_with(what), "{file}: {output:?}");
    }
}

#[test]
fn a_pipe_is_compared_with() {
    let server = HttpServer::answering(HELLO);
    let earlier = load(&server, &["-n", "5", "--json"]).stdout;
    let mut now = thruway();
    now.args(["load", &server.url("/"), "-n", "5", "--compare", "/dev/stdin"]);
    let mut now = now.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    Write::write_all(&mut now.stdin.take().unwrap(), &earlier).unwrap();
    let output = now.wait_with_output().unwrap();
    assert!(stdout(&output).contains("now ÷ then"), "{output:?}");
}

/// Starts a server that, on each connection, reads once, sends `response` and closes.
fn blunt_server(response: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            // The client may have gone.
            let _ = stream.read(&mut buffer).and_then(|_| stream.write_all(response));
        }
    });
    port
}

#[test]
fn a_failed_handshake_of_tls_says_why() {
    let cases: [(&[u8], &str); 7] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server does not speak TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "handshake_failure: no common cipher or signature"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "protocol_version: protocol version: it speaks neither"),
        (b"\x15\x03\x03\x00\x02\x02\x70", "unrecognized_name: it has no host of that name"),
        (b"\x15\x03\x03\x00\x02\x02\x74", "certificate_required: it requires a client certificate"),
        (b"\x16\x03\x03\x00\x04\x14\x00\x00\x00", "the server breaks the protocol"),
        (b"", "the server has closed within the handshake"),
    ];
    for (response, reason) in cases {
        let url = format!("https://localhost:{}/", blunt_server(response));
        let output = run(&["load", &url, "-k", "-c", "1", "-n", "1"]);
        assert_eq!(output.status.code(), Some(2), "{reason}: {output:?}");
        assert!(stderr(&output).contains(reason), "{reason}: {}", stderr(&output));
        let report = stdout(&output);
        assert!(report.contains("  errors    tls ") && report.contains(reason), "{report}");
        assert!(!report.contains("reset"), "{report}");
    }
}

#[test]
fn what_a_server_prints_as_its_address_can_be_loaded() {
    for (bind, host) in [("0.0.0.0", "0.0.0.0"), ("[::]", "[::]")] {
        let Ok(listener) = TcpListener::bind(format!("{bind}:0")) else { continue };
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).and_then(|_| stream.write_all(HELLO.as_bytes()));
            }
        });
        let output = run(&["load", &format!("http://{host}:{port}/"), "-c", "1", "-n", "1"]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn an_empty_body_is_sent_with_its_length() {
    let (send, requests) = std::sync::mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            send.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).unwrap();
            let _ = stream.write_all(HELLO.as_bytes());
        }
    });
    let output = run(&["load", &url, "-c", "1", "-n", "1", "--body", ""]);
    assert!(output.status.success(), "{output:?}");
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST / "), "{request}");
    assert!(request.contains("\r\nContent-Length: 0\r\n"), "{request}");
}

#[test]
fn lines_that_end_in_lf_alone_are_read() {
    let server = HttpServer::answering("HTTP/1.1 200 OK\nContent-Length: 2\n\nok");
    let output = load(&server, &["-c", "1", "-n", "3"]);
    assert!(stdout(&output).contains("  status    2xx 3\n"), "{output:?}");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn a_run_with_nothing_but_errors_ends_with_1_and_a_hint() {
    for status in ["404 Not Found", "503 Service Unavailable"] {
        let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        let server = HttpServer::answering(Box::leak(response.into_boxed_str()));
        for options in [&["-c", "1", "-n", "3"][..], &["-c", "1", "-n", "3", "--json"]] {
            let output = load(&server, options);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let expected = format!("thruway: every response is an error: {}xx 3\n", &status[..1]);
            assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
            assert!(stderr(&output).contains("\nhint: "), "{}", stderr(&output));
        }
    }
    let mixed = HttpServer::new(|stream, request| match request.earlier {
        0 => write(stream, HELLO),
        _ => write(stream, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    });
    assert_eq!(load(&mixed, &["-c", "1", "-n", "3"]).status.code(), Some(0));
}
