//! The results of an application's own tests.

use std::collections::BTreeMap;

use super::application::{Application, last_lines};
use super::report::Report;
use super::start;
use super::way::{COMPARED, Way};

/// The number of tests that are named.
const SHOWN_MAX: usize = 5;

/// Runs the tests in each of the ways. A result that changes between two plain runs is no difference.
pub(super) fn compare(application: &Application, report: &mut Report) -> Result<(), String> {
    let Some(words) = &application.tests else {
        report.row("tests", "plain", "none".to_owned());
        return Ok(());
    };
    let run = || -> Result<Results, String> {
        application.restore()?;
        let ended = application.run(Way::Plain, "test", words)?;
        Results::in_output(&ended.output).ok_or_else(|| {
            let said = last_lines(&format!("{}{}", ended.output, ended.errors), 12);
            format!(
                "`{}` prints no results:\n{said}\n\nhint: name a command of minitest or RSpec by --tests",
                words.join(" ")
            )
        })
    };
    let plain = run()?;
    report.row("tests", "plain", plain.summary.clone());
    let mut unstable = None;
    for way in COMPARED {
        let mut differing = Vec::new();
        let mut runs = 0;
        let start = start::start(way, application, "test", words, |ended| {
            runs += 1;
            let results = Results::in_output(&ended.output);
            let results = results.unwrap_or_else(|| Results::none(&last_lines(&ended.errors, 3)));
            differing.extend(plain.differences(&results));
            Ok(())
        })?;
        if !differing.is_empty() && unstable.is_none() {
            unstable = Some(plain.differences(&run()?));
        }
        let names = |line: &String| {
            unstable
                .as_ref()
                .is_some_and(|all| all.iter().any(|one| test_name(one) == test_name(line)))
        };
        let (own, others): (Vec<_>, Vec<_>) = differing.into_iter().partition(names);
        own.iter().for_each(|line| {
            report.note(format!("tests: {line}: differs from run to run without Thruway"))
        });
        let mut others: Vec<_> = others.into_iter().take(SHOWN_MAX).collect();
        if !start.is_right_kind {
            others.push(format!("never {}: {}", way.name(), start.how));
        }
        let same = if others.is_empty() { "the same" } else { "**differ**" };
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        report.row("tests", way.name(), format!("{same} in {runs}, {}", start.how));
        others.iter().for_each(|line| report.difference(format!("tests, {}: {line}", way.name())));
    }
    Ok(())
}

/// Returns the name of the test in a line of differences.
fn test_name(line: &str) -> &str {
    line.split(": ").next().unwrap_or_default()
}

/// The results of a run of tests.
#[derive(Debug, PartialEq, Eq)]
struct Results {
    /// The result of each test: minitest's letter, or `failed` for RSpec.
    tests: BTreeMap<String, String>,
    /// `148 runs, 400 assertions, 0 failures, 0 errors, 1 skips`.
    summary: String,
}

impl Results {
    /// Parses the output of minitest's `-v` or of RSpec; `None` without a summary.
    fn in_output(text: &str) -> Option<Self> {
        let mut results = Self { tests: BTreeMap::new(), summary: String::new() };
        for line in text.lines() {
            let line = line.trim_end();
            if (line.contains(" runs, ") && line.contains(" failures"))
                || (line.contains(" examples, ") && line.contains(" failure"))
            {
                line.clone_into(&mut results.summary);
            } else if let Some(rest) = line.strip_prefix("rspec ") {
                let place = rest.split(" # ").next().unwrap_or(rest);
                results.tests.insert(place.to_owned(), "failed".to_owned());
            } else if let Some((name, rest)) = line.split_once(" = ")
                && let Some((_, letter)) = rest.split_once(" s = ")
            {
                results.tests.insert(name.to_owned(), letter.to_owned());
            }
        }
        (!results.summary.is_empty()).then_some(results)
    }

    /// A run that printed no results.
    fn none(said: &str) -> Self {
        Self { tests: BTreeMap::new(), summary: format!("no results: {said}") }
    }

    /// Returns a line for each test with another result, or for other counts.
    fn differences(&self, other: &Self) -> Vec<String> {
        let names = self.tests.keys().chain(other.tests.keys());
        let names: std::collections::BTreeSet<_> = names.collect();
        let result = |results: &Self, name| {
            results.tests.get(name).map_or("not run", String::as_str).to_owned()
        };
        let differing = names.into_iter().filter_map(|name| {
            let (plain, now) = (result(self, name), result(other, name));
            (plain != now).then(|| format!("{name}: {now}, plain {plain}"))
        });
        let mut lines: Vec<_> = differing.collect();
        if lines.is_empty() && self.summary != other.summary {
            lines.push(format!("counts: {}, plain {}", other.summary, self.summary));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINITEST: &str = "ATest#test_a = 0.01 s = .\nATest#test_b = 0.02 s = F\n\nFinished\n\
        2 runs, 3 assertions, 1 failures, 0 errors, 0 skips\n";

    #[test]
    fn results_of_minitest_are_compared_without_their_times() {
        let plain = Results::in_output(MINITEST).unwrap();
        assert_eq!(plain.summary, "2 runs, 3 assertions, 1 failures, 0 errors, 0 skips");
        let later = Results::in_output(&MINITEST.replace("0.01", "9.99")).unwrap();
        assert_eq!(plain.differences(&later), Vec::<String>::new());
        let other = Results::in_output(&MINITEST.replace("s = F", "s = E")).unwrap();
        assert_eq!(plain.differences(&other), ["ATest#test_b: E, plain F"]);
        let more = Results::in_output(&MINITEST.replace("3 assertions", "4 assertions")).unwrap();
        assert_eq!(plain.differences(&more).len(), 1);
        assert_eq!(Results::in_output("LoadError\n"), None);
        assert!(!plain.differences(&Results::none("LoadError")).is_empty());
    }

    #[test]
    fn failures_of_rspec_are_known_by_their_places() {
        let text = "..F\n\nrspec ./spec/a_spec.rb:3 # A does b\n\n3 examples, 1 failure\n";
        let results = Results::in_output(text).unwrap();
        assert_eq!(results.tests.get("./spec/a_spec.rb:3").map(String::as_str), Some("failed"));
        let passes = Results::in_output("...\n\n3 examples, 0 failures\n").unwrap();
        assert_eq!(results.differences(&passes), ["./spec/a_spec.rb:3: not run, plain failed"]);
    }
}
