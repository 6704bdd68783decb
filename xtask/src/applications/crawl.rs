//! Collects the requests to compare: the pages that links lead to, and requests for which no page exists.

use std::collections::{BTreeSet, VecDeque};

use super::client::{Field, Request, Response};

/// The number of pages that are also requested by HEAD, conditionally and in part.
const VARIED_MAX: usize = 3;

/// Requests up to `pages` pages from a server, following links. Returns the requests in order.
pub(super) fn requests(
    port: u16,
    start: &[String],
    pages: usize,
    further: &[Field],
) -> Result<Vec<Request>, String> {
    let mut waiting: VecDeque<_> = start.iter().cloned().collect();
    let mut seen: BTreeSet<_> = waiting.iter().cloned().collect();
    let (mut requests, mut varied) = (Vec::new(), Vec::new());
    while let Some(target) = waiting.pop_front()
        && requests.len() < pages
    {
        let request = Request::get(&target);
        let response = request.ask(port, further)?;
        for link in links(&target, &response) {
            if seen.insert(link.clone()) {
                waiting.push_back(link);
            }
        }
        if response.status == 200 && varied.len() < VARIED_MAX * 3 {
            varied.extend(variations(&target, &response));
        }
        requests.push(request);
    }
    requests.extend(varied);
    requests.extend(others());
    Ok(requests)
}

/// Returns requests for a page by HEAD, with the validators that a cache sends, and for a range.
fn variations(target: &str, response: &Response) -> Vec<Request> {
    let mut all = vec![Request { method: "HEAD", ..Request::get(target) }];
    let known = [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")];
    for (field, question) in known {
        all.extend(response.field(field).map(|value| Request::get(target).with(question, value)));
    }
    all.push(Request::get(target).with("Range", "bytes=2-5"));
    all
}

/// Requests that applications seldom expect.
fn others() -> Vec<Request> {
    let form = |target: &str| {
        Request { method: "POST", body: "a=b&c[]=d", ..Request::get(target) }
            .with("Content-Type", "application/x-www-form-urlencoded")
    };
    vec![
        Request::get("/no/such/page"),
        Request::get("/?a=%FF&b=%00"),
        Request::get("/%E2%98%83?x[y]=z"),
        Request::get("/").with("Accept", "application/json"),
        form("/"),
        form("/no/such/page"),
        Request { method: "DELETE", ..Request::get("/") },
        Request { method: "OPTIONS", ..Request::get("/") },
    ]
}

/// Returns the paths of this server that a response names: in `Location`, or in `href` and `src` of its page.
fn links(page: &str, response: &Response) -> Vec<String> {
    let mut found: Vec<_> =
        response.field("location").and_then(|link| path(page, link)).into_iter().collect();
    if response.is_html() {
        let text = String::from_utf8_lossy(&response.body);
        for attribute in ["href=\"", "src=\""] {
            let values = text.split(attribute).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(values.filter_map(|link| path(page, &link.replace("&amp;", "&"))));
        }
    }
    found
}

/// Returns a link as a path of this server; `None` if the link leads elsewhere.
fn path(page: &str, link: &str) -> Option<String> {
    let link = link.split('#').next().unwrap_or_default();
    let link = ["http://localhost", "https://localhost"]
        .iter()
        .find_map(|host| link.strip_prefix(host))
        .unwrap_or(link);
    let is_elsewhere = link.starts_with("//")
        || link.split(['/', '?']).next().is_some_and(|start| start.contains(':'));
    let is_plain = link.bytes().all(|byte| byte.is_ascii_graphic());
    if is_elsewhere || !is_plain {
        return None;
    }
    match link.as_bytes().first() {
        None => None,
        Some(b'/') => Some(link.to_owned()),
        Some(b'?') => Some(format!("{}{link}", page.split('?').next().unwrap_or_default())),
        Some(_) => {
            let folder = page.split('?').next()?.rsplit_once('/')?.0;
            Some(format!("{folder}/{link}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_this_server_are_followed() {
        let body = r##"<a href="/a?b=1&amp;c=2">A</a> <a href="d#e">D</a> <a href="https://example.com/">x</a>
            <img src="/i.png"> <a href="mailto:a@b.c">m</a> <a href="//cdn/x">c</a> <a href="#top">t</a>
            <a href="?p=2">2</a>"##;
        let html = ("content-type".to_owned(), "text/html; charset=utf-8".to_owned());
        let page = Response { status: 200, fields: vec![html], body: body.into() };
        assert_eq!(links("/x/y?z", &page), ["/a?b=1&c=2", "/x/d", "/x/y?p=2", "/i.png"]);
        let moved = ("location".to_owned(), "http://localhost/login".to_owned());
        let page = Response { status: 302, fields: vec![moved], body: body.into() };
        assert_eq!(links("/", &page), ["/login"]);
    }

    #[test]
    fn a_cache_s_questions_follow_from_a_response() {
        let etag = ("etag".to_owned(), "W/\"a\"".to_owned());
        let page = Response { status: 200, fields: vec![etag], body: Vec::new() };
        let titles: Vec<_> = variations("/", &page).iter().map(Request::title).collect();
        assert_eq!(
            titles,
            ["HEAD /", "GET / (If-None-Match: W/\"a\")", "GET / (Range: bytes=2-5)"]
        );
    }
}
