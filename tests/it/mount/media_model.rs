//! A simulated media server on three small disks, compared with a model: downloads with preallocation and hash checks,
//! imports by hard link, scans, moves between disks, full disks, and a disk that disappears and returns.
//!
//! `THRUWAY_MEDIA_STEPS` sets the number of steps. `media_day` knows more of each disk, and runs for longer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::differential::Numbers;
use super::fixture::{Mounted, wait_until};
use super::freshness::number;
use super::submounts::Disks;
use crate::{stderr, stdout, thruway};

const SOURCES: &[&str] = &["disk1", "disk2", "disk3"];
const DISK_BYTES: u64 = 6 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// A file of the model; several names may have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    number: u64,
    pieces: u64,
}

impl Content {
    fn piece(self, at: u64) -> Vec<u8> {
        let start = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at;
        start.to_le_bytes().repeat(PIECE_BYTES / 8)
    }

    fn bytes(self) -> Vec<u8> {
        (0..self.pieces).flat_map(|at| self.piece(at)).collect()
    }
}

struct MediaServer {
    mounted: Mounted,
    disks: Disks,
    numbers: Numbers,
    names: BTreeMap<String, Content>,
    next: u64,
}

impl MediaServer {
    fn target(&self, name: &str) -> PathBuf {
        self.mounted.target(name)
    }

    fn random_name(&mut self, folder: &str) -> Option<String> {
        let all: Vec<_> =
            self.names.keys().filter(|name| name.starts_with(folder)).cloned().collect();
        let at = self.numbers.below(all.len().max(1) as u64);
        all.get(usize::try_from(at).unwrap()).cloned()
    }

    /// Writes the pieces in any order, as a torrent does, and checks some as they come.
    fn download(&mut self) {
        let content = Content { number: self.next, pieces: 1 + self.numbers.below(12) };
        self.next += 1;
        let name = format!("downloads/{}", content.number);
        let mut file = File::options();
        let file = file.read(true).write(true).create_new(true).open(self.target(&name)).unwrap();
        let length = content.pieces * PIECE_BYTES as u64;
        let mut done = Ok(());
        if self.numbers.below(2) == 0 {
            let none = rustix::fs::FallocateFlags::empty();
            done = rustix::fs::fallocate(&file, none, 0, length).map_err(std::io::Error::from);
        }
        let mut order: Vec<_> = (0..content.pieces).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, usize::try_from(self.numbers.below(at as u64 + 1)).unwrap());
        }
        for at in order {
            let offset = at * PIECE_BYTES as u64;
            done = done.and_then(|()| file.write_all_at(&content.piece(at), offset));
            if done.is_ok() && self.numbers.below(3) == 0 {
                let mut read = vec![0; PIECE_BYTES];
                file.read_exact_at(&mut read, offset).unwrap();
                assert_eq!(read, content.piece(at), "{name}, piece {at}");
            }
        }
        drop(file);
        match done {
            Ok(()) => drop(self.names.insert(name, content)),
            Err(error) => {
                // All disks are full: a part of the library goes.
                assert_eq!(error.raw_os_error(), Some(28), "{name}");
                fs::remove_file(self.target(&name)).unwrap();
                for _ in 0..3 {
                    self.delete();
                }
            }
        }
    }

    /// Links a download into the library, whose folder may be on other disks.
    fn import(&mut self) {
        let Some(from) = self.random_name("downloads/") else { return };
        let folder = format!("library/show {}", self.numbers.below(5));
        let to = format!("{folder}/episode {}", self.next);
        self.next += 1;
        fs::create_dir_all(self.target(&folder)).unwrap();
        match fs::hard_link(self.target(&from), self.target(&to)) {
            Ok(()) => {
                let inode = |name: &str| fs::metadata(self.target(name)).unwrap().ino();
                assert_eq!(inode(&from), inode(&to));
                self.names.insert(to, self.names[&from]);
            }
            // The disk of the file has no room for a folder.
            Err(error) => assert_eq!(error.raw_os_error(), Some(18), "{from} {to}"),
        }
    }

    fn rename(&mut self) {
        let Some(from) = self.random_name("library/") else { return };
        let folder = format!("library/season {}", self.numbers.below(3));
        let to = format!("{folder}/episode {}", self.next);
        self.next += 1;
        fs::create_dir_all(self.target(&folder)).unwrap();
        match fs::rename(self.target(&from), self.target(&to)) {
            Ok(()) => {
                let content = self.names.remove(&from).unwrap();
                self.names.insert(to, content);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(18), "{from} {to}"),
        }
    }

    fn delete(&mut self) {
        let folder = self.numbers.of(&["downloads/", "library/", ""]);
        let Some(name) = self.random_name(folder) else { return };
        fs::remove_file(self.target(&name)).unwrap();
        self.names.remove(&name);
    }

    /// Moves files between the disks.
    fn tier(&mut self) {
        let to = self.mounted.path(self.numbers.of(SOURCES));
        let mut command = thruway();
        command.args(["mount", "move", "--apply"]);
        match self.numbers.below(2) {
            0 => command.arg("--balance"),
            _ => command.arg("--until-fill").arg("40").arg("--to").arg(to),
        };
        let output = command.arg(self.target("")).output().unwrap();
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    }

    /// Unmounts a disk, checks the rest, and mounts the disk again.
    fn disk_goes_and_comes(&mut self) {
        let disk = self.numbers.of(SOURCES);
        let place = self.mounted.path(disk);
        self.disks.unmount(&place);
        let is_away =
            || self.mounted.status_of_any("failed_sources").as_object().unwrap().len() == 1;
        wait_until("the disk is away", is_away);
        // Writes go to the other disks now, and nothing is written below the mount point.
        let name = format!("downloads/{}", self.next);
        let content = Content { number: self.next, pieces: 1 };
        self.next += 1;
        if fs::create_dir_all(self.target("downloads")).is_ok()
            && fs::write(self.target(&name), content.bytes()).is_ok()
        {
            self.names.insert(name, content);
        } else {
            // The disks are full.
            let _ = fs::remove_file(self.target(&name));
        }
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{disk}");
        assert!(self.disks.bind(&self.mounted.path(&format!("of {disk}")), &place));
        let is_back =
            || self.mounted.status_of_any("failed_sources").as_object().unwrap().is_empty();
        wait_until("the disk is back", is_back);
    }

    /// Compares everything that the mount shows with the model, and the disks with the mount.
    fn scan(&self) {
        for (name, content) in &self.names {
            let read =
                fs::read(self.target(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(read == content.bytes(), "{name} has other content");
        }
        let shown = files_below(&self.target(""), Path::new(""));
        let expected: BTreeSet<_> = self.names.keys().map(PathBuf::from).collect();
        assert_eq!(shown.iter().cloned().collect::<BTreeSet<_>>(), expected);
        assert_eq!(shown.len(), expected.len(), "a name is listed once");
        let disks: Vec<_> = SOURCES.iter().map(|disk| self.mounted.path(disk)).collect();
        let stored: usize = disks.iter().map(|disk| files_below(disk, Path::new("")).len()).sum();
        assert_eq!(stored, expected.len(), "each file is on one disk");
        for folder in ["downloads", "library"] {
            let newest = disks.iter().filter_map(|disk| modified(&disk.join(folder))).max();
            wait_until("the newest time", || modified(&self.target(folder)) == newest);
        }
    }
}

fn modified(path: &Path) -> Option<(i64, i64)> {
    let stat = fs::metadata(path).ok()?;
    Some((stat.mtime(), stat.mtime_nsec()))
}

fn files_below(base: &Path, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base.join(folder)).unwrap().flatten();
    let files = |entry: fs::DirEntry| {
        let below = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() { files_below(base, &below) } else { vec![below] }
    };
    entries.flat_map(files).collect()
}

#[test]
fn a_media_server_loses_nothing_whatever_its_disks_do() {
    let mut disks = Disks::default();
    let mut is_possible = true;
    let arguments = ["--create", "most-free", "--on-full", "move", "--require-mount-point"];
    let Some(mounted) = Mounted::with_sources(SOURCES, &arguments, |mounted| {
        for disk in SOURCES {
            let aside = mounted.path(&format!("of {disk}"));
            fs::create_dir(&aside).unwrap();
            is_possible &= disks.mount_of(DISK_BYTES, &aside);
            is_possible &= disks.bind(&aside, &mounted.path(disk));
        }
    }) else {
        return;
    };
    if !is_possible {
        return;
    }
    let numbers = Numbers(number("THRUWAY_MEDIA_SEED", 7) * 2 + 1);
    let mut server = MediaServer { mounted, disks, numbers, names: BTreeMap::new(), next: 0 };
    for folder in ["downloads", "library"] {
        fs::create_dir(server.target(folder)).unwrap();
    }
    for step in 0..number("THRUWAY_MEDIA_STEPS", 80) {
        match server.numbers.below(20) {
            0..=7 => server.download(),
            8..=11 => server.import(),
            12..=13 => server.rename(),
            14..=16 => server.delete(),
            17 => server.tier(),
            18 => server.disk_goes_and_comes(),
            _ => server.scan(),
        }
        if step % 50 == 0 {
            server.scan();
        }
    }
    server.scan();
}
