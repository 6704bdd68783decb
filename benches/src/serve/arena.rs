//! Runs servers in turn under the same load, round after round.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::contender::{Contender, contenders};
use super::load::{LoadProcess, Run, begin, load};
use super::running::{RunningServer, Start};
use super::server::App;
use crate::context::BenchContext;
use crate::measure::Series;

/// The two files in the folder, by name and size in bytes.
const FILES: [(&str, usize); 2] = [("10k", 10_240), ("9m", 9_000_000)];

/// The available servers, and the files that they serve.
pub(crate) struct Arena<'a> {
    pub(crate) context: &'a BenchContext,
    contenders: Vec<Contender>,
    pub(crate) folder: PathBuf,
}

/// The way in which servers are started and loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario<'a> {
    pub(crate) app: App,
    pub(crate) workers: u32,
    pub(crate) threads: u32,
    pub(crate) path: &'a str,
    /// The options of `thruway load`.
    pub(crate) options: &'a [&'a str],
}

impl<'a> Scenario<'a> {
    /// `examples/rack_hello`, in the setup of most tables: two workers of two threads.
    pub(crate) fn rack(path: &'a str, options: &'a [&'a str]) -> Self {
        Self { app: App::Rack, workers: 2, threads: 2, path, options }
    }
}

/// The runs of one server, one per round.
pub(crate) struct ServerRuns {
    pub(crate) name: &'static str,
    pub(crate) runs: Vec<Run>,
}

impl<'a> Arena<'a> {
    /// Finds the servers. Leaves out servers that are not installed, and prints a line about each.
    pub(crate) fn new(context: &'a BenchContext) -> Result<Self, String> {
        allow_descriptors();
        let folder =
            std::env::temp_dir().join(format!("thruway-bench-files-{}", std::process::id()));
        make_files(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { context, contenders: contenders(context), folder })
    }

    /// The servers that support the scenario's kind of application.
    pub(crate) fn servers(&self, app: App) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().filter(move |contender| contender.server.arguments(app).is_some())
    }

    /// In each round, starts and loads each server once.
    pub(crate) fn rounds(&self, scenario: Scenario<'_>) -> Result<Vec<ServerRuns>, String> {
        let servers: Vec<_> = self.servers(scenario.app).collect();
        let mut all: Vec<_> =
            servers.iter().map(|one| ServerRuns { name: one.name, runs: Vec::new() }).collect();
        for _ in 0..self.context.rounds {
            for (contender, measured) in servers.iter().zip(&mut all) {
                if let Some(running) = self.start(contender, scenario)? {
                    measured.runs.push(self.load(&running, scenario)?);
                }
            }
        }
        all.retain(|measured| !measured.runs.is_empty());
        Ok(all)
    }

    /// Starts a server for the scenario, and warms it up. A server that does not start is left out, with the end of its
    /// output.
    pub(crate) fn start(
        &self,
        contender: &Contender,
        scenario: Scenario<'_>,
    ) -> Result<Option<RunningServer>, String> {
        let Scenario { app, workers, threads, .. } = scenario;
        let (application, folder) = (&*self.context.root.join(app.folder()), &*self.folder);
        match RunningServer::start(contender, Start { app, workers, threads, application, folder })
        {
            Ok(running) => {
                let warm_up = Scenario { options: &["-d", app.warm_up_seconds()], ..scenario };
                self.load(&running, warm_up)?;
                Ok(Some(running))
            }
            Err(reason) => {
                println!("left out: {reason}");
                Ok(None)
            }
        }
    }

    pub(crate) fn load(
        &self,
        running: &RunningServer,
        scenario: Scenario<'_>,
    ) -> Result<Run, String> {
        load(&self.context.root, running, &[scenario.path], scenario.options)
    }

    /// Starts a load that continues during other work.
    pub(crate) fn begin(
        &self,
        running: &RunningServer,
        scenario: Scenario<'_>,
    ) -> Result<LoadProcess, String> {
        begin(&self.context.root, running, &[scenario.path], scenario.options)
    }

    /// The duration of a run in seconds, multiplied by `times`: a value for the option `-d` of `thruway load`.
    pub(crate) fn seconds(&self, times: f64) -> String {
        (self.context.seconds * times).to_string()
    }
}

fn make_files(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("index.html"), "ready\n")?;
    FILES.iter().try_for_each(|(name, bytes)| fs::write(folder.join(name), vec![b'x'; *bytes]))
}

/// Raises the limit on descriptors, which servers inherit: 10,000 connections need more than the usual 1,024.
fn allow_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // The table shows the effect of a limit that cannot be raised.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Drop for Arena<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl ServerRuns {
    /// One figure of every run.
    pub(crate) fn series(&self, number: impl Fn(&Run) -> f64) -> Series {
        Series::new(self.name, self.runs.iter().map(number).collect())
    }

    pub(crate) fn median(&self, number: impl Fn(&Run) -> f64) -> f64 {
        self.series(number).median()
    }
}

/// The median of the named server, if it took part.
pub(crate) fn median_of(
    all: &[ServerRuns],
    name: &str,
    number: impl Fn(&Run) -> f64,
) -> Option<f64> {
    let measured = all.iter().find(|measured| measured.name == name)?;
    Some(measured.median(number)).filter(|median| median.is_finite())
}
