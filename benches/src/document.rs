//! docs/benchmarks.md: each verb's tables are between two markers, and nothing else is changed.

use std::fs;
use std::path::Path;

/// Replaces the text between `<!-- VERB -->` and `<!-- end VERB -->`.
pub(super) fn replace(document: &Path, verb: &str, section: &str) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", document.display());
    let text = fs::read_to_string(document).map_err(|error| failed(error.to_string()))?;
    let replaced = replaced(&text, verb, section)
        .ok_or_else(|| failed(format!("no markers <!-- {verb} --> and <!-- end {verb} -->")))?;
    fs::write(document, replaced).map_err(|error| failed(error.to_string()))
}

/// Inserts the markers of `verb` after those of another verb, unless the page has them.
pub(super) fn insert_after(document: &Path, other: &str, verb: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", document.display());
    let text = fs::read_to_string(document).map_err(failed)?;
    fs::write(document, with_markers(&text, other, verb)).map_err(failed)
}

fn with_markers(text: &str, other: &str, verb: &str) -> String {
    let (start, end) = (format!("<!-- {verb} -->"), format!("<!-- end {verb} -->"));
    if text.contains(&end) {
        return text.to_owned();
    }
    let place = format!("<!-- end {other} -->");
    text.replacen(&place, &format!("{place}\n\n{start}\n{end}"), 1)
}

fn replaced(text: &str, verb: &str, section: &str) -> Option<String> {
    let (start, end) = (format!("<!-- {verb} -->"), format!("<!-- end {verb} -->"));
    let (before, rest) = text.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}\n{}\n{end}{after}", section.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_inserted_once() {
        let text = with_markers("<!-- a -->\n<!-- end a -->\nrest\n", "a", "b");
        assert_eq!(text, "<!-- a -->\n<!-- end a -->\n\n<!-- b -->\n<!-- end b -->\nrest\n");
        assert_eq!(with_markers(&text, "a", "b"), text);
    }

    #[test]
    fn only_the_verbs_own_section_is_replaced() {
        let text = "method\n<!-- a -->\nold\n<!-- end a -->\n<!-- b -->\nkept\n<!-- end b -->\n";
        let expected =
            "method\n<!-- a -->\nnew\n<!-- end a -->\n<!-- b -->\nkept\n<!-- end b -->\n";
        assert_eq!(replaced(text, "a", "new\n").as_deref(), Some(expected));
        assert_eq!(replaced(text, "c", "new"), None);
    }
}
