//! A library scanner, which lists a folder again only if the folder's time of modification has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::audit::same;
use super::model::Time;
use super::server::{LIBRARY, MediaServer, modified};

#[derive(Debug, Clone, Default)]
struct Listing {
    modified: Time,
    files: Vec<String>,
    folders: Vec<String>,
}

/// The state of each folder at the last scan.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    seen: BTreeMap<String, Listing>,
}

impl Scanner {
    /// Forgets everything, as after a disk went or came: the times that are shown then may be those of before.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
    }
}

impl MediaServer {
    /// Scans the library by its times, and compares what the scanner knows then with the model.
    pub(super) fn scan(&mut self) {
        self.note("scan".into());
        self.counts.scans += 1;
        let before = std::mem::take(&mut self.scanner.seen);
        let (mut seen, mut files) = (BTreeMap::new(), BTreeSet::new());
        let mut folders: Vec<_> =
            self.model.shows_folder(LIBRARY).then(|| LIBRARY.to_owned()).into_iter().collect();
        while let Some(folder) = folders.pop() {
            let now = modified(&fs::symlink_metadata(self.target(&folder)).unwrap());
            let known = before.get(&folder).filter(|known| known.modified == now).cloned();
            let listing = known.unwrap_or_else(|| self.list(&folder, now));
            folders.extend(listing.folders.iter().cloned());
            files.extend(listing.files.iter().cloned());
            seen.insert(folder, listing);
        }
        self.scanner.seen = seen;
        same("files that a scan by times knows", &files, &self.model.names_below(LIBRARY));
    }

    fn list(&self, folder: &str, modified: Time) -> Listing {
        let mut listing = Listing { modified, ..Listing::default() };
        for entry in fs::read_dir(self.target(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => listing.folders.push(path),
                false => listing.files.push(path),
            }
        }
        listing
    }
}
