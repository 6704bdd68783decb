//! A page from a shared cache: that of `thruway serve`, and those of nginx and of Thruster in front of an application.

use super::arena::{Arena, Scenario, ServerRuns, median_of};
use super::contender::Contender;
use super::load::Run;
use super::rack::requests_table;
use super::running::RunningServer;
use super::server::{App, NGINX_ARGUMENTS, Program, Server, nginx_config};
use crate::context::BenchContext;
use crate::table::{at_least, at_most, ratio};

const OURS: Server = Server::for_rack(
    "thruway",
    Program::Ours,
    "serve {app} -b tcp://127.0.0.1:{port} -w {workers} -t {threads} -e production --cache 64M",
    "",
);

/// The configuration that nginx's documentation recommends for a cache in front of an application.
const NGINX: &str = nginx_config!(
    "\
    proxy_cache_path {run}/cache keys_zone=pages:10m max_size=64m;
    upstream application { server 127.0.0.1:{backend}; keepalive 64; }
    server {
        listen 127.0.0.1:{port};
        location / {
            proxy_cache pages;
            proxy_cache_lock on;
            proxy_pass http://application/;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }
    }
"
);

/// Thruster is set up by variables, and starts the command that it serves: here one that only waits, since the
/// application runs already.
const THRUSTER: &str =
    "HTTP_PORT={port} TARGET_PORT={backend} LOG_REQUESTS=false {program} sleep infinity";

/// Measures a page of 10 KB that may be kept for ten minutes.
pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let options = ["-c", "20", "-d", &seconds];
    let scenario = Scenario { app: App::Shapes, ..Scenario::rack("/cached", &options) };
    let all = rounds(&arena, scenario)?;
    let mut table = requests_table("A cached page of 10 KB, 20 connections, 2 workers", &all);
    let speed = |name| median_of(&all, name, Run::requests_per_second);
    let p99 = |name| median_of(&all, name, p99_ms);
    let by_nginx = ratio(speed("thruway"), speed("nginx"));
    table.target("requests/s ≥ 1.2 × nginx", at_least(by_nginx, 1.2));
    let by_thruster = ratio(speed("thruway"), speed("Thruster"));
    table.target("requests/s ≥ 3 × Thruster", at_least(by_thruster, 3.0));
    table.target("p99 ≤ nginx", at_most(ratio(p99("thruway"), p99("nginx")), 1.0));
    Ok(table.text())
}

fn p99_ms(run: &Run) -> f64 {
    run.total("/latency/p99_ns") / 1e6
}

fn rounds(arena: &Arena<'_>, scenario: Scenario<'_>) -> Result<Vec<ServerRuns>, String> {
    let mut all =
        ["thruway", "nginx", "Thruster"].map(|name| ServerRuns { name, runs: Vec::new() });
    for _ in 0..arena.context.rounds {
        for measured in &mut all {
            measured.runs.extend(round(arena, scenario, measured.name)?);
        }
    }
    Ok(all.into_iter().filter(|measured| !measured.runs.is_empty()).collect())
}

/// Measures one server, started anew. `None` if the server is not available.
fn round(arena: &Arena<'_>, scenario: Scenario<'_>, name: &str) -> Result<Option<Run>, String> {
    if name == "thruway" {
        let Some(contender) = Contender::of(arena.context, &OURS) else { return Ok(None) };
        let Some(running) = arena.start(&contender, scenario)? else { return Ok(None) };
        return arena.load(&running, scenario).map(Some);
    }
    let Some(backend) = start_backend(arena, scenario)? else { return Ok(None) };
    let front = match name {
        "nginx" => Some(nginx(backend.port)),
        _ => arena.context.peers.get("thruster").map(|program| {
            let program = program.display().to_string();
            thruster(backend.port, &program)
        }),
    };
    let Some(front) = front else { return Ok(None) };
    let Some(contender) = Contender::of(arena.context, front) else { return Ok(None) };
    let Some(running) = arena.start(&contender, scenario)? else { return Ok(None) };
    arena.load(&running, scenario).map(Some)
}

/// Starts the application behind a cache: `thruway serve` without a cache of its own.
fn start_backend(
    arena: &Arena<'_>,
    scenario: Scenario<'_>,
) -> Result<Option<RunningServer>, String> {
    let Some(ours) = arena.servers(scenario.app).find(|one| one.is_ours()) else { return Ok(None) };
    arena.start(ours, Scenario { path: "/short", ..scenario })
}

fn nginx(backend: u16) -> &'static Server {
    let config = NGINX.replace("{backend}", &backend.to_string()).leak();
    let program = Program::Installed("nginx");
    Box::leak(Box::new(Server::for_rack("nginx", program, NGINX_ARGUMENTS, config)))
}

fn thruster(backend: u16, program: &str) -> &'static Server {
    let arguments = THRUSTER.replace("{backend}", &backend.to_string());
    let arguments = arguments.replace("{program}", program).leak();
    Box::leak(Box::new(Server::for_rack("Thruster", Program::Installed("env"), arguments, "")))
}
