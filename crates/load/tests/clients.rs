//! Whole runs against a server whose behaviour is known. Each ends, and says what happened.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Barrier;
use std::time::Duration;

use thruway_load::{Address, Class, ClientKind, Plan, Report, Request, Url, run};
use thruway_testing::http_server::{HELLO, HttpServer, Next, write};

const TIMEOUT: Duration = Duration::from_secs(30);

/// `connections` greedy clients of `server` that end after `requests`.
fn plan(server: &HttpServer, connections: u32, requests: u64) -> Plan {
    let url = Url::parse(&server.url("/")).expect("it is a URL");
    Plan {
        address: url.address(false).expect("it is loopback"),
        request: Request::new(&url, "GET", &[], b"", true).expect("it is a request"),
        classes: vec![Class { kind: ClientKind::Greedy, connections }],
        depth: 1,
        pause: Duration::from_millis(1),
        duration: None,
        requests: Some(requests),
        timeout: TIMEOUT,
    }
}

fn ran(plan: &Plan) -> Report {
    run(plan, None, &mut |_| {}).expect("it runs")
}

/// The report on `requests` requests over one connection, given up after 200 ms.
fn report_on(server: &HttpServer, requests: u64) -> Report {
    ran(&Plan { timeout: Duration::from_millis(200), ..plan(server, 1, requests) })
}

fn errors(report: &Report) -> Vec<(&str, u64)> {
    report.total.errors.iter().map(|(name, count)| (*name, *count)).collect()
}

#[test]
fn as_many_requests_are_made_as_were_asked_for() {
    let report = ran(&plan(&HttpServer::answering(HELLO), 3, 1000));
    assert_eq!((report.total.requests, report.total.failed, report.total.connects), (1000, 0, 3));
    assert_eq!(report.total.status["2xx"], 1000);
    assert_eq!(report.total.fairness.pending, 0);
    assert_eq!(report.connections.iter().map(|one| one.requests).sum::<u64>(), 1000);
}

#[test]
fn every_framing_of_an_answer_is_read() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let report = report_on(&HttpServer::answering(answer), 20);
        let total = &report.total;
        assert_eq!((total.requests, total.failed, total.connects), (20, 0, 1), "{answer:?}");
    }
}

#[test]
fn a_long_body_is_counted_to_its_last_byte() {
    const BODY_BYTES: usize = 1_000_003;
    let server = HttpServer::new(|stream, _| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        write(stream, &(head + &"x".repeat(BODY_BYTES)))
    });
    let report = report_on(&server, 20);
    assert_eq!((report.total.requests, report.total.failed, report.total.connects), (20, 0, 1));
    let received = report.total.bytes_per_second * report.seconds;
    assert!(received > 20.0 * BODY_BYTES as f64, "{received}");
    let short = HttpServer::new(|stream, _| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        write(stream, &(head + &"x".repeat(BODY_BYTES - 1)));
        Next::Close
    });
    assert_eq!(errors(&report_on(&short, 2)), [("truncated", 2)]);
}

#[test]
fn a_body_that_ends_with_the_connection_is_an_answer() {
    let server = HttpServer::new(|stream, _| {
        write(stream, "HTTP/1.0 200 OK\r\n\r\nhello");
        Next::Close
    });
    let report = report_on(&server, 5);
    assert_eq!((report.total.requests, report.total.failed, report.total.connects), (5, 0, 5));
}

#[test]
fn pipelined_requests_that_a_closing_server_left_are_asked_again() {
    let server = HttpServer::new(|stream, request| match request.earlier {
        0..6 => write(stream, HELLO),
        _ => {
            write(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            Next::Close
        }
    });
    let report = ran(&Plan { depth: 4, ..plan(&server, 1, 70) });
    assert_eq!((report.total.requests, report.total.connects), (70, 10));
    assert_eq!(errors(&report), []);
}

#[test]
fn a_starving_server_is_convicted() {
    let server = HttpServer::starving(4);
    let report = ran(&Plan {
        requests: None,
        duration: Some(Duration::from_secs(2)),
        ..plan(&server, 10, 0)
    });
    let fairness = report.total.fairness;
    assert_eq!(fairness.starved, 6, "{report:#?}");
    assert!(fairness.index.unwrap() < 0.5);
    assert!(fairness.pending >= 6);
    let starved: Vec<_> = report.connections.iter().filter(|one| one.starved).collect();
    assert!(starved.iter().all(|one| one.requests == 1 && one.pending == 1));
    assert!(fairness.oldest_pending_ns > report.total.latency.p99_ns);
}

#[test]
fn a_fair_server_is_acquitted() {
    // Nobody is answered for the second time before everybody was for the first.
    let everybody = Barrier::new(8);
    let server = HttpServer::new(move |stream, _| {
        everybody.wait();
        write(stream, HELLO)
    });
    let fairness = ran(&plan(&server, 8, 4000)).total.fairness;
    assert_eq!((fairness.index, fairness.starved), (Some(1.0), 0));
}

#[test]
fn a_connection_that_never_came_to_ask_is_not_starved() {
    let report = ran(&plan(&HttpServer::answering(HELLO), 10, 3));
    assert_eq!((report.total.fairness.index, report.total.fairness.starved), (Some(1.0), 0));
}

#[test]
fn a_stall_counts_for_all_who_would_have_waited() {
    // The eleventh answer takes as long as thirty more requests are due in.
    let server = HttpServer::new(|stream, request| {
        if request.earlier == 10 {
            std::thread::sleep(Duration::from_millis(300));
        }
        write(stream, HELLO)
    });
    let class = Class { kind: ClientKind::Scheduled { rate: 100.0 }, connections: 1 };
    let report = ran(&Plan { classes: vec![class], ..plan(&server, 1, 50) });
    assert_eq!(report.total.requests, 50);
    // The sixth slowest was due 50 ms into the stall, so it waited for 250 ms at least.
    assert!(report.total.latency.p90_ns > 240_000_000, "{report:#?}");
}

#[test]
fn what_was_due_and_never_asked_is_pending() {
    let server = HttpServer::new(|_, _| Next::Hang);
    let class = Class { kind: ClientKind::Scheduled { rate: 100.0 }, connections: 2 };
    let report = ran(&Plan {
        classes: vec![class],
        requests: None,
        duration: Some(Duration::from_millis(300)),
        ..plan(&server, 2, 0)
    });
    assert_eq!((report.total.requests, report.total.fairness.starved), (0, 2));
    assert!(report.total.fairness.pending >= 30, "{report:#?}");
    assert!(report.total.fairness.oldest_pending_ns > 250_000_000);
}

#[test]
fn classes_behave_as_they_are_called() {
    let server = HttpServer::answering(HELLO);
    let class = |kind, connections| Class { kind, connections };
    let report = ran(&Plan {
        classes: vec![
            class(ClientKind::Greedy, 2),
            class(ClientKind::Polite, 1),
            class(ClientKind::Trickle, 1),
            class(ClientKind::Idle, 3),
        ],
        pause: Duration::from_millis(50),
        requests: None,
        duration: Some(Duration::from_millis(300)),
        ..plan(&server, 1, 0)
    });
    let [greedy, polite, trickle, idle] = report.classes.as_slice() else {
        panic!("{report:#?}");
    };
    assert_eq!(
        [greedy.name, polite.name, trickle.name, idle.name],
        ["greedy", "polite", "trickle", "idle"]
    );
    assert!((1..=7).contains(&polite.requests), "a pause of 50 ms in 300 ms: {}", polite.requests);
    assert_eq!((trickle.requests, trickle.connects), (0, 1));
    assert_eq!((idle.requests, idle.connects), (3, 3));
    assert_eq!(report.total.fairness.starved, 0, "{report:#?}");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let report = report_on(&HttpServer::new(|_, _| Next::Hang), 2);
    assert_eq!((report.total.requests, report.total.failed), (0, 2));
    assert_eq!(errors(&report), [("timed_out", 2)]);
}

#[test]
fn a_server_that_closes_without_an_answer_is_counted() {
    let report = report_on(&HttpServer::new(|_, _| Next::Close), 3);
    assert_eq!((report.total.failed, errors(&report)), (3, vec![("unanswered", 3)]));
}

#[test]
fn a_length_that_is_not_kept_to_is_counted() {
    let short = HttpServer::new(|stream, _| {
        write(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
        Next::Close
    });
    let report = report_on(&short, 3);
    assert_eq!((report.total.requests, errors(&report)), (0, vec![("truncated", 3)]));

    let long = HttpServer::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello");
    let report = ran(&Plan { duration: Some(Duration::from_millis(300)), ..plan(&long, 1, 3) });
    assert!(
        report.total.errors["unasked"] + report.total.errors.get("malformed").unwrap_or(&0) >= 2
    );
}

#[test]
fn garbage_is_counted() {
    let report = report_on(&HttpServer::answering("SSH-2.0-OpenSSH_9.2\r\n\r\n"), 3);
    assert_eq!((report.total.requests, errors(&report)), (0, vec![("malformed", 3)]));
}

#[test]
fn a_port_where_nobody_listens_ends_the_run() {
    let server = HttpServer::answering(HELLO);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = ran(&Plan {
        address: Address::Tcp(nobody),
        requests: None,
        duration: Some(Duration::from_secs(60)),
        ..plan(&server, 2, 0)
    });
    assert_eq!(report.total.requests, 0);
    assert!(report.connect_error.unwrap().contains("refused"));
}

#[test]
fn without_keep_alive_each_request_has_a_connection() {
    let server = HttpServer::answering(HELLO);
    let url = Url::parse(&server.url("/")).unwrap();
    let request = Request::new(&url, "GET", &[], b"", false).unwrap();
    let report = ran(&Plan { request, ..plan(&server, 2, 40) });
    assert_eq!((report.total.requests, report.total.connects, report.total.failed), (40, 40, 0));
}

#[test]
fn answers_to_head_have_no_body() {
    let server = HttpServer::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let url = Url::parse(&server.url("/")).unwrap();
    let request = Request::new(&url, "HEAD", &[], b"", true).unwrap();
    let report = ran(&Plan { request, depth: 3, ..plan(&server, 1, 30) });
    assert_eq!((report.total.requests, report.total.connects), (30, 1));
}

/// A server that reads `body_bytes` of each request's body, and then answers or closes.
fn reading(body_bytes: usize, answers: bool) -> (Url, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        let mut request = vec![0; body_bytes];
        while stream.read_exact(&mut request).is_ok() && answers {
            // The head comes too, and is no longer than what is read here.
            let head_bytes =
                request.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0) + 4;
            stream.read_exact(&mut request[..head_bytes]).expect("the rest of the body comes");
            stream.write_all(HELLO.as_bytes()).expect("the client is there");
        }
    });
    (Url::parse(&address.to_string()).expect("it is a URL"), thread)
}

#[test]
fn a_body_that_is_larger_than_the_sockets_buffer_is_sent_in_parts() {
    const BODY_BYTES: usize = 8_000_000;
    let (url, server) = reading(BODY_BYTES, true);
    let body = vec![b'x'; BODY_BYTES];
    let request = Request::new(&url, "POST", &[], &body, true).unwrap();
    let address = url.address(false).unwrap();
    let report = ran(&Plan { address, request, ..plan(&HttpServer::answering(HELLO), 1, 5) });
    assert_eq!((report.total.requests, report.total.failed, report.total.connects), (5, 0, 1));
    server.join().unwrap();
}

#[test]
fn a_connection_that_is_reset_is_counted() {
    let (url, server) = reading(10, false);
    let request = Request::new(&url, "POST", &[], &[b'x'; 1_000_000], true).unwrap();
    let address = url.address(false).unwrap();
    let report = ran(&Plan { address, request, ..plan(&HttpServer::answering(HELLO), 1, 1) });
    assert_eq!((report.total.requests, report.total.failed), (0, 1));
    assert_eq!(errors(&report), [("reset", 1)]);
    server.join().unwrap();
}
