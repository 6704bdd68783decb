//! Compares the state after each kind of boot: features, methods, routes, middleware, translations, variables.

use std::collections::BTreeMap;
use std::fs;

use super::application::{Application, last_lines};
use super::report::Report;
use super::start;
use super::way::{COMPARED, Way};

/// The number of lines of a difference that are shown.
const SHOWN_MAX: usize = 5;
const SHOWN_WIDTH_MAX: usize = 160;

/// Boots the application in one environment, in each of the ways.
pub(super) fn compare(
    application: &Application,
    environment: &str,
    report: &mut Report,
) -> Result<(), String> {
    let words = words(application);
    let plain = State::of(application, Way::Plain, environment, &words)?;
    let what = format!("boot, {environment}");
    report.row(&what, "plain", plain.counts());
    for way in COMPARED {
        let mut differences = Vec::new();
        let start = start::start(way, application, environment, &words, |_| {
            let state = State::read(application);
            differences.extend(plain.difference(&state, way.keeps_order()));
            Ok(())
        })?;
        if !start.is_right_kind {
            differences.push(format!("never {}: {}", way.name(), start.how));
        }
        let same = if differences.is_empty() { "the same" } else { "**differs**" };
        report.row(&what, way.name(), format!("{same}, {}", start.how));
        differences.dedup();
        for difference in differences {
            report.difference(format!("{what}, {}: {difference}", way.name()));
        }
    }
    Ok(())
}

fn words(application: &Application) -> Vec<String> {
    let script = application.state_script().display().to_string();
    let starts = if application.is_rails() { &["bin/rails", "runner"][..] } else { &["ruby"] };
    starts.iter().map(|word| (*word).to_owned()).chain([script]).collect()
}

/// The lines that `state.rb` wrote.
struct State(Vec<String>);

impl State {
    fn of(
        application: &Application,
        way: Way,
        environment: &str,
        words: &[String],
    ) -> Result<Self, String> {
        application.restore()?;
        let ended = application.run(way, environment, words)?;
        let state = Self::read(application);
        if ended.is_success && !state.0.is_empty() {
            return Ok(state);
        }
        Err(format!(
            "it does not boot in {environment} as it is:\n{}\n\nhint: try `RAILS_ENV={environment} {}` in {}, \
             or choose --environment",
            last_lines(&ended.errors, 12),
            words.join(" "),
            application.folder.display()
        ))
    }

    /// Reads the file of the last boot and removes it.
    fn read(application: &Application) -> Self {
        let file = application.beside("state");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Returns the number of lines of each kind: `1289 features, 13 routes`.
    fn counts(&self) -> String {
        let counts = ["feature", "module", "route", "middleware", "translation"].map(|kind| {
            let start = format!("{kind} ");
            let count = self.0.iter().filter(|line| line.starts_with(&start)).count();
            (count > 0).then(|| format!("{count} {kind}s"))
        });
        counts
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
            .replace("middlewares", "middleware")
    }

    /// Returns the lines that only one of the states has, or the first line that has another place.
    fn difference(&self, other: &Self, keeps_order: bool) -> Option<String> {
        if self.0 == other.0 {
            return None;
        }
        if other.0.is_empty() {
            return Some("it does not boot".to_owned());
        }
        let mut counts = BTreeMap::<&str, i32>::new();
        self.0.iter().for_each(|line| *counts.entry(line).or_default() += 1);
        other.0.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
        let changed: Vec<_> = counts.into_iter().filter(|(_, count)| *count != 0).collect();
        if changed.is_empty() && !keeps_order {
            return None;
        }
        if changed.is_empty() {
            let place = self.0.iter().zip(&other.0).find(|(one, two)| one != two);
            return place
                .map(|(one, two)| format!("`{}` in the place of `{}`", shown(two), shown(one)));
        }
        let lines = changed.iter().take(SHOWN_MAX).map(|(line, count)| {
            let sign = if *count > 0 { "plain alone has" } else { "plain lacks" };
            format!("{sign} `{}`", shown(line))
        });
        let lines = lines.collect::<Vec<_>>().join("; ");
        Some(format!("{} lines differ: {lines}", changed.len()))
    }
}

fn shown(line: &str) -> String {
    line.chars().take(SHOWN_WIDTH_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> State {
        State(text.lines().map(str::to_owned).collect())
    }

    #[test]
    fn another_order_counts_where_it_is_kept() {
        let (one, two) = (state("feature a\nfeature b"), state("feature b\nfeature a"));
        assert_eq!(one.difference(&two, false), None);
        let said = one.difference(&two, true);
        assert_eq!(said.as_deref(), Some("`feature b` in the place of `feature a`"));
        assert_eq!(one.difference(&one, true), None);
    }

    #[test]
    fn lines_that_only_one_state_has_are_named() {
        let (one, two) = (state("feature a\nfeature b"), state("feature a\nfeature a\nroute c"));
        let said = one.difference(&two, false).unwrap();
        assert!(said.starts_with("3 lines differ: "), "{said}");
        assert!(
            said.contains("plain lacks `route c`") && said.contains("plain alone has `feature b`")
        );
        assert_eq!(one.difference(&state(""), false).as_deref(), Some("it does not boot"));
        assert_eq!(two.counts(), "2 features, 1 routes");
    }
}
