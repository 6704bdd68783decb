//! The results of `thruway load`: figures, limits and files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use thruway_testing::http_server::{HELLO, HttpServer, Next, write};

use crate::load::interruptible;
use crate::{stderr, stdout, thruway};

const FAILURE: &str = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";

fn load(server: &HttpServer, options: &[&str]) -> Output {
    let output = thruway().arg("load").arg(server.url("/")).args(options).output();
    output.expect("the binary starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Starts a server that answers every fourth request with 503.
fn flawed() -> HttpServer {
    let count = AtomicU64::new(0);
    HttpServer::new(move |stream, _| {
        let is_flawed = count.fetch_add(1, Ordering::Relaxed) % 4 == 3;
        write(stream, if is_flawed { FAILURE } else { HELLO })
    })
}

#[test]
fn limits_decide_the_exit_status() {
    let server = flawed();
    for (options, status, line) in [
        (&["--max-error-rate", "25%"][..], 0, "kept: max-error-rate: 25 %, at most 25 %\n"),
        (
            &["--max-error-rate", "0.249"],
            1,
            "failed: max-error-rate: 25 %, asked for: at most 24.9 %",
        ),
        (&["--max-p99", "1h", "--max-mean", "1h"], 0, "\nkept: max-p99: "),
        (&["--max-p50", "1ns", "--max-p99", "1h"], 1, "failed: max-p50: "),
        (&["--max-p99.9", "1us"], 1, "asked for: at most 1.00 µs\n"),
        (&["--max-latency", "1ns"], 1, "failed: max-latency: "),
        (&["--min-rate", "100000000"], 1, "asked for: at least 100,000,000/s\n"),
        (&["--min-rate", "0.01"], 0, "kept: min-rate: "),
    ] {
        let output = load(&server, &[&["-c", "1", "-n", "40"], options].concat());
        assert_eq!(output.status.code(), Some(status), "{options:?}: {output:?}");
        assert!(stdout(&output).contains(line), "{options:?}: {}", stdout(&output));
    }
    let output = load(&server, &["-c", "1", "-n", "40", "--max-error-rate", "10%", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json = json(&output);
    assert_eq!(json["limits"][0]["name"], "max-error-rate", "{json:#}");
    assert_eq!(json["limits"][0]["is_exceeded"], true, "{json:#}");
    assert_eq!(json["error_rate"], 0.25, "{json:#}");
}

/// A server that loses requests also exceeds a limit.
#[test]
fn lost_requests_count_as_errors() {
    let server = HttpServer::new(|stream, request| match request.earlier {
        0 => write(stream, HELLO),
        _ => Next::Close,
    });
    let options = ["-c", "1", "-n", "20", "--max-error-rate", "49%", "--json"];
    let output = load(&server, &options);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(json(&output)["error_rate"], 0.5);
}

#[test]
fn each_status_is_counted_and_chosen_percentiles_are_printed() {
    let server = flawed();
    let options = ["-c", "1", "-n", "40", "--percentiles", "50,p75,99.99", "--histogram"];
    let text = load(&server, &options);
    let text = stdout(&text);
    for part in
        ["  status    2xx 30   5xx 10\n            200 30   503 10\n", "   p75 ", "   p99.99 "]
    {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("p90"), "{text}");
    assert!(
        text.contains("            mean ") && text.contains("   standard deviation "),
        "{text}"
    );
    assert!(text.contains("\n  latency below   requests "), "{text}");
    let json = json(&load(&flawed(), &[&options[..], &["--json"]].concat()));
    assert_eq!(json["version"], 1);
    assert_eq!(json["total"]["statuses"], serde_json::json!({"200": 30, "503": 10}));
    assert_eq!(json["percentiles"][2]["percent"], 99.99);
    let counts = json["histogram"].as_array().unwrap().iter();
    assert_eq!(counts.map(|bin| bin["requests"].as_u64().unwrap()).sum::<u64>(), 40);
    assert_eq!(json["timeline"][0]["errors"], 10);
}

#[test]
fn seconds_and_a_picture_are_written_to_files() {
    let (server, folder) = (flawed(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, svg) = (path("a b.csv"), path("run.svg"));
    let output = load(&server, &["-n", "40", "--csv", &csv, "--svg", &svg]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&csv).unwrap();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    let column = |name: &str| lines[0].iter().position(|head| *head == name).expect(name);
    assert_eq!((lines[1][column("requests")], lines[1][column("errors")]), ("40", "10"), "{text}");
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains("<rect class=\"bar\""), "{picture}");
    for (option, name) in [("--csv", "none/x.csv"), ("--svg", "")] {
        let output = load(&server, &["-d", "60", option, &path(name)]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(stderr(&output).starts_with("thruway: cannot write "), "{output:?}");
    }
}

#[test]
fn a_warm_up_a_ramp_and_bursts_are_part_of_a_run() {
    let server = HttpServer::answering(HELLO);
    let options = ["--warm-up", "100ms", "--ramp", "50ms", "--rate", "2000", "--burst", "5"];
    let options = [&options[..], &["-n", "100", "-z", "1m", "--threads", "2", "--json"]].concat();
    let json = json(&load(&server, &options));
    assert_eq!(json["total"]["requests"], 100, "{json:#}");
    for (options, part) in [
        (&["--burst", "5"][..], "--burst has no effect in this run"),
        (&["--burst", "5", "--rate", "9", "--arrivals", "poisson"], "cannot be used with"),
        (
            &["--class", "scheduled=1,rate=9,burst=2,arrivals=poisson"],
            "burst: bursts are not poisson",
        ),
        (&["--warm-up", "0s"], "must be more than 0 seconds"),
        (&["--threads", "0"], "0 is not in 1..=256"),
        (&["-d", "5x"], "\"5x\" is not a time: write it as in 500ms, 10s or 1m"),
        (&["--max-error-rate", "2"], "must be between 0% and 100%"),
        (&["--max-p99", "-1"], "invalid value '-1' for '--max-p99 <TIME>'"),
        (&["--percentiles", "0"], "must be above 0 and at most 100"),
    ] {
        let output = load(&server, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(part), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn headers_of_options_are_sent_once() {
    let (send, requests) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            send.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).unwrap();
            let answer = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n";
            let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
        }
    });
    let ask = |url: &str, options: &[&str]| {
        let output = thruway().args(["load", url, "-c1", "-n1"]).args(options).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (requests.recv().unwrap(), stdout(&output).to_owned())
    };
    let (request, report) =
        ask(&format!("http://{address}/"), &["-a", "me:secret", "-A", "probe/1", "--compressed"]);
    for line in
        ["Authorization: Basic bWU6c2VjcmV0", "User-Agent: probe/1", "Accept-Encoding: gzip"]
    {
        assert!(request.contains(&format!("\r\n{line}")), "{line} in {request}");
    }
    assert!(report.contains("  encoded   1 responses with a content coding"), "{report}");
    let (request, report) = ask(&format!("http://me:s%65cret@{address}/"), &[]);
    assert!(request.contains("\r\nAuthorization: Basic bWU6c2VjcmV0\r\n"), "{request}");
    assert!(!report.contains("secret") && !report.contains("me:"), "{report}");
    let url = format!("http://{address}/");
    let output =
        thruway().args(["load", &url, "-a", "x", "-H", "authorization: y"]).output().unwrap();
    assert!(
        stderr(&output).starts_with("thruway: -a and -H both set Authorization\n"),
        "{output:?}"
    );
}

/// The line about starved connections needs no option.
#[test]
fn a_starving_server_is_convicted_by_default() {
    let starving = HttpServer::starving(1);
    let output = load(&starving, &["-c", "4", "-n", "1000", "--timeout", "3s"]);
    let line = "  starved   3 of 4 connections got nothing, or less than a tenth of the mean\n";
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
    let fair = load(&HttpServer::answering(HELLO), &["-c", "1", "-n", "10"]);
    assert!(!stdout(&fair).contains("  starved   "), "{}", stdout(&fair));
}

#[test]
fn a_locale_without_utf_8_gets_ascii() {
    let server = flawed();
    let text = |locale: &str| {
        let mut load = thruway();
        load.args(["load", &server.url("/"), "-n", "40", "--histogram", "--per-connection"]);
        let output = load.env("LC_ALL", locale).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(text("C").is_ascii() && text("C").contains(" us "), "{}", text("C"));
    assert!(text("C.UTF-8").contains(" µs "), "{}", text("C.UTF-8"));
}

/// Runs in a terminal with `columns` columns. Returns the output, and the rows that a terminal would show.
fn in_terminal(columns: u32, arguments: &str) -> String {
    let mut script = Command::new("script");
    let binary = env!("CARGO_BIN_EXE_thruway");
    let command = format!("stty cols {columns} rows 40; '{binary}' load {arguments}");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env_remove("COLUMNS");
    let output = script.output().expect("scripts/setup installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_narrow_terminal_is_not_overrun() {
    let server = flawed();
    let urls = [server.url("/a/path/that/is/quite/long/indeed"), server.url("/b")].join(" ");
    let options = "-c 100 -d 3s --per-connection --histogram --mix greedy=90,polite=5,idle=5";
    let options = options.replace("-c 100 ", "");
    let text = in_terminal(60, &format!("{urls} {options}"));
    assert!(text.contains(" errors  Jain ") && text.contains("shares  "), "{text}");
    assert!(text.contains("latency below   requests"), "{text}");
    for line in text.split(['\n', '\r']) {
        let line = without_escapes(line);
        // The head contains the name of the URLs' server, however long.
        assert!(line.chars().count() <= 60, "{line:?}");
    }
}

/// Removes the escape sequences that move the cursor or erase.
fn without_escapes(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        rest =
            after.find(|last: char| last.is_ascii_alphabetic()).map_or("", |at| &after[at + 1..]);
    }
    text + rest
}

#[test]
fn lines_show_the_progress_where_there_is_no_terminal() {
    let server = flawed();
    let mut run = thruway();
    run.arg("load").arg(server.url("/")).args(["-d", "60", "--progress", "100ms"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(run.stderr.take().expect("it is a pipe")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    assert!(lines.any(|line| line.contains("/s  p50 ") && line.contains(" errors  Jain ")));
    run.kill().and_then(|()| run.wait()).expect("it runs");
    assert_eq!(stderr(&load(&server, &["-n", "40", "-q"])), "");
}

#[test]
fn two_servers_are_compared_in_rounds() {
    let (visited, visits) = std::sync::mpsc::channel();
    let server = |name: &'static str| {
        let visited = visited.clone();
        HttpServer::new(move |stream, _| {
            let _ = visited.send(name);
            write(stream, HELLO)
        })
    };
    let (one, other) = (server("A"), server("B"));
    let compare = |a: &HttpServer, b: &HttpServer, options: &[&str]| {
        let mut load = thruway();
        load.args(["load", "--compare", &a.url("/a"), &b.url("/b"), "-c", "2", "-q"]).args(options);
        load.output().expect("the binary starts")
    };
    let output = compare(&one, &other, &["-n", "10", "--rounds", "5"]);
    let mut visits: Vec<_> = visits.try_iter().collect();
    visits.dedup();
    // The second visit of A or B in a row continues the first.
    assert_eq!(visits, ["A", "B", "A", "B", "A", "B"]);
    let text = stdout(&output);
    assert!(text.starts_with(&format!(
        "  A         {}\n  B         {}\n",
        one.url("/a"),
        other.url("/b")
    )));
    for name in ["requests/s", "p50", "p99", "mean"] {
        assert_verdict_is_that_of_the_interval(text, name);
    }
    let json = json(&compare(&one, &other, &["-n", "50", "--rounds", "4", "--json"]));
    assert_eq!(json["version"], 1);
    let figure = &json["figures"][0];
    for (side, runs) in [("a", "runs_a"), ("b", "runs_b")] {
        let rates = json[runs].as_array().unwrap().iter();
        let rates: Vec<_> =
            rates.map(|run| run["total"]["requests_per_second"].as_f64().unwrap()).collect();
        assert_eq!(rates.len(), 4);
        let mean = rates.iter().sum::<f64>() / 4.0;
        assert!((figure[side].as_f64().unwrap() / mean - 1.0).abs() < 1e-9, "{figure}");
    }
    let is_shown = figure["low"].as_f64() > Some(1.0) || figure["high"].as_f64() < Some(1.0);
    assert_eq!(figure["verdict"] == "no difference shown", !is_shown, "{figure}");
    let failing = HttpServer::answering(FAILURE);
    let output = compare(&one, &failing, &["-n", "10", "--rounds", "3"]);
    assert!(
        stdout(&output).contains("  B         30 requests were lost or answered with an error"),
        "{output:?}"
    );
    for (options, part) in [
        (&["--rounds", "2"][..], "2 is not in 3..=1000"),
        (&["--histogram"], "--histogram is not for comparisons of two servers"),
        (&["--max-p99", "1s"], "a limit such as --max-p99 is not for comparisons"),
    ] {
        let output = compare(&one, &other, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(part), "{output:?}");
    }
}

/// Asserts that the verdict of a row is that of its interval. Which server is slower depends on the machine's pauses.
fn assert_verdict_is_that_of_the_interval(text: &str, name: &str) {
    let start = format!("  {name} ");
    let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
    let (figures, shown) = line.split_once(" × ").expect("a ratio");
    let number = |word: Option<&str>| -> f64 {
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number: {line}"))
    };
    let ratio = number(figures.split_whitespace().last());
    let mut words = shown.split_whitespace();
    let (low, high) = (number(words.next()), number(words.nth(1)));
    assert!(low <= ratio && ratio <= high, "{line}");
    let (larger, smaller) = match name {
        "requests/s" => ("B is faster", "B is slower"),
        _ => ("B is slower", "B is faster"),
    };
    let expected = match (low > 1.0, high < 1.0) {
        (true, _) => larger,
        (_, true) => smaller,
        _ => "no difference shown",
    };
    // A bound that is printed as 1.000 may lie on either side.
    let is_rounded = line.contains(" 1.000 ");
    assert!(line.ends_with(expected) || is_rounded, "{line}");
}

/// A comparison ends with the rounds that there are, and the process by the signal.
#[test]
fn ctrl_c_ends_a_comparison_with_its_rounds() {
    use std::os::unix::process::ExitStatusExt;
    let (told, begun) = std::sync::mpsc::channel();
    let server = HttpServer::new(move |stream, request| {
        // The client has had a response. Without any, its run would fail.
        if request.earlier > 0 {
            let _ = told.send(request.path.clone());
        }
        write(stream, HELLO)
    });
    let mut load = interruptible();
    load.args(["load", "--compare", &server.url("/a"), &server.url("/b"), "-d", "2s", "-q"]);
    let child = load.stdout(Stdio::piped()).spawn().unwrap();
    while begun.recv().unwrap() != "/b" {}
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).contains("  too few rounds to tell\n"), "{output:?}");
    assert_eq!(output.status.signal(), Some(2));
}

/// Starts a server that records each request with its body.
fn recorder() -> (String, std::sync::mpsc::Receiver<String>) {
    let (send, requests) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let send = send.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // Each request of these tests fits into one segment, and only one request is pending.
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    let _ = send.send(String::from_utf8_lossy(&buffer[..read]).into_owned());
                    let _ = std::io::Write::write_all(&mut stream, HELLO.as_bytes());
                }
            });
        }
    });
    (url, requests)
}

#[test]
fn urls_headers_and_bodies_differ_from_request_to_request() {
    let (url, requests) = recorder();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("names");
    fs::write(&file, "ann\nbob\n\ncid\n").unwrap();
    let names = format!("name=@{}", file.display());
    let target = format!("{url}/items/{{id}}");
    let options = ["--var", "id=1-30", "--var", &names, "-H", "X-Name: {name}", "--body", "<{id}>"];
    let output =
        thruway().args(["load", &target, "-c", "2", "-n", "60"]).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let asked: Vec<_> = requests.try_iter().collect();
    assert_eq!(asked.len(), 60);
    for id in 1..=30 {
        let of_id: Vec<_> =
            asked.iter().filter(|text| text.starts_with(&format!("POST /items/{id} "))).collect();
        assert!(!of_id.is_empty(), "{id} was never asked");
        assert!(of_id.iter().all(|text| text.ends_with(&format!("\r\n\r\n<{id}>"))), "{of_id:?}");
    }
    for name in ["ann", "bob", "cid"] {
        assert!(
            asked.iter().any(|text| text.contains(&format!("\r\nX-Name: {name}\r\n"))),
            "{name}"
        );
    }
    for (options, part) in [
        (&["--var", "id=1-3"][..], "--var has no effect in this run"),
        (&["--var", "id=3-1", "--body", "{id}"], "3-1 is not a range of 1 to 100000 numbers"),
        (&["--var", "id=@/none", "--body", "{id}"], "cannot read /none: "),
        (&["--chunked", "5"], "--body"),
    ] {
        let output = thruway().args(["load", &url]).args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(part), "{options:?}: {}", stderr(&output));
    }
}

#[test]
fn urls_come_from_a_file_and_a_body_from_stdin() {
    let (url, requests) = recorder();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("urls");
    let lines: Vec<_> = (0..20).map(|number| format!("{url}/{number}")).collect();
    fs::write(&file, format!("# of the log\n{}\n", lines.join("\n"))).unwrap();
    let mut load = thruway();
    load.args(["load", "--urls"]).arg(&file).args(["-c", "1", "-n", "20", "--json"]);
    let mut load = load
        .args(["--body", "@-", "--chunked", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut load.stdin.take().unwrap(), b"hello").unwrap();
    let output = load.wait_with_output().unwrap();
    let json = json(&output);
    assert_eq!(
        (json["urls"].as_array().unwrap().len(), &json["urls"][0]["requests"]),
        (1, &20.into())
    );
    assert!(json["urls"][0]["url"].as_str().unwrap().ends_with(" and 19 more"), "{json:#}");
    let mut asked: Vec<_> = requests.try_iter().collect();
    let body = "\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n1\r\no\r\n0\r\n\r\n";
    assert!(asked.iter().all(|text| text.ends_with(body)), "{asked:?}");
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 20, "each URL is asked once");
    fs::write(&file, "#\n").unwrap();
    let output = thruway().args(["load", "--urls"]).arg(&file).output().unwrap();
    assert!(stderr(&output).contains(" has 0 URLs\n"), "{output:?}");
}
