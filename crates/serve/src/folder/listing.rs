//! The page that shows a folder's entries.

mod order;
mod row;
mod text;

use std::borrow::Cow;
use std::fmt::Write;

use thruway_resolve::{DenyList, Name, OpenFile};

use order::Order;
use row::ListingRow;
pub(super) use text::percent_encode;
use text::{escape, size};

/// The maximum number of entries on one page; a larger folder is not listed.
const ENTRIES_MAX: usize = 10_000;

/// The style of the page, which loads nothing and follows the browser's colour scheme.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.25rem;overflow-wrap:anywhere;margin-left:.5rem}
p{color:GrayText;margin:0 .5rem 1rem}
h1 a,td a{text-decoration:none}
h1 a:hover,td a:hover{text-decoration:underline}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .5rem;border-bottom:1px solid #8884}
th{font-weight:600}
th a{color:inherit;text-decoration:none}
th[aria-sort=ascending] a::after{content:' \\2191'}
th[aria-sort=descending] a::after{content:' \\2193'}
td:first-child{overflow-wrap:anywhere}
td:nth-child(2){color:GrayText}
th:nth-child(n+3),td:nth-child(n+3){text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.d a{font-weight:600}
tr:hover td{background:#8881}
@media(max-width:40rem){th:nth-child(2),td:nth-child(2){display:none}time span{display:none}}
";

/// The page for the open folder `name`: its parent, its folders, its files, each in the order that the query names.
/// Denied names are left out.
pub(super) fn page(
    folder: &OpenFile,
    name: &Name,
    query: Option<&[u8]>,
    deny: &DenyList,
) -> Result<Vec<u8>, thruway_resolve::Error> {
    let entries = folder.listing(ENTRIES_MAX)?;
    let shown = entries.into_iter().filter(|entry| !deny.denies_component(&entry.name));
    let mut rows: Vec<_> = shown.map(|entry| ListingRow::of(folder, entry)).collect();
    let order = Order::of_query(query);
    order.sort(&mut rows);
    let parts: Vec<_> = name.components().map(String::from_utf8_lossy).collect();
    let slash = if parts.is_empty() { "" } else { "/" };
    let title = escape(&format!("/{}{slash}", parts.join("/")));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{}</h1>\n<p>{}</p>\n<table>\n<thead><tr>",
        path(&parts),
        sum(&rows)
    );
    order.write_titles(&mut page);
    page.push_str("\n<tbody>\n");
    if !parts.is_empty() {
        page.push_str("<tr class=\"d\"><td><a href=\"../\">../</a><td><td><td>\n");
    }
    for row in &rows {
        row.write(&mut page);
    }
    page.push_str("</table>\n");
    Ok(page.into_bytes())
}

/// The folder's path, with a link for each ancestor.
fn path(parts: &[Cow<'_, str>]) -> String {
    let Some((own, above)) = parts.split_last() else { return "/".into() };
    let mut path = format!("<a href=\"{}\">/</a>", "../".repeat(parts.len()));
    for (index, part) in above.iter().enumerate() {
        let up = "../".repeat(above.len() - index);
        // Writing to a String does not fail.
        let _ = write!(path, "<a href=\"{up}\">{}/</a>", escape(part));
    }
    path + &escape(own) + "/"
}

/// The number of folders and of files, and the total size of the files.
fn sum(rows: &[ListingRow]) -> String {
    let counted = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    let folders = rows.iter().filter(|row| row.is_folder).count();
    let bytes = rows.iter().filter_map(|row| row.size_bytes).sum();
    let files = counted(rows.len() - folders, "file");
    format!("{}, {files}, {}", counted(folders, "folder"), size(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};
    use thruway_resolve::Boundary;

    #[test]
    fn folders_go_first_and_what_leads_elsewhere_has_no_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("b.txt")).unwrap();
        file.set_len(1536).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_795_336_980)).unwrap();
        std::fs::create_dir(folder.path().join("z")).unwrap();
        std::fs::create_dir(folder.path().join("c")).unwrap();
        for (to, name) in [("c", "to_c"), ("/etc/passwd", "a_out"), ("b.txt", "to_b")] {
            std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        }
        let boundary = Boundary::new(folder.path(), DenyList::new()).unwrap();
        let root = Name::from_url_path(b"/").unwrap();
        let page = page(&boundary.open(&root).unwrap(), &root, None, &DenyList::new()).unwrap();
        let page = String::from_utf8(page).unwrap();
        let names: Vec<_> =
            page.split("href=\"./").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(names, ["c/", "to_c/", "z/", "a_out", "b.txt", "to_b"]);
        let cells = "<td>text<td>1.5 KiB<td>\
                     <time datetime=\"2026-11-22T08:43Z\">2026-11-22<span> 08:43</span></time>\n";
        assert!(page.contains(&format!("b.txt</a>{cells}")), "{page}");
        assert!(page.contains(&format!("to_b</a>{}", cells.replace("text", "file"))), "{page}");
        assert!(page.contains("a_out</a><td>file<td><td>\n"), "{page}");
        assert!(!page.contains("../"), "the root has no parent");
    }

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
        let name = Name::from_url_path(b"/x%3Cy/").unwrap();
        let page = String::from_utf8(page(&open, &name, None, &deny).unwrap()).unwrap();
        assert!(page.contains("<h1><a href=\"../\">/</a>x&lt;y/</h1>"));
        assert!(page.contains("<p>1 folder, 3 files, 0 B</p>"), "{page}");
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
