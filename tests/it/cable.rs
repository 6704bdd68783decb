//! ActionCable on the server's sockets, with Rails' own JavaScript in Chromium.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use thruway_testing::skipped;

use crate::browser::Browser;
use crate::http::Server;
use crate::{eventually, thruway};

/// The connections after which two workers have one. Each goes to the worker with the fewest connections.
const CONNECTIONS_MAX: usize = 20;

/// A Redis for this test alone, on a socket in its folder. Dropping the value kills the process.
struct Redis {
    process: Child,
    socket: PathBuf,
}

impl Redis {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("redis");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        let process = command.current_dir(folder).stdout(Stdio::null()).spawn();
        let redis = Self { process: process.expect("scripts/setup installs it"), socket };
        eventually(|| UnixStream::connect(&redis.socket).is_ok());
        redis
    }

    fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `thruway serve` of the application in `cable/`.
fn cable(workers: &str) -> Command {
    let mut command = thruway();
    command.arg("serve").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/cable"));
    command.args(["-p", "0", "-t", "2", "-e", "production", "-w", workers]);
    command
}

#[test]
fn pages_of_rails_talk_across_workers_and_come_again_after_a_restart() {
    if ["chromium", "redis-server"].iter().any(|program| !is_installed(program)) {
        return skipped(format_args!("chromium or redis-server is not installed"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let redis = Redis::start(folder.path());
    let server = Server::start(cable("2").env("CABLE_REDIS", redis.url()));
    let mut browser = Browser::start(folder.path());
    browser.open(&format!("http://{}/", server.address()));
    for entered in 1.. {
        assert!(entered <= CONNECTIONS_MAX, "one worker has all of {entered} connections");
        browser.value("enter()");
        browser.wait_for(&format!(
            "seen.filter(own => own.connected && own.worker).length === {entered}"
        ));
        if browser.value("new Set(seen.map(own => own.worker)).size") == json!(2) {
            break;
        }
    }
    browser.value("void seen.at(-1).room.perform('speak', { text: 'grüß <b>' })");
    browser.wait_for("seen.every(own => own.said.join() === 'grüß <b>')");

    browser.value("var old = seen.map(own => own.worker)");
    let signal = Command::new("kill").args(["-USR1", &server.pid().to_string()]).status();
    assert!(signal.expect("kill starts").success());
    // A page may come again to an old worker first, which is replaced a moment later.
    browser.wait_for(
        "seen.every(own => own.lost && own.connected && own.worker && !old.includes(own.worker))",
    );
    browser.value("void seen[0].room.perform('speak', { text: 'again' })");
    browser.wait_for("seen.every(own => own.said.includes('again'))");
    assert!(server.stop("-TERM").success());
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}
