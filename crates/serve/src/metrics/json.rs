//! The figures as JSON, for the live page, for `thruway ctl` and for programs.

use std::fmt::{self, Write as _};

use super::snapshot::{RequestsInside, Snapshot, WorkerFigures};
use super::table::Time;

/// The maximum number of clients in the output.
const CLIENTS_MAX: usize = 20;

impl Snapshot {
    /// The figures of the live page.
    pub(crate) fn json(&self) -> String {
        let mut out = String::with_capacity(4 << 10);
        // Writing to a String does not fail.
        let _ = self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) -> fmt::Result {
        write!(
            out,
            "{{\"version\":\"{}\",\"booted_workers\":{},",
            env!("CARGO_PKG_VERSION"),
            self.booted()
        )?;
        out.push_str("\"workers\":");
        list(out, &self.workers, WorkerFigures::write_json)?;
        out.push_str(",\"times\":{");
        for (at, (name, time)) in NAMES.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let times = self.time(*time);
            write!(
                out,
                "{comma}\"{name}\":{{\"count\":{},\"sum_us\":{}",
                times.count(),
                times.sum_us
            )?;
            for (name, share) in [("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)] {
                match times.quantile_us(share) {
                    Some(us) => write!(out, ",\"{name}\":{us}")?,
                    None => write!(out, ",\"{name}\":null")?,
                }
            }
            out.push('}');
        }
        self.write_clients_json(out)
    }

    fn write_clients_json(&self, out: &mut String) -> fmt::Result {
        let clients = &self.clients;
        let (all, count) = (&clients.all, clients.count());
        write!(
            out,
            "}},\"lately\":{{\"requests\":{},\"served_us\":{},\"waited_us\":{},\"clients\":{count},",
            all.requests, all.served_us, all.waited_us
        )?;
        write!(
            out,
            "\"busiest_ratio\":{:.6},\"fairness_ratio\":{:.6}}}",
            clients.busiest_share(),
            clients.fairness()
        )?;
        out.push_str(",\"clients\":");
        list(out, clients.busiest(CLIENTS_MAX), |client, out| {
            out.push_str("{\"name\":");
            text(out, &client.name)?;
            let (requests, served, waited) = (client.requests, client.served_us, client.waited_us);
            write!(out, ",\"requests\":{requests},\"served_us\":{served},\"waited_us\":{waited}}}")
        })?;
        out.push_str(",\"slowest\":");
        list(out, &self.slowest, |request, out| {
            out.push_str("{\"request\":");
            text(out, &request.target)?;
            let (took, waited, status) = (request.took_us, request.waited_us, request.status);
            write!(out, ",\"took_us\":{took},\"waited_us\":{waited},\"status\":{status}}}")
        })?;
        self.write_cache_json(out)?;
        self.write_certificates_json(out)?;
        out.push('}');
        Ok(())
    }

    fn write_certificates_json(&self, out: &mut String) -> fmt::Result {
        if self.certificates.is_empty() {
            return Ok(());
        }
        out.push_str(",\"certificates\":");
        list(out, &self.certificates, |certificate, out| {
            out.push_str("{\"name\":");
            text(out, &certificate.name)?;
            match certificate.not_after_s {
                Some(time_s) => write!(out, ",\"not_after_seconds\":{time_s}")?,
                None => out.push_str(",\"not_after_seconds\":null"),
            }
            let (due_s, failures) = (certificate.due_s, certificate.failures);
            write!(out, ",\"due_seconds\":{due_s},\"failures\":{failures},\"last_error\":")?;
            match &certificate.last_error {
                Some(error) => text(out, error)?,
                None => out.push_str("null"),
            }
            out.push('}');
            Ok(())
        })
    }

    fn write_cache_json(&self, out: &mut String) -> fmt::Result {
        let Some(cache) = &self.cache else { return Ok(()) };
        out.push_str(",\"cache\":{");
        for (counter, name) in thruway_cache::Counter::ALL {
            write!(out, "\"{name}\":{},", cache.count(counter))?;
        }
        let (items, bytes, bytes_max) = (cache.items, cache.bytes, cache.bytes_max);
        write!(out, "\"items\":{items},\"bytes\":{bytes},\"bytes_max\":{bytes_max}}}")
    }
}

const NAMES: [(&str, Time); 6] = [
    ("queue", Time::Queue),
    ("proxy_queue", Time::FromProxy),
    ("request", Time::Request),
    ("application", Time::Application),
    ("gvl_wait", Time::LockWait),
    ("gc_pause", Time::Collection),
];

impl WorkerFigures {
    fn write_json(&self, out: &mut String) -> fmt::Result {
        let present = self.current_load;
        write!(
            out,
            "{{\"index\":{},\"pid\":{},\"started_at\":{},",
            self.index, self.pid, self.started_at
        )?;
        write!(
            out,
            "\"starts\":{},\"booted\":{},\"draining\":{},",
            self.starts, present.is_serving, present.is_draining
        )?;
        write!(out, "\"threads\":{},\"busy_threads\":{},", self.threads, self.busy_threads)?;
        write!(
            out,
            "\"connections\":{},\"active\":{},\"waiting\":{},",
            present.connections, present.active, present.waiting
        )?;
        write!(out, "\"requests\":{},\"aborted\":{},", self.requests, self.aborted)?;
        let RequestsInside { computing, waiting, streaming } = self.inside;
        write!(out, "\"computing_requests\":{computing},\"waiting_requests\":{waiting},")?;
        write!(out, "\"streaming_requests\":{streaming},")?;
        let [a, b, c, d, e] = self.statuses;
        write!(out, "\"responses\":[{a},{b},{c},{d},{e}],")?;
        write!(out, "\"memory_bytes\":{}}}", self.memory_bytes.unwrap_or(0))
    }
}

/// Writes a list, with `write_item` for each item.
fn list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    write_item: impl Fn(T, &mut String) -> fmt::Result,
) -> fmt::Result {
    out.push('[');
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_item(item, out)?;
    }
    out.push(']');
    Ok(())
}

/// Writes a string. The text comes from clients, so `<` is escaped, too: no page takes it for markup.
fn text(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => write!(out, "\\{char}")?,
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(out, "\\u{:04x}", u32::from(char))?,
            char if char.is_control() => write!(out, "\\u{:04x}", u32::from(char))?,
            char => out.push(char),
        }
    }
    out.push('"');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::example;
    use super::text;

    #[test]
    fn texts_from_clients_are_escaped() {
        let mut out = String::new();
        text(&mut out, "a\"\\\n<b>\u{2028}é").unwrap();
        assert_eq!(out, r#""a\"\\\u000a\u003cb\u003e\u2028é""#);
    }

    #[test]
    fn workers_clients_and_slow_requests_are_in_it() {
        let json = example().json();
        for part in [
            r#""booted_workers":1,"workers":[{"index":0,"pid":"#,
            r#""threads":5,"busy_threads":1,"connections":7,"active":3,"waiting":2,"requests":2"#,
            r#""computing_requests":1,"waiting_requests":4,"streaming_requests":3,"#,
            r#""queue":{"count":3,"sum_us":900,"p50_us":500,"p95_us":500,"p99_us":500}"#,
            r#""gc_pause":{"count":0,"sum_us":0,"p50_us":null"#,
            r#""lately":{"requests":3,"served_us":21300,"waited_us":2700,"clients":2,"#,
            r#"{"name":"192.0.2.1","requests":2,"served_us":14200,"waited_us":1800}"#,
            r#"{"name":"a\"b","requests":1"#,
            r#"{"request":"GET /a\\b","took_us":7100"#,
        ] {
            assert!(json.contains(part), "{part} is not in {json}");
        }
    }
}
