//! Runs random sequences of requests, responses, edits and purges through an engine with a cache. A model of RFC 9111
//! checks each response: the model knows all responses of the application and their permitted uses.
//!
//! Time does not pass. Only its `Age` makes a response stale, by a wide margin.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;

use thruway_cache::Limits;
use thruway_testing::{Random, setting};

use super::*;

const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/b"];
const LANGUAGES: [&str; 2] = ["de", "en"];
const CLIENTS: usize = 4;
const STEPS: usize = 40;

/// An age beyond each lifetime. The permissions to use a stale response last much longer.
const OLD_S: u32 = 1_000;

/// The statements of a response about its storage.
#[derive(Debug, Clone, Copy)]
struct Policy {
    control: &'static str,
    /// Whether a cache may use the response for a request without a cookie, and for a request with a cookie.
    is_shared: bool,
    is_public: bool,
    /// Whether a cache may use the response without validation while the response is young.
    is_fresh: bool,
    /// Whether a cache may use the stale response during a renewal, or after an error.
    while_renewed: bool,
    after_error: bool,
}

const fn policy(control: &'static str, allowed: &[u8]) -> Policy {
    const fn has(allowed: &[u8], letter: u8) -> bool {
        let mut at = 0;
        while at < allowed.len() {
            if allowed[at] == letter {
                return true;
            }
            at += 1;
        }
        false
    }
    Policy {
        control,
        is_shared: has(allowed, b's'),
        is_public: has(allowed, b'p'),
        is_fresh: has(allowed, b'f'),
        while_renewed: has(allowed, b'r'),
        after_error: has(allowed, b'e'),
    }
}

const POLICIES: [Policy; 13] = [
    policy("max-age=60", b"sf"),
    policy("max-age=60, s-maxage=120", b"spf"),
    policy("public, max-age=600", b"spf"),
    policy("max-age=60, public", b"spf"),
    policy("max-age=0, s-maxage=60", b"spf"),
    policy("max-age=60, stale-while-revalidate=5000", b"sfr"),
    policy("public, max-age=60, stale-if-error=5000", b"spfe"),
    policy("max-age=60, no-cache", b"s"),
    policy("max-age=0, must-revalidate, stale-while-revalidate=5000", b"s"),
    policy("max-age=60, private", b""),
    policy("max-age=60, no-store", b""),
    policy("max-age=0", b"s"),
    policy("", b""),
];

/// A request as seen by the application or the model.
#[derive(Debug, Clone)]
struct ModelRequest {
    id: usize,
    /// The step at which the request was sent, or reached the application.
    step: usize,
    method: &'static str,
    path: usize,
    language: &'static str,
    has_cookie: bool,
    has_authorization: bool,
    control: &'static str,
    if_none_match: Option<String>,
    /// The oldest version that a response may have.
    floor: usize,
}

/// A response of the application, or a 304 for a stored response.
#[derive(Debug, Clone)]
struct OriginResponse {
    asked: ModelRequest,
    policy: Policy,
    age_s: u32,
    has_set_cookie: bool,
    version: usize,
    status: u16,
    body: String,
}

/// A request that waits in the application.
struct PendingRequest {
    ticket: Ticket,
    constraints: ResponseConstraints,
    asked: ModelRequest,
}

/// An application that responds only when the simulation tells it to.
struct Application {
    waiting: Vec<PendingRequest>,
    step: usize,
    /// The requests that clients have sent, by number.
    sent: Vec<ModelRequest>,
}

impl Handler for Application {
    fn handle(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) {
        let field = |wanted: &str| {
            let mut fields = request.fields();
            let found = fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
            found.map(|(_, value)| String::from_utf8(value.to_vec()).unwrap())
        };
        let id: usize = field("x-id").unwrap().parse().unwrap();
        let asked = ModelRequest {
            step: self.step,
            if_none_match: field("if-none-match"),
            // For a HEAD request, the background request is a GET.
            method: if request.method() == b"GET" { "GET" } else { self.sent[id].method },
            ..self.sent[id].clone()
        };
        let constraints = exchange.constraints();
        self.waiting.push(PendingRequest { ticket: exchange.defer(), constraints, asked });
    }
}

/// A client, and its request without a response.
struct Client {
    stream: UnixStream,
    pending: Option<usize>,
    got: Vec<u8>,
}

struct Simulation {
    engine: Engine,
    application: Application,
    events: Events,
    clients: Vec<Client>,
    random: Random,
    versions: [usize; PATHS.len()],
    /// The version of each page at its last invalidation, and the step of the invalidation.
    floors: [usize; PATHS.len()],
    invalidated: [usize; PATHS.len()],
    made: Vec<OriginResponse>,
    /// The requests for which the application has failed, by number.
    failed: HashMap<usize, u16>,
    hits: usize,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        // A TCP port stays in use for a minute after each connection, which is too long for 100,000 sequences.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::new(&Address::Unix { path: path.clone() }.into()).unwrap();
        let cache = Some(Limits { bytes_max: 1 << 20, item_bytes_max: 1 << 16 });
        let settings = Settings { cache, ..Settings::default() };
        let engine = Engine::new(settings, vec![listener], None).unwrap();
        let client = |_| {
            let stream = UnixStream::connect(&path).unwrap();
            stream.set_nonblocking(true).unwrap();
            Client { stream, pending: None, got: Vec::new() }
        };
        Self {
            engine,
            application: Application { waiting: Vec::new(), step: 0, sent: Vec::new() },
            events: Events::new(),
            clients: (0..CLIENTS).map(client).collect(),
            random: Random::new(seed),
            versions: [1; PATHS.len()],
            floors: [0; PATHS.len()],
            invalidated: [0; PATHS.len()],
            made: Vec::new(),
            failed: HashMap::new(),
            hits: 0,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.application.step += 1;
            let path = self.random.below(PATHS.len());
            match self.random.below(32) {
                0..=15 => self.ask(path),
                16..=28 => self.answer_one(),
                29 | 30 => self.versions[path] += 1,
                _ => self.purge(path),
            }
            self.settle(0);
        }
        for _ in 0..10_000 {
            if self.clients.iter().all(|client| client.pending.is_none())
                && self.application.waiting.is_empty()
            {
                return;
            }
            self.application.step += 1;
            // Requests that wait for each other check every few milliseconds.
            let wait_ms = u64::from(self.application.waiting.is_empty());
            self.answer_one();
            self.settle(wait_ms);
        }
        panic!("a client never gets its response");
    }

    /// Returns true with a probability of one in `denominator`.
    fn happens(&mut self, denominator: usize) -> bool {
        self.random.below(denominator) == 0
    }

    /// Whether a page differs by language, as every second page does.
    fn varies(path: usize) -> bool {
        path % 2 == 1
    }

    fn etag(path: usize, language: &str, version: usize) -> String {
        let language = if Self::varies(path) { language } else { "" };
        format!("\"{path}-{language}-{version}\"")
    }

    fn ask(&mut self, path: usize) {
        let Some(at) = self.clients.iter().position(|client| client.pending.is_none()) else {
            return;
        };
        let language = LANGUAGES[self.random.below(LANGUAGES.len())];
        let known = self.versions[path] - self.random.below(2).min(self.versions[path]);
        let asked = ModelRequest {
            id: self.application.sent.len(),
            step: self.application.step,
            method: match self.random.below(12) {
                0 => "POST",
                1 => "HEAD",
                _ => "GET",
            },
            path,
            language,
            has_cookie: self.happens(4),
            has_authorization: self.happens(10),
            control: if self.happens(8) { "no-cache" } else { "" },
            if_none_match: self.happens(5).then(|| Self::etag(path, language, known)),
            floor: self.floors[path],
        };
        let mut text = format!("{} {} HTTP/1.1\r\nHost: a\r\n", asked.method, PATHS[path]);
        let mut line = |name: &str, value: &str| text += &format!("{name}: {value}\r\n");
        line("X-Id", &asked.id.to_string());
        line("Accept-Language", language);
        if asked.has_cookie {
            line("Cookie", "user=1");
        }
        if asked.has_authorization {
            line("Authorization", "Basic YTpi");
        }
        if !asked.control.is_empty() {
            line("Cache-Control", asked.control);
        }
        if let Some(tag) = &asked.if_none_match {
            line("If-None-Match", tag);
        }
        if asked.method == "POST" {
            line("Content-Length", "0");
        }
        let client = &mut self.clients[at];
        client.stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        client.pending = Some(asked.id);
        self.application.sent.push(asked);
    }

    /// Lets the application respond to one of its requests.
    fn answer_one(&mut self) {
        if self.application.waiting.is_empty() {
            return;
        }
        let at = self.random.below(self.application.waiting.len());
        let PendingRequest { ticket, constraints, asked } =
            self.application.waiting.swap_remove(at);
        let path = asked.path;
        let mut status = [200, 200, 200, 200, 200, 200, 404, 500][self.random.below(8)];
        if asked.method == "POST" && status < 400 {
            self.versions[path] += 1;
            self.floors[path] = self.versions[path];
            self.invalidated[path] = self.application.step;
        }
        let tag = Self::etag(path, asked.language, self.versions[path]);
        let is_known = asked.if_none_match.as_deref() == Some(&*tag) && asked.method != "POST";
        if is_known && status == 200 && !self.happens(4) {
            status = 304;
        }
        if status == 500 {
            self.failed.insert(asked.id, status);
        }
        // The last policy is empty. A 304 with an empty policy would leave the stored response unchanged.
        let policies = POLICIES.len() - usize::from(status == 304);
        let policy = POLICIES[self.random.below(policies)];
        let age_s = if self.happens(4) { OLD_S } else { 0 };
        let number = self.made.len();
        let length = self.random.below(200);
        let body = match status {
            304 => String::new(),
            _ => format!("{number} {path} {}", "x".repeat(length)),
        };
        let statement = OriginResponse {
            policy,
            age_s,
            has_set_cookie: self.happens(10),
            version: self.versions[path],
            status,
            body,
            asked,
        };
        self.send(ticket, constraints, number, &tag, &statement);
        self.made.push(statement);
    }

    fn send(
        &mut self,
        ticket: Ticket,
        constraints: ResponseConstraints,
        number: usize,
        tag: &str,
        said: &OriginResponse,
    ) {
        let mut head = Vec::new();
        let mut fields = ResponseHead::new(&mut head, said.status);
        let mut field = |name: &str, value: &str| {
            fields.field(name.as_bytes(), value.as_bytes()).unwrap();
        };
        // A stored response keeps its own number, and takes the number of the 304 that validates it.
        field(if said.status == 304 { "x-valid" } else { "x-made" }, &number.to_string());
        if !said.policy.control.is_empty() {
            field("cache-control", said.policy.control);
        }
        field("age", &said.age_s.to_string());
        if said.status == 304 || !said.version.is_multiple_of(3) {
            field("etag", tag);
        }
        if Self::varies(said.asked.path) {
            field("vary", "Accept-Language");
        }
        if said.has_set_cookie {
            field("set-cookie", "user=1");
        }
        let length = (said.status != 304).then_some(said.body.len() as u64);
        let plan = fields.finish(constraints, length, &[b'-'; 29]);
        let mut writer = self.engine.response(ticket);
        if number.is_multiple_of(3) {
            writer.begin(&head, plan);
            let (first, last) = said.body.split_at(said.body.len() / 2);
            writer.write(first.as_bytes());
            self.engine.response(ticket).write(last.as_bytes());
            self.engine.response(ticket).finish();
        } else {
            let slices: [&[u8]; 1] = [said.body.as_bytes()];
            writer.respond(Response { head: &head, plan, payload: Payload::Slices(&slices) });
        }
    }

    fn purge(&mut self, path: usize) {
        let (pattern, matches): (_, fn(&str, &str) -> bool) = match self.random.below(4) {
            0 => ("*".to_owned(), |_, _| true),
            1 => (PATHS[path].to_owned(), |other, own| other == own),
            2 => (format!("{}*", PATHS[path]), |other, own| other.starts_with(own)),
            _ => (format!("http://a{}", PATHS[path]), |other, own| other == own),
        };
        crate::purge(&self.engine, pattern.as_bytes()).unwrap();
        for (other, text) in PATHS.iter().enumerate() {
            if matches(text, PATHS[path]) {
                self.floors[other] = self.versions[other];
                self.invalidated[other] = self.application.step;
            }
        }
    }

    /// Lets the engine work, and reads the clients' responses.
    fn settle(&mut self, wait_ms: u64) {
        for _ in 0..3 {
            self.engine.poll(&mut self.events, Some(wait_ms));
            while self.engine.turn(&mut self.application) {}
        }
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = client.stream.read(&mut buffer) {
                client.got.extend_from_slice(&buffer[..count]);
            }
            let Some(id) = client.pending else {
                assert!(client.got.is_empty(), "a response without a request");
                continue;
            };
            let asked = self.application.sent[id].clone();
            if let Some(response) = ClientResponse::take(&mut client.got, asked.method == "HEAD") {
                client.pending = None;
                self.check(&asked, &response);
            }
        }
    }

    /// Checks that the model permits a response.
    fn check(&mut self, asked: &ModelRequest, got: &ClientResponse) {
        let number = |name: &str| got.field(name).map(|text| text.parse::<usize>().unwrap());
        let wrong = |why: &str| -> ! { panic!("{why}: {asked:?}\n{got:?}") };
        if got.status == 304 {
            let tag = got.field("etag");
            if tag != asked.if_none_match.as_deref() || tag.is_none() {
                wrong("the client does not have this page");
            }
            let version =
                tag.and_then(|tag| tag.trim_matches('"').rsplit('-').next()?.parse().ok());
            if version.is_none_or(|version: usize| version < asked.floor) {
                wrong("the client's page was removed");
            }
            return;
        }
        let Some(made) = number("x-made").map(|number| &self.made[number]) else {
            // The application has confirmed the client's page, but the client has another page.
            wrong("it is no response of the application");
        };
        let is_bodiless = asked.method == "HEAD";
        if got.body != made.body && !is_bodiless || made.status != got.status {
            wrong("it is another response");
        }
        if made.asked.id == asked.id
            && number("x-valid").is_none()
            && made.asked.method == asked.method
        {
            return;
        }
        self.hits += 1;
        // If a 304 has validated the stored response, the statements of the 304 replace those of the response.
        let said = number("x-valid").map_or(made, |number| &self.made[number]);
        if asked.method == "POST" || made.asked.method != "GET" || asked.has_authorization {
            wrong("a cache may not answer it");
        }
        if made.asked.path != asked.path {
            wrong("it is a foreign page");
        }
        if SimulationRules::differ(made, asked) {
            wrong("it is in a foreign language");
        }
        let is_own_validation = said.asked.id == asked.id;
        for one in [made, said] {
            let is_allowed = one.policy.is_shared
                && !(one.has_set_cookie && one.status != 304)
                && !one.asked.has_authorization
                && (!one.asked.has_cookie || one.policy.is_public);
            if !is_allowed && !is_own_validation {
                wrong(&format!("it may not be shared {one:?}"));
            }
        }
        if got.field("set-cookie").is_some() && !is_own_validation {
            wrong("a cookie is for one client");
        }
        if said.version < asked.floor {
            wrong("it was removed");
        }
        if said.asked.step < self.invalidated_before(asked) && !is_own_validation {
            wrong("it was on its way while it was removed");
        }
        let is_fresh = said.policy.is_fresh && said.age_s == 0 && asked.control.is_empty();
        let is_lent = said.policy.while_renewed && asked.control.is_empty();
        let is_in_need = said.policy.after_error && self.failed.contains_key(&asked.id);
        if !is_fresh && !is_lent && !is_in_need && !is_own_validation {
            wrong("it is stale");
        }
    }

    /// Returns the step of the page's last invalidation before a request.
    fn invalidated_before(&self, asked: &ModelRequest) -> usize {
        let step = self.invalidated[asked.path];
        if step <= asked.step { step } else { 0 }
    }
}

/// The rules that need no simulation.
struct SimulationRules;

impl SimulationRules {
    fn differ(made: &OriginResponse, asked: &ModelRequest) -> bool {
        Simulation::varies(asked.path) && made.asked.language != asked.language
    }
}

/// A response as received by a client.
#[derive(Debug)]
struct ClientResponse {
    status: u16,
    head: String,
    body: String,
}

impl ClientResponse {
    /// Takes a complete response out of the received bytes.
    fn take(got: &mut Vec<u8>, is_head: bool) -> Option<Self> {
        let end = got.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(got[..end].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut response = Self { status, head, body: String::new() };
        let length = response.field("content-length").map_or(0, |text| text.parse().unwrap());
        let length = if is_head || matches!(status, 204 | 304) { 0 } else { length };
        (got.len() >= end + length).then_some(())?;
        response.body = String::from_utf8(got[end..end + length].to_vec()).unwrap();
        got.drain(..end + length);
        Some(response)
    }

    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut named = lines.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value)
    }
}

/// Runs a sequence for each seed. Returns the number of requests that the cache has answered.
fn run_all(seeds: impl Iterator<Item = u64>) -> usize {
    let mut hits = 0;
    for seed in seeds {
        let mut simulation = Simulation::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.run()));
        if let Err(panic) = run {
            eprintln!("THRUWAY_SEED={seed} THRUWAY_CASES=1");
            std::panic::resume_unwind(panic);
        }
        hits += simulation.hits;
    }
    hits
}

#[test]
fn no_sequence_of_responses_edits_and_purges_serves_a_stale_or_foreign_page() {
    // Sequences wait for the engine's timers, so several run in parallel.
    const THREADS: usize = 4;
    let cases = setting("THRUWAY_CASES", 200);
    let first = setting("THRUWAY_SEED", 1);
    let hits: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (first..)
            .take(THREADS)
            .map(|start| scope.spawn(move || run_all((start..first + cases).step_by(THREADS))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(hits as u64 >= cases, "the cache answers {hits} requests of {cases} sequences");
}
