//! Whole runs against a server with known behaviour. Each run ends and reports what happened.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thruway_load::{
    Address, Arrivals, Class, ClientKind, Plan, Protocol, Report, Request, Url, WeightedRequest,
    run,
};
use thruway_testing::free_port;
use thruway_testing::http_server::{HELLO, HttpServer, Next, write};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The interval of slow clients: each of these classes asks a hundred times a second.
const EVERY_10_MS: ClientKind = ClientKind::Scheduled { rate: 100.0, arrivals: Arrivals::Even };

/// Returns a plan of `connections` greedy clients of `server` that end after `requests`.
fn plan(server: &HttpServer, connections: u32, requests: u64) -> Plan {
    let url = Url::parse(&server.url("/")).expect("it is a URL");
    Plan {
        address: url.address(false).expect("it is loopback"),
        tls: None,
        protocol: Protocol::Http1,
        urls: only(Request::new(&url, "GET", &[], None, true).expect("it is a request")),
        classes: vec![Class::new(ClientKind::Greedy, connections)],
        duration: None,
        requests: Some(requests),
        timeout: TIMEOUT,
        warm_up: Duration::ZERO,
        ramp: Duration::ZERO,
        threads: 1,
    }
}

/// Returns a single URL.
fn only(request: Request) -> Vec<WeightedRequest> {
    vec![WeightedRequest { request, others: Vec::new(), weight: 1 }]
}

/// Sets the number of requests that each greedy client keeps pending.
fn deep(depth: u32, plan: Plan) -> Plan {
    let classes = plan.classes.into_iter().map(|class| Class { depth, ..class }).collect();
    Plan { classes, ..plan }
}

fn ran(plan: &Plan) -> Report {
    run(plan, None, &mut |_| {}).expect("it runs")
}

/// Returns the report on `requests` requests over one connection.
fn report_on(server: &HttpServer, requests: u64) -> Report {
    ran(&plan(server, 1, requests))
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
    for response in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let report = report_on(&HttpServer::answering(response), 20);
        let total = &report.total;
        assert_eq!((total.requests, total.failed, total.connects), (20, 0, 1), "{response:?}");
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
    let report = ran(&deep(4, plan(&server, 1, 70)));
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
    // Each client gets its first response before any gets its second one.
    let all = Barrier::new(8);
    let server = HttpServer::new(move |stream, _| {
        all.wait();
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
fn a_stall_counts_for_all_requests_that_would_have_waited() {
    // The eleventh response takes as long as thirty more requests need to become due.
    let server = HttpServer::new(|stream, request| {
        if request.earlier == 10 {
            std::thread::sleep(Duration::from_millis(300));
        }
        write(stream, HELLO)
    });
    let class = Class::new(EVERY_10_MS, 1);
    let report = ran(&Plan { classes: vec![class], ..plan(&server, 1, 50) });
    assert_eq!(report.total.requests, 50);
    // The sixth slowest was due 50 ms into the stall, so it waited for at least 250 ms.
    assert!(report.total.latency.p90_ns > 240_000_000, "{report:#?}");
}

#[test]
fn requests_that_were_due_and_never_sent_are_pending() {
    let server = HttpServer::new(|_, _| Next::Hang);
    let class = Class::new(EVERY_10_MS, 2);
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
    let pause = Duration::from_millis(50);
    let gap = Duration::from_millis(100);
    let report = ran(&Plan {
        classes: vec![
            Class::new(ClientKind::Greedy, 2),
            Class::new(ClientKind::Polite { pause }, 1),
            Class::new(ClientKind::Trickle { gap }, 1),
            Class::new(ClientKind::Idle, 3),
        ],
        requests: None,
        duration: Some(Duration::from_secs(2)),
        ..plan(&server, 1, 0)
    });
    let [greedy, polite, trickle, idle] = report.classes.as_slice() else {
        panic!("{report:#?}");
    };
    assert_eq!(
        [greedy.name, polite.name, trickle.name, idle.name],
        ["greedy", "polite", "trickle", "idle"]
    );
    assert!((1..=41).contains(&polite.requests), "a pause of 50 ms in 2 s: {}", polite.requests);
    assert_eq!((trickle.requests, trickle.connects), (0, 1));
    assert_eq!((idle.requests, idle.connects), (3, 3));
    assert_eq!(report.total.fairness.starved, 0, "{report:#?}");
}

/// Returns `plan` with these paths, each with its weight.
fn asking(server: &HttpServer, paths: &[(&str, u32)], plan: Plan) -> Plan {
    let weighted = |(path, weight): &(&str, u32)| {
        let url = Url::parse(&server.url(path)).expect("it is a URL");
        let request = Request::new(&url, "GET", &[], None, true).expect("it is a request");
        WeightedRequest { request, others: Vec::new(), weight: *weight }
    };
    Plan { urls: paths.iter().map(weighted).collect(), ..plan }
}

/// Returns requests and losses by URL.
fn by_url(report: &Report) -> Vec<(&str, u64, u64)> {
    report.urls.iter().map(|url| (&*url.url, url.requests, url.failed)).collect()
}

#[test]
fn each_url_is_asked_as_often_as_its_weight_says() {
    static LONG: AtomicU64 = AtomicU64::new(0);
    let server = HttpServer::new(|stream, request| {
        LONG.fetch_add(u64::from(request.path == "/long"), Ordering::Relaxed);
        write(stream, HELLO)
    });
    let paths = [("/short?a", 3), ("/long", 1)];
    let report = ran(&asking(&server, &paths, plan(&server, 1, 400)));
    assert_eq!(by_url(&report), [("/short?a", 300, 0), ("/long", 100, 0)]);
    assert_eq!(LONG.load(Ordering::Relaxed), 100);
    assert_eq!((report.total.requests, report.total.connects), (400, 1));
    assert_eq!(report.urls[1].index, Some(1.0));
    // The same with several pending requests of different lengths.
    let deep = deep(5, asking(&server, &paths, plan(&server, 1, 400)));
    assert_eq!(by_url(&ran(&deep)), [("/short?a", 300, 0), ("/long", 100, 0)]);
}

#[test]
fn a_class_may_ask_a_url_and_a_rate_of_its_own() {
    let server = HttpServer::answering(HELLO);
    let class = |rate, url| Class {
        url: Some(url),
        ..Class::new(ClientKind::Scheduled { rate, arrivals: Arrivals::Even }, 3)
    };
    let classes = vec![class(180.0, 0), class(20.0, 1)];
    let paths = [("/short", 1), ("/long", 1)];
    let report = ran(&Plan { classes, ..asking(&server, &paths, plan(&server, 1, 100)) });
    let classes: Vec<_> = report.classes.iter().map(|class| (class.name, class.requests)).collect();
    let [("scheduled", short), ("scheduled", long)] = classes[..] else { panic!("{classes:?}") };
    assert_eq!(by_url(&report), [("/short", short, 0), ("/long", long, 0)]);
    assert_eq!(short + long, 100);
    assert!((5..=20).contains(&long), "a tenth of all are due: {long}");
    assert_eq!(report.classes[1].url.as_deref(), Some("/long"));
    assert_eq!(report.connections[5].url.as_deref(), Some("/long"));
}

#[test]
fn requests_lost_count_for_their_url() {
    let server = HttpServer::new(|stream, request| match &*request.path {
        "/bad" => Next::Close,
        _ => write(stream, HELLO),
    });
    let class = |url| Class { url: Some(url), ..Class::new(ClientKind::Greedy, 1) };
    let paths = [("/good", 1), ("/bad", 1)];
    let asking = asking(&server, &paths, plan(&server, 1, 60));
    let report = ran(&Plan { classes: vec![class(0), class(1)], ..asking });
    let [("/good", good, 0), ("/bad", 0, bad)] = by_url(&report)[..] else {
        panic!("{report:#?}");
    };
    assert_eq!((good + bad, report.total.failed), (60, bad));
    assert_eq!(report.total.errors["unanswered"], bad);
}

#[test]
fn random_arrivals_are_all_asked() {
    let kind = ClientKind::Scheduled { rate: 1000.0, arrivals: Arrivals::Poisson };
    let server = HttpServer::answering(HELLO);
    let report = ran(&Plan { classes: vec![Class::new(kind, 4)], ..plan(&server, 4, 300) });
    assert_eq!((report.total.requests, report.total.failed), (300, 0));
    // After a pause of the machine all are due, and the kernel decides whose server thread runs.
    assert!(report.connections.iter().all(|one| one.requests > 0), "{report:#?}");
}

#[test]
fn a_pipelined_client_has_several_requests_pending() {
    // Nothing is answered before four requests have arrived.
    let server = HttpServer::new(|stream, request| match request.earlier % 4 {
        3 => write(stream, &HELLO.repeat(4)),
        _ => Next::Read,
    });
    let pipelined = Class { depth: 4, ..Class::new(ClientKind::Pipelined, 2) };
    let report = ran(&Plan { classes: vec![pipelined], ..plan(&server, 2, 80) });
    assert_eq!((report.total.requests, report.total.failed), (80, 0));
    assert_eq!((report.classes[0].name, report.total.connects), ("pipelined", 2));
    // A polite client gets nothing there, whatever the depth is.
    let polite = Class { depth: 4, ..Class::new(ClientKind::Polite { pause: Duration::ZERO }, 1) };
    let waiting = Plan { timeout: Duration::from_millis(200), ..plan(&server, 1, 1) };
    assert_eq!(ran(&Plan { classes: vec![polite], ..waiting }).total.requests, 0);
}

#[test]
fn a_client_that_reads_slowly_is_not_given_up_while_it_reads() {
    const GAP: Duration = Duration::from_millis(100);
    const BYTES: usize = 1000;
    let server = HttpServer::new(|stream, _| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 35000\r\n\r\n".to_owned();
        write(stream, &(head + &"x".repeat(35_000)))
    });
    let slow = Class::new(ClientKind::SlowRead { gap: GAP, bytes: BYTES }, 1);
    let timeout = Duration::from_secs(3);
    let report = ran(&Plan { classes: vec![slow], timeout, ..plan(&server, 1, 1) });
    assert_eq!((report.total.requests, report.total.failed), (1, 0), "{report:#?}");
    // A read for each thousand bytes, with an interval between two of them.
    assert!(report.seconds >= 35.0 * GAP.as_secs_f64(), "{report:#?}");
    assert!(report.total.fairness.index.is_none(), "it has no claim to a share");
}

#[test]
fn a_server_that_closes_on_a_slow_reader_is_counted() {
    let server = HttpServer::new(|stream, _| {
        write(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
        Next::Close
    });
    let kind = ClientKind::SlowRead { gap: Duration::from_millis(1), bytes: 10 };
    let report = ran(&Plan { classes: vec![Class::new(kind, 1)], ..plan(&server, 1, 3) });
    assert_eq!((report.total.requests, errors(&report)), (0, vec![("truncated", 3)]));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let server = HttpServer::new(|_, _| Next::Hang);
    let report = ran(&Plan { timeout: Duration::from_millis(200), ..plan(&server, 1, 2) });
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
    let report = report_on(&long, 3);
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
fn a_port_without_a_listener_ends_the_run() {
    let server = HttpServer::answering(HELLO);
    let closed = (Ipv4Addr::LOCALHOST, free_port()).into();
    let report = ran(&Plan {
        address: Address::Tcp(closed),
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
    let request = Request::new(&url, "GET", &[], None, false).unwrap();
    let report = ran(&Plan { urls: only(request), ..plan(&server, 2, 40) });
    assert_eq!((report.total.requests, report.total.connects, report.total.failed), (40, 40, 0));
}

#[test]
fn responses_to_head_have_no_body() {
    let server = HttpServer::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    let url = Url::parse(&server.url("/")).unwrap();
    let request = Request::new(&url, "HEAD", &[], None, true).unwrap();
    let report = ran(&deep(3, Plan { urls: only(request), ..plan(&server, 1, 30) }));
    assert_eq!((report.total.requests, report.total.connects), (30, 1));
}

/// A server that reads `body_bytes` of each request's body and then answers or closes.
fn reading(body_bytes: usize, answers: bool) -> (Url, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client comes");
        let mut request = vec![0; body_bytes];
        while stream.read_exact(&mut request).is_ok() && answers {
            // Also reads the head, which fits into the buffer.
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
    let request = Request::new(&url, "POST", &[], Some(&body), true).unwrap();
    let address = url.address(false).unwrap();
    let report =
        ran(&Plan { address, urls: only(request), ..plan(&HttpServer::answering(HELLO), 1, 5) });
    assert_eq!((report.total.requests, report.total.failed, report.total.connects), (5, 0, 1));
    server.join().unwrap();
}

#[test]
fn a_connection_that_is_reset_is_counted() {
    let (url, server) = reading(10, false);
    let request = Request::new(&url, "POST", &[], Some(&[b'x'; 1_000_000]), true).unwrap();
    let address = url.address(false).unwrap();
    let report =
        ran(&Plan { address, urls: only(request), ..plan(&HttpServer::answering(HELLO), 1, 1) });
    assert_eq!((report.total.requests, report.total.failed), (0, 1));
    assert_eq!(errors(&report), [("reset", 1)]);
    server.join().unwrap();
}

#[test]
fn threads_share_the_clients_and_the_requests() {
    let server = HttpServer::answering(HELLO);
    let report = ran(&Plan { threads: 3, ..plan(&server, 7, 1001) });
    assert_eq!((report.total.requests, report.total.failed), (1001, 0));
    // A thread that starts late may find nothing left to ask.
    assert!(report.total.connects <= 7, "{}", report.total.connects);
    assert_eq!(report.connections.len(), 7);
    assert_eq!(report.timeline.iter().map(|row| row.requests).sum::<u64>(), 1001);
    // No thread is without a client.
    let report = ran(&Plan { threads: 64, ..plan(&server, 2, 10) });
    assert_eq!((report.total.requests, report.connections.len()), (10, 2));
}

#[test]
fn classes_keep_their_order_over_all_threads() {
    let server = HttpServer::answering(HELLO);
    let mut plan = Plan { threads: 3, ..plan(&server, 1, 100) };
    plan.classes = vec![Class::new(ClientKind::Greedy, 4), Class::new(ClientKind::Idle, 5)];
    let report = ran(&plan);
    let classes: Vec<_> = report.connections.iter().map(|one| one.class).collect();
    assert_eq!(classes, [["greedy"; 4].as_slice(), &["idle"; 5]].concat());
}

#[test]
fn a_warm_up_does_not_count() {
    let served = std::sync::Arc::new(AtomicU64::new(0));
    let count = std::sync::Arc::clone(&served);
    let server = HttpServer::new(move |stream, _| {
        // The first requests are errors, as of an application that still starts.
        let is_early = count.fetch_add(1, Ordering::Relaxed) < 3;
        write(stream, if is_early { "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" } else { HELLO })
    });
    let warm_up = Duration::from_secs(1);
    let report = ran(&Plan { warm_up, ..plan(&server, 2, 50) });
    assert_eq!(report.total.statuses, [(200, 50)].into());
    assert!(served.load(Ordering::Relaxed) >= 53 && report.total.connects == 2);
}

#[test]
fn clients_of_a_ramp_begin_one_after_another() {
    let (first, last) = (std::sync::Arc::new(AtomicU64::new(0)), AtomicU64::new(u64::MAX));
    let before = std::sync::Arc::clone(&first);
    let (stop, stopper) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let server = HttpServer::new(move |stream, request| {
        match request.connection {
            0 => before.fetch_add(1, Ordering::SeqCst),
            // The first client has asked many times before the last one asks at all.
            _ => last.fetch_min(before.load(Ordering::SeqCst), Ordering::SeqCst),
        };
        let body = last.load(Ordering::SeqCst);
        let text = if body == u64::MAX || body > 1 { HELLO } else { "HTTP/1.1 500 No\r\n\r\n" };
        if request.connection == 1 && request.earlier == 10 {
            let _ = (&stopper).write_all(b"!");
        }
        write(stream, text)
    });
    let ramp = Duration::from_secs(2);
    let plan = Plan { ramp, requests: None, ..plan(&server, 2, 1) };
    let report = run(&plan, Some(stop.as_fd()), &mut |_| {}).expect("it runs");
    assert_eq!(report.total.statuses.keys().copied().collect::<Vec<_>>(), [200]);
    assert!(first.load(Ordering::SeqCst) > 1 && report.connections[1].requests > 0);
}

/// A kept connection that the server closes is not an error: the server has not read a request that its kernel
/// refuses.
#[test]
fn requests_on_a_connection_that_was_closed_meanwhile_are_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).and_then(|_| stream.write_all(HELLO.as_bytes()));
            // The next request may have come already; then this resets the connection.
        }
    });
    let url = Url::parse(&format!("http://{address}/")).expect("it is a URL");
    let request = Request::new(&url, "GET", &[], None, true).expect("it is a request");
    let plan = plan(&HttpServer::answering(HELLO), 3, 200);
    let report = ran(&Plan { address: Address::Tcp(address), urls: only(request), ..plan });
    assert_eq!((report.total.requests, report.total.failed), (200, 0), "{:?}", report.total.errors);
    assert!(report.total.errors.is_empty() && report.total.connects >= 200);
}

/// A server that reads a request and then closes has lost it.
#[test]
fn a_request_that_was_read_and_not_answered_is_lost() {
    let server = HttpServer::new(|stream, request| match request.earlier {
        0 => write(stream, HELLO),
        _ => Next::Close,
    });
    let report = report_on(&server, 20);
    assert_eq!((report.total.requests, report.total.failed), (10, 10));
    assert_eq!((errors(&report), report.total.retried), (vec![("unanswered", 10)], 0));
}
