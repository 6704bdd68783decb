//! The three tables that started this: requests completed per connection.

use super::arena::{Arena, Scenario};
use super::server::App;
use crate::context::BenchContext;
use crate::table::Table;

/// The requests of each table, with the least number of bytes of the response.
const TABLES: [(&str, App, &str, f64); 3] = [
    ("121-byte response", App::Rack, "/", 121.0),
    ("9 MB response", App::Rack, "/file", 9e6),
    ("9 MB by X-Sendfile", App::Sendfile, "/sendfile", 9e6),
];

pub(crate) fn per_connection(context: &BenchContext) -> Result<String, String> {
    let arena = Arena::new(context)?;
    let seconds = arena.seconds(1.0);
    let mut text = String::new();
    for (title, app, path, bytes_min) in TABLES {
        let title = format!("{title}: requests completed per connection, `-w 2 -t 2`, {seconds} s");
        let mut table = Table::new(&title, &["server", "ten connections", "sum", "Jain"]);
        let options = ["-c", "10", "-d", &seconds];
        let scenario = Scenario { app, ..Scenario::rack(path, &options) };
        for contender in arena.servers(app) {
            let Some(running) = arena.start(contender, scenario)? else { continue };
            let run = arena.load(&running, scenario)?;
            if run.bytes_per_response() < bytes_min {
                table.row(
                    contender.name,
                    &["its responses are too short".into(), "".into(), "".into()],
                );
                continue;
            }
            let shares: Vec<_> = run.shares().iter().map(u64::to_string).collect();
            let sum = format!("{:.0}", run.total("/requests"));
            table.row(contender.name, &[shares.join(" "), sum, format!("{:.3}", run.jain())]);
        }
        text.push_str(&table.text());
    }
    Ok(text)
}
