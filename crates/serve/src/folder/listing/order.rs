//! The order of a listing's rows, as the query names it: `sort=size`, or `sort=-size` for the largest first.

use std::cmp::Ordering;
use std::fmt::Write;

use super::row::ListingRow;

/// The key by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Kind,
    Size,
    Modified,
}

/// Each column, its word in the query, and its title.
const COLUMNS: [(Column, &str, &str); 4] = [
    (Column::Name, "name", "Name"),
    (Column::Kind, "kind", "Kind"),
    (Column::Size, "size", "Size"),
    (Column::Modified, "modified", "Modified (UTC)"),
];

/// A column and a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    column: Column,
    is_descending: bool,
}

impl Order {
    /// The order that the query names, or by name.
    pub(super) fn of_query(query: Option<&[u8]>) -> Self {
        let mut fields = query.unwrap_or_default().split(|byte| *byte == b'&');
        let wanted = fields.find_map(|field| field.strip_prefix(b"sort=")).unwrap_or_default();
        let (is_descending, word) = match wanted.strip_prefix(b"-") {
            Some(word) => (true, word),
            None => (false, wanted),
        };
        let known = COLUMNS.iter().find(|(_, own, _)| own.as_bytes() == word);
        match known {
            Some((column, ..)) => Self { column: *column, is_descending },
            None => Self { column: Column::Name, is_descending: false },
        }
    }

    /// Sorts rows with folders first. Equal rows keep their order, which is by name.
    pub(super) fn sort(self, rows: &mut [ListingRow]) {
        rows.sort_by(|a, b| {
            b.is_folder.cmp(&a.is_folder).then_with(|| {
                let order = self.compare(a, b);
                if self.is_descending { order.reverse() } else { order }
            })
        });
    }

    fn compare(self, a: &ListingRow, b: &ListingRow) -> Ordering {
        match self.column {
            Column::Name => a.name.cmp(&b.name),
            Column::Kind => a.kind().cmp(b.kind()),
            Column::Size => a.size_bytes.cmp(&b.size_bytes),
            Column::Modified => a.modified_seconds.cmp(&b.modified_seconds),
        }
    }

    /// Writes the titles of the columns, as links to the order by that column or to the reverse of the current order.
    pub(super) fn write_titles(self, page: &mut String) {
        for (column, word, title) in COLUMNS {
            let is_own = column == self.column;
            let minus = if is_own && !self.is_descending { "-" } else { "" };
            let state = match (is_own, self.is_descending) {
                (false, _) => "",
                (true, false) => " aria-sort=\"ascending\"",
                (true, true) => " aria-sort=\"descending\"",
            };
            // Writing to a String does not fail.
            let _ = write!(page, "<th{state}><a href=\"?sort={minus}{word}\">{title}</a>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, size_bytes: Option<u64>, modified: i64) -> ListingRow {
        let is_folder = size_bytes.is_none();
        ListingRow { is_folder, name: name.into(), size_bytes, modified_seconds: Some(modified) }
    }

    fn names(query: &str) -> Vec<String> {
        let mut rows = vec![
            row("a.txt", Some(3), 20),
            row("b.png", Some(1), 30),
            row("c.txt", Some(2), 10),
            row("sub", None, 5),
        ];
        Order::of_query(Some(query.as_bytes())).sort(&mut rows);
        rows.into_iter().map(|row| String::from_utf8(row.name).unwrap()).collect()
    }

    #[test]
    fn rows_come_in_the_order_that_is_asked_for_with_folders_first() {
        for (query, order) in [
            ("", ["sub", "a.txt", "b.png", "c.txt"]),
            ("sort=-name", ["sub", "c.txt", "b.png", "a.txt"]),
            ("sort=size", ["sub", "b.png", "c.txt", "a.txt"]),
            ("sort=-size", ["sub", "a.txt", "c.txt", "b.png"]),
            ("a=b&sort=modified", ["sub", "c.txt", "a.txt", "b.png"]),
            ("sort=kind", ["sub", "b.png", "a.txt", "c.txt"]),
            ("sort=nothing", ["sub", "a.txt", "b.png", "c.txt"]),
        ] {
            assert_eq!(names(query), order, "{query}");
        }
    }

    #[test]
    fn a_title_leads_to_the_order_from_the_other_end() {
        let mut titles = String::new();
        Order::of_query(Some(b"sort=size")).write_titles(&mut titles);
        assert!(titles.contains("<th aria-sort=\"ascending\"><a href=\"?sort=-size\">Size</a>"));
        assert!(titles.starts_with("<th><a href=\"?sort=name\">Name</a>"));
    }
}
