//! The text format of Prometheus.
//!
//! The first names are those that dashboards for Puma and raindrops use. `docs/reference/metrics.md` lists all.

use std::fmt::{self, Write as _};

use thruway_tls::CertificateReport;

use super::histogram::{BOUNDS_SECONDS, Histogram};
use super::snapshot::{Snapshot, WorkerFigures};
use super::table::Time;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &[u8] = b"text/plain; version=0.0.4; charset=utf-8";

/// Gauges and counters of each worker: the name, the type, the help text, and the value.
type WorkerMetric = (&'static str, &'static str, &'static str, fn(&WorkerFigures) -> u64);

const OF_EACH_WORKER: [WorkerMetric; 15] = [
    ("thruway_computing_requests", "gauge", "Requests that compute.", |w| w.inside.computing),
    ("thruway_waiting_requests", "gauge", "Requests that wait in the application.", |w| {
        w.inside.waiting
    }),
    ("thruway_streaming_requests", "gauge", "Requests in fibers that send their bodies.", |w| {
        w.inside.streaming
    }),
    ("puma_backlog", "gauge", "Requests that wait for their turn.", |w| w.current_load.waiting),
    ("puma_running", "gauge", "Threads.", |w| w.threads),
    ("puma_busy_threads", "gauge", "Threads in the application, and requests that wait.", |w| {
        w.busy_threads + w.current_load.waiting
    }),
    ("puma_pool_capacity", "gauge", "Threads that are free.", WorkerFigures::free_threads),
    ("puma_max_threads", "gauge", "Threads at most.", |w| w.threads),
    // As a counter, the metric would need a name that ends in `_total`.
    ("puma_requests_count", "untyped", "Requests so far.", |w| w.requests),
    ("thruway_requests_total", "counter", "Requests so far.", |w| w.requests),
    ("thruway_connections", "gauge", "Open connections.", |w| w.current_load.connections),
    ("thruway_active_connections", "gauge", "Connections that had a turn lately.", |w| {
        w.current_load.active
    }),
    (
        "thruway_aborted_requests_total",
        "counter",
        "Requests whose client left, or that were cut off.",
        |w| w.aborted,
    ),
    ("thruway_worker_starts_total", "counter", "Processes that have been this worker.", |w| {
        w.starts
    }),
    ("thruway_worker_start_time_seconds", "gauge", "When it started, since 1970.", |w| {
        w.started_at
    }),
];

const HISTOGRAMS: [(Time, &str, &str); 6] = [
    (Time::Queue, "thruway_queue_seconds", "From a whole request to its turn."),
    (Time::FromProxy, "thruway_proxy_queue_seconds", "From X-Request-Start to the request's turn."),
    (Time::Request, "thruway_request_seconds", "From a request's turn to its whole response."),
    (Time::Application, "thruway_application_seconds", "Calls of the application."),
    (
        Time::LockWait,
        "thruway_gvl_wait_seconds",
        "Waits of the application for the interpreter lock.",
    ),
    (Time::Collection, "thruway_gc_pause_seconds", "Pauses for the garbage collector."),
];

/// Gauges of each certificate: the name, the help text, and the value if there is one.
type CertificateMetric = (&'static str, &'static str, fn(&CertificateReport) -> Option<u64>);

const CERTIFICATE_METRICS: [CertificateMetric; 3] = [
    (
        "thruway_certificate_expiry_time_seconds",
        "The end of a certificate's validity, since 1970.",
        |certificate| certificate.not_after_s,
    ),
    (
        "thruway_certificate_next_attempt_time_seconds",
        "The time of a certificate's renewal or of the next attempt, since 1970.",
        |certificate| Some(certificate.due_s),
    ),
    (
        "thruway_certificate_failures",
        "Attempts to obtain a certificate that failed since the last success.",
        |certificate| Some(certificate.failures.into()),
    ),
];

impl Snapshot {
    /// The page for Prometheus.
    pub(crate) fn prometheus(&self) -> String {
        let mut out = String::with_capacity(16 << 10);
        // Writing to a String does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        self.write_workers(out)?;
        for (name, kind, help, value) in OF_EACH_WORKER {
            header(out, name, kind, help)?;
            for worker in &self.workers {
                writeln!(out, "{name}{{index=\"{}\"}} {}", worker.index, value(worker))?;
            }
        }
        self.write_statuses(out)?;
        self.write_memory(out)?;
        for (time, name, help) in HISTOGRAMS {
            header(out, name, "histogram", help)?;
            write_histogram(out, name, self.time(time))?;
        }
        self.write_clients(out)?;
        self.write_cache(out)?;
        self.write_certificates(out)
    }

    fn write_certificates(&self, out: &mut String) -> fmt::Result {
        if self.certificates.is_empty() {
            return Ok(());
        }
        for (name, help, value) in CERTIFICATE_METRICS {
            header(out, name, "gauge", help)?;
            for certificate in &self.certificates {
                if let Some(value) = value(certificate) {
                    writeln!(out, "{name}{{name=\"{}\"}} {value}", certificate.name)?;
                }
            }
        }
        Ok(())
    }

    fn write_cache(&self, out: &mut String) -> fmt::Result {
        let Some(cache) = &self.cache else { return Ok(()) };
        let name = "thruway_cache_events_total";
        header(out, name, "counter", "What the cache of responses has done.")?;
        for (counter, event) in thruway_cache::Counter::ALL {
            writeln!(out, "{name}{{event=\"{event}\"}} {}", cache.count(counter))?;
        }
        for (name, help, value) in [
            ("thruway_cache_items", "Responses in the cache.", cache.items),
            ("thruway_cache_bytes", "Bytes of the responses in the cache.", cache.bytes),
            ("thruway_cache_limit_bytes", "Bytes that the cache may hold.", cache.bytes_max),
        ] {
            header(out, name, "gauge", help)?;
            writeln!(out, "{name} {value}")?;
        }
        Ok(())
    }

    fn write_workers(&self, out: &mut String) -> fmt::Result {
        let old = self.workers.iter().filter(|worker| worker.current_load.is_draining).count();
        for (name, help, value) in [
            ("puma_workers", "Workers.", self.workers.len() as u64),
            ("puma_booted_workers", "Workers that serve.", self.booted() as u64),
            ("puma_old_workers", "Workers that are about to end.", old as u64),
            ("rack_active_workers", "Threads in the application.", self.total(|w| w.busy_threads)),
            (
                "rack_queued_requests",
                "Requests that wait for their turn.",
                self.total(|w| w.current_load.waiting),
            ),
        ] {
            header(out, name, "gauge", help)?;
            writeln!(out, "{name} {value}")?;
        }
        let name = "thruway_info";
        header(out, name, "gauge", "The server's version.")?;
        writeln!(out, "{name}{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))
    }

    fn write_statuses(&self, out: &mut String) -> fmt::Result {
        let name = "thruway_responses_total";
        header(out, name, "counter", "Responses by the class of their status.")?;
        for worker in &self.workers {
            for (class, count) in (1..).zip(worker.statuses) {
                let index = worker.index;
                writeln!(out, "{name}{{index=\"{index}\",status=\"{class}xx\"}} {count}")?;
            }
        }
        Ok(())
    }

    fn write_memory(&self, out: &mut String) -> fmt::Result {
        let name = "thruway_resident_memory_bytes";
        header(out, name, "gauge", "Resident set size of a worker's process, with shared pages.")?;
        for worker in &self.workers {
            if let Some(bytes) = worker.memory_bytes {
                writeln!(out, "{name}{{index=\"{}\"}} {bytes}", worker.index)?;
            }
        }
        Ok(())
    }

    fn write_clients(&self, out: &mut String) -> fmt::Result {
        let clients = &self.clients;
        for (name, help, value) in [
            (
                "thruway_busiest_client_ratio",
                "The busiest client's part of the time of all requests.",
                clients.busiest_share(),
            ),
            (
                "thruway_fairness_ratio",
                "Jain's index over the requests of the clients that wait for each other.",
                clients.fairness(),
            ),
        ] {
            header(out, name, "gauge", help)?;
            writeln!(out, "{name} {value:.6}")?;
        }
        header(
            out,
            "thruway_clients",
            "gauge",
            "Clients that were served lately, as far as they are counted.",
        )?;
        writeln!(out, "thruway_clients {}", clients.count())
    }
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn write_histogram(out: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    let mut below = 0;
    for (bound, count) in BOUNDS_SECONDS.iter().zip(histogram.buckets) {
        below += count;
        writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}")?;
    }
    let count = histogram.count();
    writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}")?;
    let us = histogram.sum_us;
    writeln!(out, "{name}_sum {}.{:06}", us / 1_000_000, us % 1_000_000)?;
    writeln!(out, "{name}_count {count}")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::example;

    #[test]
    fn a_certificate_has_its_lines_and_none_where_there_is_none() {
        let mut snapshot = example();
        assert!(!snapshot.prometheus().contains("certificate"));
        let report = |name: &str, not_after_s| thruway_tls::CertificateReport {
            name: name.to_owned(),
            not_after_s,
            due_s: 5,
            failures: 2,
            last_error: Some("a \"reason\"".to_owned()),
        };
        snapshot.certificates = vec![report("a.example", Some(7)), report("b.example", None)];
        let text = snapshot.prometheus();
        let lines: Vec<_> = text.lines().filter(|line| line.contains("_certificate_")).collect();
        let figures = lines.iter().filter(|line| !line.starts_with('#'));
        let [a, b] = ["{name=\"a.example\"}", "{name=\"b.example\"}"];
        assert_eq!(
            figures.copied().collect::<Vec<_>>(),
            [
                format!("thruway_certificate_expiry_time_seconds{a} 7"),
                format!("thruway_certificate_next_attempt_time_seconds{a} 5"),
                format!("thruway_certificate_next_attempt_time_seconds{b} 5"),
                format!("thruway_certificate_failures{a} 2"),
                format!("thruway_certificate_failures{b} 2"),
            ]
        );
        let json = snapshot.json();
        let end = concat!(
            r#","certificates":[{"name":"a.example","not_after_seconds":7,"due_seconds":5,"failures":2,"#,
            r#""last_error":"a \"reason\""},{"name":"b.example","not_after_seconds":null,"due_seconds":5,"#,
            r#""failures":2,"last_error":"a \"reason\""}]}"#
        );
        assert!(json.ends_with(end), "{json}");
    }

    #[test]
    fn each_worker_and_each_time_has_its_lines() {
        let text = example().prometheus();
        for line in [
            "# TYPE puma_workers gauge",
            "puma_workers 2",
            "puma_booted_workers 1",
            "rack_queued_requests 4",
            "puma_backlog{index=\"0\"} 2",
            "puma_busy_threads{index=\"0\"} 3",
            "puma_pool_capacity{index=\"0\"} 4",
            "puma_requests_count{index=\"0\"} 2",
            "thruway_responses_total{index=\"0\",status=\"4xx\"} 1",
            "thruway_responses_total{index=\"1\",status=\"5xx\"} 1",
            "# TYPE thruway_queue_seconds histogram",
            "thruway_queue_seconds_bucket{le=\"0.00025\"} 0",
            "thruway_queue_seconds_bucket{le=\"0.0005\"} 3",
            "thruway_queue_seconds_bucket{le=\"+Inf\"} 3",
            "thruway_queue_seconds_sum 0.000900",
            "thruway_queue_seconds_count 3",
            "thruway_busiest_client_ratio 0.666667",
            "thruway_fairness_ratio 0.900000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
