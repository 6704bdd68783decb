//! Runs of `thruway load` on a server.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::running::RunningServer;
use crate::process::cpu_seconds;

/// The report of one run, and the server's processor time.
#[derive(Debug)]
pub(crate) struct Run {
    report: Value,
    /// Processor time of the server during the run.
    cpu_seconds: f64,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct LoadProcess {
    child: Child,
    /// The file of the report, which covers ten thousand connections and would not fit in a pipe.
    report: File,
}

/// Runs `thruway load` with `options` to its end.
pub(crate) fn load(
    root: &Path,
    server: &RunningServer,
    paths: &[&str],
    options: &[&str],
) -> Result<Run, String> {
    let processes = server.processes();
    let before = cpu_seconds(&processes);
    let report = begin(root, server, paths, options)?.end()?;
    Ok(Run { report, cpu_seconds: cpu_seconds(&processes) - before })
}

/// Starts `thruway load` with `options`.
pub(crate) fn begin(
    root: &Path,
    server: &RunningServer,
    paths: &[&str],
    options: &[&str],
) -> Result<LoadProcess, String> {
    let urls: Vec<_> = paths.iter().map(|path| server.url(path)).collect();
    begin_at(root, &urls, options)
}

/// Starts `thruway load` with `options` at URLs.
pub(crate) fn begin_at(
    root: &Path,
    urls: &[String],
    options: &[&str],
) -> Result<LoadProcess, String> {
    let mut load = Command::new(root.join("target/release/thruway"));
    load.args(["load", "--json"]).args(urls).args(options);
    if urls.iter().any(|url| url.starts_with("https:")) {
        load.arg("--insecure");
    }
    let failed = |error: std::io::Error| format!("cannot start thruway load: {error}");
    let report = tempfile::tempfile().map_err(failed)?;
    load.stdout(report.try_clone().map_err(failed)?).stderr(Stdio::null());
    Ok(LoadProcess { child: load.spawn().map_err(failed)?, report })
}

impl LoadProcess {
    /// Whether the run is still in progress.
    pub(crate) fn is_under_way(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the report. Even a server that never responded has a report.
    pub(crate) fn end(mut self) -> Result<Value, String> {
        let failed = |error: std::io::Error| format!("thruway load: {error}");
        self.child.wait().map_err(failed)?;
        self.report.rewind().map_err(failed)?;
        let mut text = Vec::new();
        self.report.read_to_end(&mut text).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| format!("thruway load: {error}"))
    }
}

impl Run {
    /// Wraps the report of a run in which the server's processor time was not measured.
    pub(crate) fn without_cpu(report: Value) -> Self {
        Self { report, cpu_seconds: 0.0 }
    }

    /// A figure of the whole run.
    pub(crate) fn total(&self, pointer: &str) -> f64 {
        number(&self.report["total"], pointer)
    }

    /// A figure of one class.
    pub(crate) fn class(&self, name: &str, pointer: &str) -> f64 {
        let classes = self.report["classes"].as_array().into_iter().flatten();
        classes.filter(|class| class["name"] == name).map(|class| number(class, pointer)).sum()
    }

    /// A figure of the class that requests `path` only.
    pub(crate) fn class_of(&self, path: &str, pointer: &str) -> f64 {
        let classes = self.report["classes"].as_array().into_iter().flatten();
        classes.filter(|class| class["url"] == path).map(|class| number(class, pointer)).sum()
    }

    /// A figure of one URL.
    pub(crate) fn url(&self, path: &str, pointer: &str) -> f64 {
        let urls = self.report["urls"].as_array().into_iter().flatten();
        urls.filter(|url| url["url"] == path).map(|url| number(url, pointer)).sum()
    }

    /// The number of responses on each connection.
    pub(crate) fn shares(&self) -> Vec<u64> {
        let connections = self.report["connections"].as_array().into_iter().flatten();
        connections.filter_map(|connection| connection["requests"].as_u64()).collect()
    }

    pub(crate) fn requests_per_second(&self) -> f64 {
        self.total("/requests_per_second")
    }

    /// Microseconds of the server's processor time per response.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.total("/requests")
    }

    /// Bytes received per response, including heads.
    pub(crate) fn bytes_per_response(&self) -> f64 {
        self.total("/bytes_per_second") / self.requests_per_second()
    }

    /// The number of requests that were lost or had an error as their response.
    pub(crate) fn lost(&self) -> f64 {
        let refused = ["/status/4xx", "/status/5xx"].map(|status| self.total(status));
        self.total("/failed") + refused.iter().sum::<f64>()
    }

    /// The number of connections that failed or broke.
    pub(crate) fn broken(&self) -> f64 {
        let errors = self.report["total"]["errors"].as_object().into_iter().flatten();
        // The sum of an empty series of floats would be -0.
        errors.filter_map(|(_, count)| count.as_f64()).fold(0.0, |sum, count| sum + count)
    }

    pub(crate) fn jain(&self) -> f64 {
        self.total("/fairness/index")
    }

    pub(crate) fn starved(&self) -> f64 {
        self.total("/fairness/starved")
    }
}

fn number(group: &Value, pointer: &str) -> f64 {
    group.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}
