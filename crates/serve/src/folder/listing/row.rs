//! One entry of a folder, as its row shows it.

use std::fmt::Write;

use thruway_resolve::{Entry, FileKind, OpenFile};

use super::text::{day, escape, percent_encode, size, time};

/// An entry as its row shows it.
pub(super) struct ListingRow {
    pub(super) is_folder: bool,
    pub(super) name: Vec<u8>,
    pub(super) size_bytes: Option<u64>,
    pub(super) modified_seconds: Option<i64>,
}

impl ListingRow {
    pub(super) fn of(folder: &OpenFile, entry: Entry) -> Self {
        let seen = folder.look_at(&entry);
        let is_folder = seen.map_or(entry.is_directory, |(kind, ..)| kind == FileKind::Directory);
        Self {
            is_folder,
            name: entry.name,
            size_bytes: seen.filter(|_| !is_folder).map(|(_, size_bytes, _)| size_bytes),
            modified_seconds: seen.map(|(.., modified)| modified),
        }
    }

    /// The kind of the entry in one word, from the suffix of its name.
    pub(super) fn kind(&self) -> &'static str {
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

    pub(super) fn write(&self, page: &mut String) {
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
