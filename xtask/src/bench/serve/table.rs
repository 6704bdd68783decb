//! Tables and verdicts as they stand in docs/benchmarks.md.

/// A table with a heading of its own.
#[derive(Debug)]
pub(super) struct Table {
    text: String,
}

impl Table {
    /// `columns` are the heads of all columns, the first being the servers'.
    pub(super) fn new(title: &str, columns: &[&str]) -> Self {
        let heads = columns.join(" | ");
        let rule = vec!["---"; columns.len()].join(" | ");
        Self { text: format!("### {title}\n| {heads} |\n| {rule} |\n") }
    }

    pub(super) fn row(&mut self, name: &str, cells: &[String]) {
        self.text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }

    /// A line below the table.
    pub(super) fn note(&mut self, line: &str) {
        if !self.text.ends_with("|\n") {
            self.text.push_str("  \n");
        }
        let separator = if self.text.ends_with("|\n") { "\n" } else { "" };
        self.text.push_str(&format!("{separator}{line}"));
    }

    /// Whether a target was reached, or that there was nothing to hold it against.
    pub(super) fn target(&mut self, what: &str, reached: Option<(f64, bool)>) {
        let line = match reached {
            Some((figure, true)) => format!("Target {what}: {figure:.2}, reached."),
            Some((figure, false)) => format!("Target {what}: {figure:.2}, **missed**."),
            None => format!("Target {what}: not measured in this run."),
        };
        self.note(&line);
    }

    pub(super) fn text(self) -> String {
        format!("{}\n", self.text.trim_end())
    }
}

/// The figure and whether it is at least `least`.
pub(super) fn at_least(figure: Option<f64>, least: f64) -> Option<(f64, bool)> {
    figure.map(|figure| (figure, figure >= least))
}

/// The figure and whether it is at most `most`.
pub(super) fn at_most(figure: Option<f64>, most: f64) -> Option<(f64, bool)> {
    figure.map(|figure| (figure, figure <= most))
}

/// One median against another.
pub(super) fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_rows_and_then_its_verdicts() {
        let mut table = Table::new("Short", &["server", "requests/s"]);
        table.row("a", &["10".into()]);
        table.target("≥ 1.25 × b", at_least(ratio(Some(3.0), Some(2.0)), 1.25));
        table.target("≥ 3 × c", at_least(ratio(Some(3.0), None), 3.0));
        let expected = "### Short\n| server | requests/s |\n| --- | --- |\n| a | 10 |\n\n\
            Target ≥ 1.25 × b: 1.50, reached.  \nTarget ≥ 3 × c: not measured in this run.\n";
        assert_eq!(table.text(), expected);
    }
}
