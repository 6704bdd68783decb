//! The table of results of an application.

/// The results of one application.
#[derive(Debug)]
pub(super) struct Report {
    name: String,
    rows: Vec<[String; 3]>,
    /// Differences that are right, each with its reason, and parts that could not be compared.
    notes: Vec<String>,
    differences: Vec<String>,
}

impl Report {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), rows: Vec::new(), notes: Vec::new(), differences: Vec::new() }
    }

    /// Adds a row of the part, the way and the result, and prints the row, since the next one takes a while.
    pub(super) fn row(&mut self, what: &str, way: &str, result: String) {
        println!("  {what}, {way}: {result}");
        self.rows.push([what.to_owned(), way.to_owned(), result]);
    }

    pub(super) fn note(&mut self, line: String) {
        if !self.notes.contains(&line) {
            self.notes.push(line);
        }
    }

    pub(super) fn difference(&mut self, line: String) {
        println!("    {line}");
        self.differences.push(line);
    }

    pub(super) fn differences(&self) -> usize {
        self.differences.len()
    }

    /// Returns the table, with notes and differences below it.
    pub(super) fn text(&self) -> String {
        let mut text =
            format!("### {}\n| compared | way | result |\n| --- | --- | --- |\n", self.name);
        for row in &self.rows {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        for (title, lines) in [("Explained", &self.notes), ("Differences", &self.differences)] {
            if !lines.is_empty() {
                text.push_str(&format!("\n{title}:\n- {}\n", lines.join("\n- ")));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_said_once_and_is_no_difference() {
        let mut report = Report::new("shop");
        report.row("tests", "packed", "the same".into());
        report.note("Puma sends no date".into());
        report.note("Puma sends no date".into());
        let text = "### shop\n| compared | way | result |\n| --- | --- | --- |\n| tests | packed | the same |\n\n\
            Explained:\n- Puma sends no date\n";
        assert_eq!((report.text().as_str(), report.differences()), (text, 0));
        report.difference("GET /: 500".into());
        assert!(report.text().ends_with("\nDifferences:\n- GET /: 500\n"));
        assert_eq!(report.differences(), 1);
    }
}
