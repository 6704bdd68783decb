//! The page that shows a folder's entries.

mod order;

use std::borrow::Cow;
use std::fmt::Write;

use thruway_resolve::{DenyList, Entry, FileKind, Name, OpenFile};

use order::Order;

/// Entries on one page; a folder with more is not shown.
const ENTRIES_MAX: usize = 10_000;

/// What stands before the rows. It loads nothing, and follows the browser's colour scheme.
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

/// An entry as its row shows it.
struct Row {
    is_folder: bool,
    name: Vec<u8>,
    size_bytes: Option<u64>,
    modified_seconds: Option<i64>,
}

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
    let mut rows: Vec<_> = shown.map(|entry| Row::of(folder, entry)).collect();
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

/// The folder's path, of which each part above it is a link.
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

/// How many rows there are of each kind, and what the files hold together.
fn sum(rows: &[Row]) -> String {
    let counted = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    let folders = rows.iter().filter(|row| row.is_folder).count();
    let bytes = rows.iter().filter_map(|row| row.size_bytes).sum();
    let files = counted(rows.len() - folders, "file");
    format!("{}, {files}, {}", counted(folders, "folder"), size(bytes))
}

impl Row {
    fn of(folder: &OpenFile, entry: Entry) -> Self {
        let seen = folder.look_at(&entry);
        let is_folder = seen.map_or(entry.is_directory, |(kind, ..)| kind == FileKind::Directory);
        Self {
            is_folder,
            name: entry.name,
            size_bytes: seen.filter(|_| !is_folder).map(|(_, size_bytes, _)| size_bytes),
            modified_seconds: seen.map(|(.., modified)| modified),
        }
    }

    /// A word for what it is, by the end of its name.
    fn kind(&self) -> &'static str {
        if self.is_folder {
            return "folder";
        }
        let name = String::from_utf8_lossy(&self.name);
        let media = mime_guess::from_path(&*name).first_raw().unwrap_or_default();
        let (kind, rest) = media.split_once('/').unwrap_or_default();
        let is_archive = |part: &&str| ["zip", "tar", "gz", "xz", "7z", "zst"].contains(part);
        match kind {
            "text" => "text",
            "image" => "image",
            "audio" => "audio",
            "video" => "video",
            "font" => "font",
            _ if rest == "pdf" => "PDF",
            _ if name.rsplit('.').take(1).any(|end| is_archive(&end)) => "archive",
            _ => "file",
        }
    }

    fn write(&self, page: &mut String) {
        let slash = if self.is_folder { "/" } else { "" };
        let name = escape(&String::from_utf8_lossy(&self.name));
        let link = percent_encode(&self.name);
        let size = self.size_bytes.map(size).unwrap_or_default();
        let class = if self.is_folder { " class=\"d\"" } else { "" };
        let kind = self.kind();
        // Writing to a String does not fail.
        let _ = write!(
            page,
            "<tr{class}><td><a href=\"./{link}{slash}\">{name}{slash}</a><td>{kind}<td>{size}<td>"
        );
        if let Some(seconds) = self.modified_seconds {
            let (day, time) = (day(seconds), time(seconds));
            let _ =
                write!(page, "<time datetime=\"{day}T{time}Z\">{day}<span> {time}</span></time>");
        }
        page.push('\n');
    }
}

/// A length as people read it, in units of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // A thousandth of a unit is exact enough.
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 {
        tenths /= 1024;
        unit += 1;
    }
    if tenths < 100 {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{} {}", tenths / 10, UNITS[unit])
    }
}

const DAY_SECONDS: i64 = 86_400;

/// `HH:MM`
fn time(seconds: i64) -> String {
    let minutes = seconds.rem_euclid(DAY_SECONDS) / 60;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `YYYY-MM-DD` in the Gregorian calendar, whose years begin in March here, so that a leap day comes last.
fn day(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY_SECONDS) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leaps = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Text with HTML's special characters escaped, for use between tags and in attributes.
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
    use std::time::{Duration, UNIX_EPOCH};
    use thruway_resolve::Boundary;

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1023, 1024, 1536, 10_239, 10_240, 1 << 20, u64::MAX].map(size);
        let expected =
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "9.9 KiB", "10 KiB", "1.0 MiB", "15 EiB"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn days_and_times_are_those_of_the_calendar() {
        let shown = |seconds| format!("{} {}", day(seconds), time(seconds));
        assert_eq!(shown(0), "1970-01-01 00:00");
        assert_eq!(shown(-1), "1969-12-31 23:59");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00");
        assert_eq!(shown(4_107_542_399), "2100-02-28 23:59");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00");
        assert_eq!(shown(1_795_336_980), "2026-11-22 08:43");
    }

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
