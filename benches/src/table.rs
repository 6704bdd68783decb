//! Tables and verdicts in the form of docs/benchmarks.md.

/// A table with a heading, and the notes below it.
#[derive(Debug)]
pub(super) struct Table {
    rows: String,
    verdicts: Vec<String>,
}

impl Table {
    /// Creates a table; `columns` are the heads of all columns, the first being that of the
    /// servers.
    pub(super) fn new(title: &str, columns: &[&str]) -> Self {
        let heads = columns.join(" | ");
        let rule = vec!["---"; columns.len()].join(" | ");
        let rows = format!("### {title}\n| {heads} |\n| {rule} |\n");
        Self { rows, verdicts: Vec::new() }
    }

    pub(super) fn row(&mut self, name: &str, cells: &[String]) {
        self.rows.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }

    /// Adds a note.
    pub(super) fn note(&mut self, line: &str) {
        self.verdicts.push(line.to_owned());
    }

    /// Adds a target: whether it was reached, or that there was nothing to compare it with.
    pub(super) fn target(&mut self, what: &str, reached: Option<(f64, bool)>) {
        self.verdicts.push(match reached {
            Some((figure, true)) => format!("Target {what}: {figure:.2}, reached."),
            Some((figure, false)) => format!("Target {what}: {figure:.2}, **missed**."),
            None => format!("Target {what}: not measured in this run."),
        });
    }

    /// The rows, and below them the verdicts, one per line.
    pub(super) fn text(self) -> String {
        format!("{}\n{}", self.rows, self.verdicts.join("  \n"))
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

/// The ratio of two medians.
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
            Target ≥ 1.25 × b: 1.50, reached.  \nTarget ≥ 3 × c: not measured in this run.";
        assert_eq!(table.text(), expected);
    }
}
