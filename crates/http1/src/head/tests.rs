use super::*;
use crate::request::Request;
use proptest::prelude::*;
use thruway_testing::table::{pairs, unescape};

/// The row of `tests/vectors/request_head.tsv` that `input` should have.
fn outcome(head: &mut Head, parsed: Result<bool, ParseError>, input: &[u8]) -> String {
    match parsed {
        Ok(true) => describe(head.request(input)),
        Ok(false) => "more".to_owned(),
        Err(parse_error) => format!("{parse_error:?} {}", parse_error.status()),
    }
}

fn describe(request: Request<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let query = request.query().map_or("-".to_owned(), |query| format!("?{}", text(query)));
    let framing = match request.framing() {
        RequestFraming::None => "none".to_owned(),
        RequestFraming::Length(length) => length.to_string(),
        RequestFraming::Chunked => "chunked".to_owned(),
    };
    format!(
        "ok {} {} {query} {} {framing} {}{}",
        text(request.method()),
        text(request.path()),
        request.host().map_or("-".to_owned(), text),
        if request.is_persistent() { "keep" } else { "close" },
        if request.expects_continue() { " continue" } else { "" },
    )
}

fn vectors() -> Vec<(&'static str, String)> {
    let rows = pairs(include_str!("../../tests/vectors/request_head.tsv"));
    assert!(rows.len() > 100, "the vectors are there");
    let expand =
        |text: &str| String::from_utf8(unescape(text)).expect("the expected text is UTF-8");
    rows.into_iter().map(|(bytes, expected)| (bytes, expand(expected))).collect()
}

#[test]
fn every_vector_is_parsed_or_refused_as_it_says() {
    for (bytes, expected) in vectors() {
        let input = unescape(bytes);
        let mut head = Head::new();
        let parsed = head.parse(&input, 0, &Limits::default());
        assert_eq!(outcome(&mut head, parsed, &input), expected, "{bytes}");
    }
}

#[test]
fn every_vector_ends_the_same_when_it_arrives_a_byte_at_a_time() {
    for (bytes, expected) in vectors().into_iter().filter(|(bytes, _)| !bytes.contains("{")) {
        let input = unescape(bytes);
        let mut head = Head::new();
        let mut parsed = Ok(false);
        for end in 1..=input.len() {
            parsed = head.parse(&input[..end], end - 1, &Limits::default());
            if parsed != Ok(false) {
                break;
            }
        }
        let refused = expected.split(' ').next_back().is_some_and(|last| last.len() == 3);
        let got = outcome(&mut head, parsed, &input);
        // A broken rule may show itself only once the whole head is there, and then by another rule.
        assert!(
            got == expected || refused && parsed.is_err() || parsed == Ok(false),
            "{bytes}: {got}"
        );
    }
}

#[test]
fn more_fields_than_allowed_are_refused() {
    let limits = Limits { fields_max: 3, ..Limits::default() };
    let mut head = Head::new();
    let three = b"GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\n\r\n";
    assert_eq!(head.parse(three, 0, &limits), Ok(true));
    let four = b"GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\nD: d\r\n\r\n";
    assert_eq!(head.parse(four, 0, &limits), Err(ParseError::TooManyFields));
}

#[test]
fn fields_come_in_order_and_known_ones_by_name() {
    let bytes = b"GET / HTTP/1.1\r\nhOST: a\r\nB: 1\r\nb:2\r\nACCEPT-encoding: gzip\r\n\r\nrest";
    let mut head = Head::new();
    assert_eq!(head.parse(bytes, 0, &Limits::default()), Ok(true));
    let request = head.request(bytes);
    let fields: Vec<_> = request.fields().collect();
    let expected: [(&[u8], &[u8]); 4] =
        [(b"hOST", b"a"), (b"B", b"1"), (b"b", b"2"), (b"ACCEPT-encoding", b"gzip")];
    assert_eq!(fields, expected);
    assert_eq!(request.known(KnownField::AcceptEncoding), Some(&b"gzip"[..]));
    assert_eq!(request.known(KnownField::Range), None);
    assert_eq!(request.field_lines(), &bytes[16..bytes.len() - 4]);
    assert_eq!(head.length_bytes(), bytes.len() - 4);
}

#[test]
fn a_head_is_reused_without_remembering_the_last_one() {
    let mut head = Head::new();
    let first = b"POST http://b/?q HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nRange: x\r\n\r\n";
    assert_eq!(head.parse(first, 0, &Limits::default()), Ok(true));
    let second = b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(head.parse(second, 0, &Limits::default()), Ok(true));
    assert_eq!(describe(head.request(second)), "ok GET / - - none close");
    assert_eq!(head.request(second).known(KnownField::Range), None);
    assert_eq!(head.request(second).field_lines(), b"");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..300), seen in 0_usize..300) {
        let mut head = Head::new();
        let _ = head.parse(&input, seen, &Limits::default());
    }

    #[test]
    fn a_mutated_request_is_refused_or_well_formed(
        at in 0_usize..70, byte in any::<u8>(), cut in 0_usize..70,
    ) {
        let mut input = b"POST /a?b HTTP/1.1\r\nHost: a.example\r\nContent-Length: 12\r\nX: y\r\n\r\n".to_vec();
        let at = at % input.len();
        input[at] = byte;
        input.remove(cut % input.len());
        let mut head = Head::new();
        if head.parse(&input, 0, &Limits::default()) == Ok(true) {
            let request = head.request(&input);
            prop_assert!(input[..head.length_bytes()].ends_with(b"\r\n\r\n"));
            prop_assert!(!request.path().contains(&b' '));
            for (name, value) in request.fields() {
                prop_assert!(!name.is_empty() && name.iter().all(|byte| token::is_token(*byte)));
                prop_assert!(value.iter().all(|byte| token::is_value(*byte)));
            }
        }
    }
}
