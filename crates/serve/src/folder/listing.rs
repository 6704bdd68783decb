//! The page that shows a folder's entries.

use thruway_resolve::{DenyList, OpenFile};

/// Entries on one page; a folder with more is not shown.
const ENTRIES_MAX: usize = 10_000;

/// The page for the open folder at `path`, a URL's path that is well formed. Denied names are left out.
pub(super) fn page(
    folder: &OpenFile,
    path: &[u8],
    deny: &DenyList,
) -> Result<Vec<u8>, thruway_resolve::Error> {
    let title = escape(&String::from_utf8_lossy(path));
    let mut page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n"
    );
    if path != b"/" {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for entry in folder.listing(ENTRIES_MAX)? {
        if deny.denies_component(&entry.name) {
            continue;
        }
        let slash = if entry.is_directory { "/" } else { "" };
        let name = escape(&String::from_utf8_lossy(&entry.name));
        let link = percent_encode(&entry.name);
        page.push_str(&format!("<li><a href=\"./{link}{slash}\">{name}{slash}</a>\n"));
    }
    page.push_str("</ul>\n");
    Ok(page.into_bytes())
}

/// Text that stands for itself in HTML, between tags and in attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// One component of a URL's path: only unreserved characters stay as they are.
pub(super) fn percent_encode(component: &[u8]) -> String {
    let mut encoded = String::with_capacity(component.len());
    for byte in component {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(*byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use thruway_resolve::{Boundary, Name};

    #[test]
    fn names_are_text_and_links_whatever_they_hold() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a<b>&\"'.txt", "100%?#.txt", "na\u{ef}ve", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let deny = DenyList::new().hidden();
        let boundary = Boundary::new(folder.path(), deny.clone()).unwrap();
        let open = boundary.open(&Name::from_url_path(b"/").unwrap()).unwrap();
        let page = String::from_utf8(page(&open, b"/x<y/", &deny).unwrap()).unwrap();
        assert!(page.contains("<h1>/x&lt;y/</h1>"));
        assert!(
            page.contains("<a href=\"./a%3Cb%3E%26%22%27.txt\">a&lt;b&gt;&amp;&quot;&#39;.txt</a>")
        );
        assert!(page.contains("<a href=\"./100%25%3F%23.txt\">100%?#.txt</a>"));
        assert!(page.contains("<a href=\"./na%C3%AFve\">na\u{ef}ve</a>"));
        assert!(page.contains("<a href=\"./sub/\">sub/</a>"));
        assert!(page.contains("<a href=\"../\">"));
        assert!(!page.contains("hidden"));
    }
}
