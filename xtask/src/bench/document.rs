//! docs/benchmarks.md: each verb's tables stand between two markers, and nothing else is touched.

use std::fs;
use std::path::Path;

/// Replaces what stands between `<!-- VERB -->` and `<!-- end VERB -->`.
pub(super) fn replace(document: &Path, verb: &str, section: &str) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", document.display());
    let text = fs::read_to_string(document).map_err(|error| failed(error.to_string()))?;
    let replaced = replaced(&text, verb, section)
        .ok_or_else(|| failed(format!("no markers <!-- {verb} --> and <!-- end {verb} -->")))?;
    fs::write(document, replaced).map_err(|error| failed(error.to_string()))
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
    fn only_the_verbs_own_section_is_replaced() {
        let text = "method\n<!-- a -->\nold\n<!-- end a -->\n<!-- b -->\nkept\n<!-- end b -->\n";
        let expected =
            "method\n<!-- a -->\nnew\n<!-- end a -->\n<!-- b -->\nkept\n<!-- end b -->\n";
        assert_eq!(replaced(text, "a", "new\n").as_deref(), Some(expected));
        assert_eq!(replaced(text, "c", "new"), None);
    }
}
