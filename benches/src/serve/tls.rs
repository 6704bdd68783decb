//! TLS: an application and a folder with `thruway serve`, and with nginx, which for an application is a proxy for the
//! same server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::arena::{Arena, Scenario, ServerRuns, median_of};
use super::contender::Contender;
use super::load::Run;
use super::running::RunningServer;
use super::server::{App, NGINX_ARGUMENTS, Program, Server, nginx_config};
use crate::context::BenchContext;
use crate::table::{Table, at_least, ratio};

static OURS: Server = Server {
    name: "thruway",
    program: Program::Ours,
    tells_version: false,
    is_secure: true,
    rack: Some(
        "serve {app} -b ssl://127.0.0.1:{port}?cert={folder}/secret/cert&key={folder}/secret/key \
         -w {workers} -t {threads} -e production",
    ),
    sendfile: None,
    folder: Some(
        "serve {folder} -b ssl://127.0.0.1:{port}?cert={folder}/secret/cert&key={folder}/secret/key \
         -w {workers}",
    ),
    config: "",
};

/// The configuration that nginx's documentation recommends for TLS and for a proxied server.
const NGINX: &str = nginx_config!(
    "\
    ssl_certificate {folder}/secret/cert;
    ssl_certificate_key {folder}/secret/key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:TLS:10m;
    upstream application { server 127.0.0.1:{backend}; keepalive 64; keepalive_requests 1000000000; }
    server {
        listen 127.0.0.1:{port} ssl;
        root {folder};
        location /app/ {
            proxy_pass http://application/;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }
    }
"
);

/// A kind of load: its title, the path, options besides the number of connections, and the application.
struct Way {
    title: &'static str,
    app: App,
    options: &'static [&'static str],
    number: fn(&Run) -> f64,
    unit: &'static str,
    target: (&'static str, f64),
}

const WAYS: [Way; 3] = [
    Way {
        title: "TLS: short Rack app, 10 connections, `-w 2 -t 2`",
        app: App::Rack,
        options: &[],
        number: Run::requests_per_second,
        unit: "requests/s",
        target: ("requests/s ≥ 1.2 × nginx in front", 1.2),
    },
    Way {
        title: "TLS: a new connection a request, 10 at once",
        app: App::Rack,
        options: &["--no-keep-alive"],
        number: Run::requests_per_second,
        unit: "handshakes/s",
        target: ("handshakes/s ≥ .8 × nginx's", 0.8),
    },
    Way {
        title: "TLS: 9 MB of a folder, 10 connections",
        app: App::Folder,
        options: &[],
        number: |run| run.total("/bytes_per_second") / 1e6,
        unit: "MB/s",
        target: ("MB/s ≥ .9 × nginx's", 0.9),
    },
];

/// Returns a table for each kind of load.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    make_certificate(&arena.folder.join("secret"))?;
    let tables: Result<Vec<_>, _> = WAYS.iter().map(|way| measure(&arena, way)).collect();
    Ok(tables?.join("\n\n"))
}

fn measure(arena: &Arena<'_>, way: &Way) -> Result<String, String> {
    let all = rounds(arena, way)?;
    let mut table = Table::new(way.title, &["server", way.unit, "±", "p99 ms", "lost"]);
    for measured in &all {
        let speed = measured.series(way.number);
        table.row(
            measured.name,
            &[
                format!("{:.0}", speed.median()),
                format!("{:.0} %", speed.spread() * 100.0),
                format!("{:.2}", measured.median(|run| run.total("/latency/p99_ns") / 1e6)),
                format!("{:.0}", measured.series(Run::lost).largest()),
            ],
        );
    }
    let speed = |name| median_of(&all, name, way.number);
    let against = ratio(speed("thruway"), speed("nginx"));
    table.target(way.target.0, at_least(against, way.target.1));
    Ok(table.text())
}

fn rounds(arena: &Arena<'_>, way: &Way) -> Result<Vec<ServerRuns>, String> {
    let mut all: Vec<_> =
        ["thruway", "nginx"].map(|name| ServerRuns { name, runs: Vec::new() }).into();
    for _ in 0..arena.context.rounds {
        for measured in &mut all {
            measured.runs.extend(round(arena, way, measured.name)?);
        }
    }
    all.retain(|measured| !measured.runs.is_empty());
    Ok(all)
}

/// Measures one server, started anew. `None` if the server is not available.
fn round(arena: &Arena<'_>, way: &Way, name: &str) -> Result<Option<Run>, String> {
    let seconds = arena.seconds(1.0);
    let options: Vec<_> = ["-c", "10", "-d", &seconds].iter().chain(way.options).copied().collect();
    let path = match (way.app, name) {
        (App::Folder, _) => "/9m",
        (_, "nginx") => "/app/",
        _ => "/",
    };
    let scenario = Scenario { app: way.app, ..Scenario::rack(path, &options) };
    if name == "thruway" {
        let Some(contender) = Contender::of(arena.context, &OURS) else { return Ok(None) };
        let Some(running) = arena.start(&contender, scenario)? else { return Ok(None) };
        return arena.load(&running, scenario).map(Some);
    }
    let Some(backend) = start_backend(arena)? else { return Ok(None) };
    let Some(contender) = Contender::of(arena.context, nginx(backend.port)) else {
        return Ok(None);
    };
    // nginx is always started as a server of folders. The configuration has it pass requests below `/app` to the
    // backend.
    let front = Scenario { app: App::Folder, ..scenario };
    let Some(running) = arena.start(&contender, front)? else { return Ok(None) };
    arena.load(&running, front).map(Some)
}

/// Starts the server behind nginx: ours, without TLS.
fn start_backend(arena: &Arena<'_>) -> Result<Option<RunningServer>, String> {
    let Some(ours) = arena.servers(App::Rack).find(|one| one.is_ours()) else { return Ok(None) };
    arena.start(ours, Scenario::rack("/", &[]))
}

fn nginx(backend: u16) -> &'static Server {
    Box::leak(Box::new(Server {
        name: "nginx",
        program: Program::Installed("nginx"),
        tells_version: false,
        is_secure: true,
        rack: None,
        sendfile: None,
        folder: Some(NGINX_ARGUMENTS),
        config: NGINX.replace("{backend}", &backend.to_string()).leak(),
    }))
}

/// Creates a key on the curve that most servers use, and a certificate for this machine.
fn make_certificate(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout"])
        .arg(folder.join("key"))
        .arg("-out")
        .arg(folder.join("cert"))
        .stderr(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start openssl: {error}"))?;
    if !made.success() {
        return Err(format!("openssl makes no certificate ({made})"));
    }
    fs::set_permissions(folder.join("key"), Permissions::from_mode(0o600)).map_err(failed)
}
