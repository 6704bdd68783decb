use super::*;

/// A connection with a simulated server.
struct Trial {
    http2: Http2,
    requests: Vec<PreparedRequest>,
    came: Vec<u8>,
}

/// A head with status 200.
const OK: &[u8] = b"\x88";
/// A head with status 103.
const EARLY_HINTS: &[u8] = b"\x48\x03103";

impl Trial {
    /// Creates a number of requests with a body, on up to four streams.
    fn new(requests: u64, body: &[u8]) -> Self {
        let (bytes, fields) = (Vec::new(), vec![0x82]);
        let prepared =
            PreparedRequest { bytes, one_bytes: 1, fields, body: body.to_vec(), is_head: false };
        let mut trial =
            Self { http2: Http2::new(4, true), requests: vec![prepared], came: Vec::new() };
        (0..requests).for_each(|at| {
            trial.http2.push(PendingRequest { due_ns: at, url: 0, request: 0, number: 0 });
        });
        trial.http2.restart();
        trial.send(0);
        trial
    }

    /// Collects everything that may be sent now.
    fn send(&mut self, now_ns: u64) {
        self.http2.prepare(&self.requests, now_ns);
        let sent = self.http2.unsent().to_vec();
        self.http2.count_sent(sent.len());
        self.came.extend(sent);
    }

    /// Returns the kind, stream and payload length of each frame sent.
    fn sent(&self) -> Vec<(u8, u32, usize)> {
        let mut bytes = self.came.strip_prefix(PREFACE).expect("it begins with the preface");
        let (mut reader, mut all) = (FrameReader::default(), Vec::new());
        while let Some(head) = reader.read(&mut bytes).expect("they are frames") {
            all.push((head.kind, head.stream, head.length));
        }
        all
    }

    /// Returns the streams of the requests sent.
    fn asked(&self) -> Vec<u32> {
        let heads = self.sent().into_iter().filter(|(kind, ..)| *kind == frames::HEADERS);
        heads.map(|(_, stream, _)| stream).collect()
    }

    /// Lets the server send a frame. Returns a description of the event.
    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<String, FailureKind> {
        let mut bytes = Vec::new();
        frames::write(&mut bytes, kind, flags, stream, payload);
        let mut rest = bytes.as_slice();
        let step = self.http2.read(&mut rest, &self.requests)?;
        assert!(rest.is_empty());
        Ok(match step.event {
            Event::Response(answer) => format!(
                "{} of {}{}",
                answer.status.unwrap_or(0),
                answer.request.due_ns,
                if answer.is_last { ", the last" } else { "" }
            ),
            Event::Lost(request, failure) => format!("{failure:?} of {}", request.due_ns),
            Event::Farewell => "farewell".to_owned(),
            Event::Partial | Event::Subscribed => String::new(),
        })
    }

    fn head(&mut self, stream: u32, fields: &[u8]) -> Result<String, FailureKind> {
        self.frame(frames::HEADERS, frames::END_HEADERS, stream, fields)
    }

    fn whole(&mut self, stream: u32) -> Result<String, FailureKind> {
        self.frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, OK)
    }
}

fn is(text: &str) -> Result<String, FailureKind> {
    Ok(text.to_owned())
}

#[test]
fn responses_come_in_any_order_and_with_any_frames() {
    let mut trial = Trial::new(3, b"");
    assert_eq!(trial.asked(), [1, 3, 5]);
    assert_eq!(trial.head(3, EARLY_HINTS), is(""));
    assert_eq!(trial.head(3, OK), is(""));
    assert_eq!(trial.frame(frames::DATA, 0, 3, b"some"), is(""));
    assert_eq!(trial.frame(frames::DATA, frames::END_STREAM, 3, b""), is("200 of 1"));
    // A head in two frames with padding and priority, and trailers after a padded body.
    let padded = b"\x02\0\0\0\0\x07\x88\0\0";
    let flags = frames::PADDED | frames::PRIORITY;
    assert_eq!(trial.frame(frames::HEADERS, flags, 1, padded), is(""));
    let length = b"\x5c\x014";
    assert_eq!(trial.frame(frames::CONTINUATION, frames::END_HEADERS, 1, length), is(""));
    assert_eq!(trial.frame(frames::DATA, frames::PADDED, 1, b"\x03some\0\0\0"), is(""));
    let flags = frames::END_HEADERS | frames::END_STREAM;
    assert_eq!(trial.frame(frames::HEADERS, flags, 1, b"\0\x01a\x01b"), is("200 of 0"));
    assert_eq!(trial.whole(5), is("200 of 2"));
    assert_eq!((trial.http2.len(), trial.http2.served()), (0, &[1, 1, 1, 0][..]));
}

#[test]
fn a_body_of_another_length_than_its_head_announced_is_a_failure() {
    for (said, expected) in [(b"\x5c\x013", "Unasked of 0"), (b"\x5c\x015", "Truncated of 0")] {
        let mut trial = Trial::new(1, b"");
        assert_eq!(trial.head(1, &[OK, said].concat()), is(""));
        assert_eq!(trial.frame(frames::DATA, frames::END_STREAM, 1, b"four"), is(expected));
        assert_eq!(trial.http2.served(), [0; 4]);
    }
}

#[test]
fn frames_that_break_the_protocol_are_malformed() {
    let broken: [(u8, u8, u32, &[u8]); 9] = [
        (frames::HEADERS, frames::END_HEADERS, 9, OK),
        (frames::HEADERS, frames::END_HEADERS, 2, OK),
        (frames::HEADERS, frames::END_HEADERS, 1, b"\0\x01a\x01b"),
        (frames::HEADERS, frames::END_HEADERS, 1, b"\xbe"),
        (frames::HEADERS, frames::PADDED | frames::END_HEADERS, 1, b"\x09\x88"),
        (frames::CONTINUATION, frames::END_HEADERS, 1, OK),
        (frames::DATA, frames::END_STREAM, 1, b"before its head"),
        (frames::PUSH_PROMISE, frames::END_HEADERS, 1, b"\0\0\0\x02\x82"),
        (frames::SETTINGS, 0, 0, b"\0\x03\0\0\0"),
    ];
    for (kind, flags, stream, payload) in broken {
        let mut trial = Trial::new(1, b"");
        assert_eq!(
            trial.frame(kind, flags, stream, payload),
            Err(FailureKind::Malformed),
            "{kind}"
        );
    }
    let mut trial = Trial::new(1, b"");
    trial.frame(frames::HEADERS, 0, 1, OK).expect("the block goes on");
    assert_eq!(trial.frame(frames::PING, 0, 0, &[0; 8]), Err(FailureKind::Malformed));
}

#[test]
fn no_more_streams_are_open_than_the_server_allows() {
    let mut trial = Trial::new(0, b"");
    trial.frame(frames::SETTINGS, 0, 0, b"\0\x03\0\0\0\x02").expect("it is a setting");
    (0..4).for_each(|at| {
        trial.http2.push(PendingRequest { due_ns: at, url: 0, request: 0, number: 0 })
    });
    trial.send(0);
    assert_eq!((trial.asked(), trial.http2.len()), (vec![1, 3], 4));
    trial.whole(1).expect("it is a response");
    trial.send(0);
    assert_eq!(trial.asked(), [1, 3, 5]);
    let acknowledged =
        |(kind, _, length): &(u8, u32, usize)| *kind == frames::SETTINGS && *length == 0;
    assert_eq!(trial.sent().iter().filter(|frame| acknowledged(frame)).count(), 1);
}

#[test]
fn a_refused_stream_is_asked_again_and_a_reset_is_lost() {
    let mut trial = Trial::new(2, b"");
    assert_eq!(trial.frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, 7]), is(""));
    assert_eq!(trial.frame(frames::RST_STREAM, 0, 3, &[0, 0, 0, 2]), is("Reset of 1"));
    trial.send(0);
    assert_eq!(trial.asked(), [1, 3, 5]);
    assert_eq!(trial.whole(3), is(""), "it may still speak of a stream that is over");
    assert_eq!(trial.whole(5), is("200 of 0"));
}

#[test]
fn a_server_that_leaves_is_asked_again_for_the_rest() {
    let mut trial = Trial::new(3, b"");
    assert_eq!(trial.frame(frames::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]), is(""));
    trial.http2.push(PendingRequest { due_ns: 9, url: 0, request: 0, number: 0 });
    trial.send(0);
    assert_eq!(trial.asked(), [1, 3, 5], "nothing new is asked");
    assert_eq!(trial.whole(1), is("200 of 0"));
    assert_eq!(trial.whole(3), is("200 of 1, the last"));
    trial.http2.restart();
    trial.came.clear();
    trial.send(0);
    assert_eq!(trial.asked(), [1, 3]);
    assert_eq!((trial.whole(1), trial.whole(3)), (is("200 of 2"), is("200 of 9")));
    let error = trial.frame(frames::GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 1]);
    assert_eq!(error, Err(FailureKind::Reset));
}

#[test]
fn a_close_is_a_failure_if_a_request_is_pending() {
    let mut trial = Trial::new(1, b"");
    assert!(matches!(trial.http2.close(), Err(FailureKind::Unanswered)));
    trial.head(1, OK).expect("it is a head");
    assert!(matches!(trial.http2.close(), Err(FailureKind::Truncated)));
    trial.frame(frames::DATA, frames::END_STREAM, 1, b"").expect("it ends");
    assert!(matches!(trial.http2.close(), Ok(Event::Farewell)));
}

#[test]
fn a_body_waits_for_room_of_the_stream_and_of_the_connection() {
    let mut trial = Trial::new(2, &[7; 50_000]);
    let data = |trial: &Trial| -> Vec<(u32, usize)> {
        let data = trial.sent().into_iter().filter(|(kind, ..)| *kind == frames::DATA);
        data.map(|(_, stream, length)| (stream, length)).collect()
    };
    let first = [(1, 16_384), (1, 16_384), (1, 16_384), (1, 848), (3, 15_535)];
    assert_eq!(data(&trial), first);
    trial.frame(frames::WINDOW_UPDATE, 0, 0, &[0, 0, 0x10, 0]).expect("it is room");
    trial.send(0);
    assert_eq!(data(&trial)[5..], [(3, 4_096)]);
    // The setting removes all room from the stream.
    trial.frame(frames::SETTINGS, 0, 0, b"\0\x04\0\0\0\0").expect("it is a setting");
    trial.frame(frames::WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]).expect("it is room");
    trial.send(0);
    assert_eq!(data(&trial).len(), 6);
    trial.frame(frames::WINDOW_UPDATE, 0, 3, &[0, 1, 0, 0]).expect("it is room");
    trial.send(0);
    assert_eq!(
        data(&trial).iter().filter(|one| one.0 == 3).map(|one| one.1).sum::<usize>(),
        50_000
    );
}

#[test]
fn a_stream_that_waits_too_long_is_given_up_alone() {
    let mut trial = Trial::new(1, b"");
    trial.http2.push(PendingRequest { due_ns: 5, url: 0, request: 0, number: 0 });
    trial.send(100);
    assert_eq!(trial.http2.expire(99, 100), None);
    assert_eq!(trial.http2.expire(100, 100).map(|request| request.due_ns), Some(0));
    assert_eq!(trial.http2.expire(100, 100), None);
    trial.send(100);
    assert!(trial.sent().contains(&(frames::RST_STREAM, 1, 4)));
    assert_eq!(trial.whole(3), is("200 of 5"));
}
