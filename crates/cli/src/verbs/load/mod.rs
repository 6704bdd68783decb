//! `thruway load`: loads an HTTP server, and reports each connection's share of the responses.

mod arguments;
mod bins;
mod class;
mod compare;
mod csv;
mod json;
mod limits;
mod number;
mod page;
mod plan;
mod progress;
mod rounds;
mod source;
mod statistics;
mod svg;
mod text;
mod tls;
mod unused;
mod variables;

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use thruway_load::{GroupReport, Interrupt, Report, Url};
use thruway_sys::printable;

pub(crate) use arguments::Load;

use crate::output::{Answer, Failure, print};
use crate::units::time;
use limits::LimitVerdict;
use plan::failure;
use progress::Live;
use text::Parts;

/// The exit status of a run with nothing but errors, or with results beyond the given limits.
const BAD_RESULT: u8 = 1;
/// The failure of a server that accepted connections and sent no complete response.
const SILENT: &str = "no complete response";

impl Load {
    pub(crate) fn run(self) -> Answer {
        if let Some(other) = self.compare.as_deref().and_then(compare::url) {
            self.refuse_of_one_run()?;
            return self.compare_servers(other);
        }
        if self.json && self.compare.is_some() {
            return Err(Failure::new("--json cannot be used with --compare FILE").hint(
                "a comparison with a file is for people; both reports are there for programs",
            ));
        }
        let urls = self.parsed_urls()?;
        let earlier = self.compare.as_deref().map(compare::read).transpose()?;
        let plan = self.plan(&urls, &self.urls)?;
        self.check_files()?;
        let interrupt = Interrupt::new().map_err(failure)?;
        let mut live = Live::new(self.quiet, self.progress);
        let ran =
            thruway_load::run(&plan, Some(interrupt.as_fd()), &mut |progress| live.show(progress));
        live.clear();
        let report = ran.map_err(failure)?;
        let limits = self.limits.check(&report);
        self.write_files(&urls, &report)?;
        if self.json {
            print(&json::report(&report, &self.percentiles, &limits)?)?;
        } else if report.total.connects > 0 {
            let mut page = page::stdout();
            text::report(&mut page, &urls, &report, self.parts());
            if let (Some(earlier), Some(path)) = (&earlier, &self.compare) {
                compare::text(&mut page, earlier, &report, path);
            }
            self.write_verdicts(&mut page, &report, &limits);
            print(page.into_text().as_bytes())?;
        }
        self.verdict(&urls[0], &report, &limits)
    }

    /// Refuses the options of a single run when servers are compared.
    fn refuse_of_one_run(&self) -> Result<(), Failure> {
        let given = [
            (self.per_connection, "--per-connection"),
            (self.histogram, "--histogram"),
            (!self.percentiles.is_empty(), "--percentiles"),
            (self.svg.is_some(), "--svg"),
            (self.csv.is_some(), "--csv"),
            (self.fair.is_some(), "--fair"),
            (self.limits.are_given(), "a limit such as --max-p99"),
            (self.url_file.is_some(), "--urls"),
            (self.urls.len() > 1, "a second URL"),
            (self.unix_socket.is_some(), "--unix-socket"),
            (self.connect_to.is_some(), "--connect-to"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => {
                Err(Failure::new(format_args!("{option} is not for comparisons of two servers"))
                    .hint("it is for a run: run load on each server"))
            }
            None => Ok(()),
        }
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            percentiles: &self.percentiles,
            histogram: self.histogram,
            per_connection: self.per_connection,
        }
    }

    /// Creates the output files before the run, so that a wrong name does not cost the results.
    fn check_files(&self) -> Result<(), Failure> {
        [&self.csv, &self.svg].into_iter().flatten().try_for_each(|path| write(path, ""))
    }

    fn write_files(&self, urls: &[Url], report: &Report) -> Result<(), Failure> {
        if let Some(path) = &self.csv {
            write(path, &csv::rows(&report.timeline))?;
        }
        if let Some(path) = &self.svg {
            write(path, &svg::picture(&urls[0].to_string(), report))?;
        }
        Ok(())
    }

    /// Writes whether the run is within each limit, and whether the run is fair enough.
    fn write_verdicts(&self, page: &mut page::Page, report: &Report, limits: &[LimitVerdict]) {
        if report.total.requests == 0 || limits.is_empty() && self.fair.is_none() {
            return;
        }
        page.plain("");
        if let Some(least) = self.fair {
            page.plain(&text::verdict(&report.total.fairness, least));
        }
        limits.iter().for_each(|limit| page.plain(&limit.text()));
    }

    /// Returns the outcome of a run. Without a response, the run is a failure. The result is negative if every response
    /// is an error, if a limit is exceeded, or if the fairness is below the demanded index.
    fn verdict(&self, url: &Url, report: &Report, limits: &[LimitVerdict]) -> Answer {
        if report.total.requests == 0 {
            return Err(self.no_answer(url, report));
        }
        if let Some(errors) = only_errors(&report.total) {
            return Err(Failure::new(format_args!("every response is an error: {errors}"))
                .hint("the figures show how fast the server fails: check the path, and whether it needs a header")
                .status(BAD_RESULT));
        }
        let is_fair = self.fair.is_none_or(|least| text::is_fair(&report.total.fairness, least));
        let is_kept = limits.iter().all(|limit| !limit.is_exceeded);
        Ok(if is_fair && is_kept { ExitCode::SUCCESS } else { ExitCode::from(BAD_RESULT) })
    }

    /// Returns the failure to report if there was no response at all.
    pub(super) fn no_answer(&self, url: &Url, report: &Report) -> Failure {
        let no_answer = |why: &str| Failure::new(format_args!("no response from {url}: {why}"));
        match (&report.connect_error, &report.tls_error) {
            (Some(why), _) => no_answer(why).hint("check that the right server listens there"),
            (None, Some(why)) => no_answer(&format!("TLS failed: {why}")).hint(tls_hint(why)),
            (None, None) => {
                let why = text::other_protocol(report);
                no_answer(why.unwrap_or(SILENT)).hint(self.silence_hint(report, why))
            }
        }
    }

    /// Returns the cure for a server that accepts connections and sends no complete response.
    fn silence_hint(&self, report: &Report, why: Option<&str>) -> String {
        let errors = &report.total.errors;
        let is_slow = !errors.is_empty() && errors.keys().all(|kind| *kind == "timed_out");
        match why {
            _ if self.http2 => {
                "check that the server speaks HTTP/2 with prior knowledge, without TLS".to_owned()
            }
            Some("the server speaks TLS") => "write the URL with https://".to_owned(),
            Some("the server speaks HTTP/2") => "--http2 asks by HTTP/2".to_owned(),
            None if is_slow => format!(
                "requests waited for {}; --timeout TIME waits longer",
                time(u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX))
            ),
            _ => "check that it is the right server, and that it speaks HTTP".to_owned(),
        }
    }
}

/// Returns the cure for a failure of TLS.
fn tls_hint(why: &str) -> &'static str {
    if why.starts_with("certificate of the server") {
        return "--cacert FILE trusts the server's certificate or its authority, --insecure any certificate; \
                --sni NAME is the name to expect";
    }
    if why.contains("certificate_required") {
        return "--cert FILE and --key FILE are the client's certificate";
    }
    "openssl s_client -connect HOST:PORT shows what the server agrees to"
}

/// Returns the statuses of a run that had nothing but errors.
fn only_errors(total: &GroupReport) -> Option<String> {
    let is_error = |(name, _): (&&str, &u64)| matches!(*name, "4xx" | "5xx");
    let are_errors = !total.status.is_empty() && total.status.iter().all(is_error);
    are_errors.then(|| text::counts(&total.status).join("   "))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        Failure::new(format_args!("cannot write {}: {error}", printable::path(&path)))
    })
}
