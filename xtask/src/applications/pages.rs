//! Compares responses of Puma and of Thruway. The servers start with the same state and get the same requests.

use super::application::Application;
use super::client::{Field, Request, Response};
use super::crawl;
use super::mask::{self, Likeness};
use super::report::Report;
use super::running::Server;

/// The options for pages.
pub(super) struct Wish<'a> {
    pub(super) pages: usize,
    pub(super) paths: &'a [String],
    pub(super) headers: &'a [Field],
}

/// Fields that differ between servers, or between any two responses.
const OWN_FIELDS: [&str; 6] =
    ["date", "connection", "keep-alive", "server", "x-request-id", "x-runtime"];

/// A response or an error for each request.
type Responses = Vec<Result<Response, String>>;

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// The responses differ, for a reason that is right.
    Explained(&'static str),
    /// Puma's two responses differ, too.
    Unstable,
    Differs(String),
}

/// Compares the application's pages under Puma, in threads and in fibers.
pub(super) fn compare(
    application: &Application,
    wish: &Wish<'_>,
    report: &mut Report,
) -> Result<(), String> {
    let what = format!("pages, {}", application.environment);
    if !application.has_gem("puma") {
        report.row(&what, Server::Puma.name(), "not compared".to_owned());
        report.note(
            "Puma is not in Gemfile.lock: add `gem \"puma\"` to the Gemfile, to compare pages"
                .to_owned(),
        );
        return Ok(());
    }
    let mut headers = wish.headers.to_vec();
    let (requests, first) = reference(application, wish, &mut headers, report)?;
    let second = responses(Server::Puma, application, &requests, &headers)?;
    let pages = first.iter().flatten().filter(|response| response.status == 200).count();
    let counts = format!("{} requests, {pages} of them with a 200", requests.len());
    report.row(&what, Server::Puma.name(), counts);
    for server in [Server::Threads, Server::Fibers] {
        let ours = responses(server, application, &requests, &headers);
        if let Some(refusal) = ours.as_ref().err().and_then(|error| server.refusal(error)) {
            report.row(&what, server.name(), format!("refused: {refusal}"));
            continue;
        }
        let ours = ours?;
        let mut tally = Tally::default();
        for (place, request) in requests.iter().enumerate() {
            let verdict =
                judge(&first[place], &second[place], &ours[place], request.method == "HEAD");
            tally.add(verdict, &format!("{what}, {}: {}", server.name(), request.title()), report);
        }
        report.row(&what, server.name(), tally.text());
    }
    Ok(())
}

/// The number of verdicts of each kind.
#[derive(Default)]
struct Tally {
    same: usize,
    explained: usize,
    unstable: usize,
    differing: usize,
}

impl Tally {
    fn add(&mut self, verdict: Verdict, title: &str, report: &mut Report) {
        match verdict {
            Verdict::Same => self.same += 1,
            Verdict::Explained(why) => {
                self.explained += 1;
                report.note(format!("pages: {why}"));
            }
            Verdict::Unstable => {
                self.unstable += 1;
                report.note(format!("{title}: differs from run to run under Puma, too"));
            }
            Verdict::Differs(how) => {
                self.differing += 1;
                report.difference(format!("{title}: {how}"));
            }
        }
    }

    fn text(&self) -> String {
        let counts = [
            (self.same, "the same"),
            (self.explained, "explained"),
            (self.unstable, "not comparable"),
            (self.differing, "**differ**"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        counts.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

/// Collects the requests, and Puma's first responses. If the application redirects to HTTPS, requests look like those
/// of a proxy that ended TLS.
fn reference(
    application: &Application,
    wish: &Wish<'_>,
    headers: &mut Vec<Field>,
    report: &mut Report,
) -> Result<(Vec<Request>, Responses), String> {
    let requests = {
        let server = Server::Puma.start(application)?;
        let start = wish.paths.first().map_or("/", String::as_str);
        let response = Request::get(start).ask(server.port, headers)?;
        let wants_tls = (300..400).contains(&response.status)
            && response.field("location").is_some_and(|link| link.starts_with("https://localhost"));
        if wants_tls {
            headers.push(("X-Forwarded-Proto".to_owned(), "https".to_owned()));
            report.note(
                "pages: requests have `X-Forwarded-Proto: https`, since the application wants TLS"
                    .to_owned(),
            );
        }
        crawl::requests(server.port, wish.paths, wish.pages, headers)?
    };
    let first = responses(Server::Puma, application, &requests, headers)?;
    Ok((requests, first))
}

fn responses(
    server: Server,
    application: &Application,
    requests: &[Request],
    headers: &[Field],
) -> Result<Responses, String> {
    let running = server.start(application)?;
    Ok(requests.iter().map(|request| request.ask(running.port, headers)).collect())
}

/// Compares a response of ours with those of two runs of Puma.
fn judge(
    first: &Result<Response, String>,
    second: &Result<Response, String>,
    ours: &Result<Response, String>,
    is_head: bool,
) -> Verdict {
    let (first, second, ours) = match (first, second, ours) {
        (Ok(first), Ok(second), Ok(ours)) => (first, second, ours),
        (Err(_), Err(_), Err(_)) => return Verdict::Same,
        (Ok(_), Ok(_), Err(error)) => return Verdict::Differs(error.clone()),
        (Err(error), _, _) | (_, Err(error), _) => {
            return Verdict::Differs(format!("Puma: {error}"));
        }
    };
    if first.status != second.status {
        return Verdict::Unstable;
    }
    if first.status != ours.status {
        return Verdict::Differs(format!("{}, Puma {}", ours.status, first.status));
    }
    match mask::compare([&first.body, &second.body], &ours.body) {
        Likeness::Same => {}
        Likeness::Unknown => return Verdict::Unstable,
        Likeness::Differs(theirs, own) => {
            return Verdict::Differs(format!("body has {own:?}, Puma's {theirs:?}"));
        }
    }
    fields(first, second, ours, is_head)
}

/// Compares header fields, those of one name in their order.
fn fields(first: &Response, second: &Response, ours: &Response, is_head: bool) -> Verdict {
    let mut names: Vec<_> =
        first.fields.iter().chain(&ours.fields).map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut explained = None;
    for name in names {
        if OWN_FIELDS.contains(&name) {
            continue;
        }
        let values = |response: &Response| {
            let all = response.fields.iter().filter(|(key, _)| key == name);
            all.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("\n")
        };
        let (theirs, again, own) = (values(first), values(second), values(ours));
        match mask::compare([theirs.as_bytes(), again.as_bytes()], own.as_bytes()) {
            Likeness::Same => {}
            Likeness::Unknown => return Verdict::Unstable,
            Likeness::Differs(..) => match reason(name, first, ours, is_head) {
                Some(why) => explained = Some(why),
                None => return Verdict::Differs(format!("{name}: {own:?}, Puma {theirs:?}")),
            },
        }
    }
    explained.map_or(Verdict::Same, Verdict::Explained)
}

/// Returns the reason why a field may differ; `None` if it may not.
fn reason(name: &str, first: &Response, ours: &Response, is_head: bool) -> Option<&'static str> {
    let has = |response: &Response, name| response.field(name).is_some();
    let is_framing = name == "content-length" || name == "transfer-encoding";
    if !is_framing {
        return None;
    }
    let length = ours.field("content-length").and_then(|length| length.parse().ok());
    if length == Some(ours.body.len()) && !has(first, "content-length") {
        return Some(
            "Thruway sends the length of a body that it has whole, where Puma sends it in chunks",
        );
    }
    if has(first, "content-length")
        && has(ours, "transfer-encoding")
        && !has(ours, "content-length")
    {
        return Some("Thruway sends a body in chunks, of which Puma sends the length");
    }
    (is_head && ours.body.is_empty()).then_some("the length of a response to HEAD is optional")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, fields: &[(&str, &str)], body: &str) -> Result<Response, String> {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Ok(Response { status, fields: fields.collect(), body: body.into() })
    }

    #[test]
    fn words_that_change_under_puma_may_change_under_thruway() {
        let page = |cookie: &str, etag: &str| {
            let fields =
                [("set-cookie", cookie), ("etag", etag), ("date", cookie), ("content-length", "2")];
            response(200, &fields, "ok")
        };
        let (first, second) = (page("s=abc; path=/", "x"), page("s=def; path=/", "x"));
        let judged = |ours| judge(&first, &second, &ours, false);
        assert_eq!(judged(page("s=ghi; path=/", "x")), Verdict::Same);
        assert!(matches!(judged(page("s=ghi; path=/; secure", "x")), Verdict::Differs(_)));
        assert!(matches!(judged(page("s=ghi; path=/", "y")), Verdict::Differs(_)));
        assert!(matches!(judged(response(500, &[], "ok")), Verdict::Differs(_)));
        assert!(matches!(judged(Err("closed".to_owned())), Verdict::Differs(_)));
    }

    #[test]
    fn a_length_in_the_place_of_chunks_is_explained_where_it_is_right() {
        let theirs = response(200, &[("transfer-encoding", "chunked")], "ok");
        let judged = |ours| judge(&theirs, &theirs, &ours, false);
        assert!(matches!(
            judged(response(200, &[("content-length", "2")], "ok")),
            Verdict::Explained(_)
        ));
        assert!(matches!(
            judged(response(200, &[("content-length", "3")], "ok")),
            Verdict::Differs(_)
        ));
        let without_type = response(200, &[("transfer-encoding", "chunked"), ("x", "y")], "ok");
        assert!(matches!(judged(without_type), Verdict::Differs(_)));
    }
}
