//! Random operations on one file, compared with the expected bytes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use thruway_sys::map::ReadOnlyMap;

use super::differential::Numbers;
use super::fixture::Mounted;
use crate::{stderr, stdout};
use thruway_testing::skipped;

/// The longest size of the file.
const SIZE_MAX: u64 = 256 * 1024;
const LENGTH_MAX: u64 = 64 * 1024;
/// A long run sets `DATA_OPERATIONS`.
const OPERATIONS: u64 = 8000;

struct Exerciser {
    path: PathBuf,
    file: File,
    /// The expected bytes of the file.
    expected: Vec<u8>,
    numbers: Numbers,
}

impl Exerciser {
    fn new(path: PathBuf) -> Self {
        let file = Self::open(&path, 0);
        Self { path, file, expected: Vec::new(), numbers: Numbers(0x5eed) }
    }

    fn open(path: &PathBuf, flags: i32) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(path).unwrap()
    }

    fn step(&mut self, step: u64) {
        let at = self.numbers.below(SIZE_MAX);
        let length = 1 + self.numbers.below(LENGTH_MAX.min(SIZE_MAX - at));
        let (from, to) = (at as usize, (at + length) as usize);
        match self.numbers.below(12) {
            0..=3 => {
                let bytes: Vec<u8> = (0..length).map(|byte| (byte ^ step) as u8).collect();
                self.file.write_all_at(&bytes, at).unwrap();
                self.grow(to);
                self.expected[from..to].copy_from_slice(&bytes);
            }
            4..=5 => self.check(from, length as usize, step),
            6 => {
                self.file.set_len(at).unwrap();
                self.expected.resize(from, 0);
            }
            7 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, at, length).unwrap();
                let end = to.min(self.expected.len());
                self.expected.get_mut(from..end).into_iter().flatten().for_each(|byte| *byte = 0);
            }
            8 => {
                fallocate(&self.file, FallocateFlags::empty(), at, length).unwrap();
                self.grow(to);
            }
            9 => self.copy(from, length as usize),
            10 => {
                let map = ReadOnlyMap::new(&self.file).unwrap();
                assert!(*map == *self.expected, "step {step}, by a map");
            }
            _ => self.file = Self::open(&self.path, 0),
        }
    }

    fn grow(&mut self, to: usize) {
        if to > self.expected.len() {
            self.expected.resize(to, 0);
        }
    }

    fn check(&self, from: usize, length: usize, step: u64) {
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, from as u64).unwrap();
        let end = (from + length).min(self.expected.len());
        let expected = self.expected.get(from..end).unwrap_or_default();
        assert_eq!(read, expected.len(), "step {step}: length at {from}");
        assert!(bytes[..read] == *expected, "step {step}: bytes at {from}");
    }

    /// Copies the start to a place behind it, in the kernel.
    fn copy(&mut self, to: usize, length: usize) {
        let length = length.min(to).min(self.expected.len());
        if length == 0 {
            return;
        }
        let (mut from, mut at) = (0, to as u64);
        let copied =
            copy_file_range(&self.file, Some(&mut from), &self.file, Some(&mut at), length);
        let copied = copied.unwrap();
        self.grow(to + copied);
        self.expected.copy_within(..copied, to);
    }
}

fn exercise(mounted: &Mounted) {
    let long = std::env::var("DATA_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let mut exerciser = Exerciser::new(mounted.target("file"));
    for step in 0..long.unwrap_or(OPERATIONS) {
        exerciser.step(step);
    }
    exerciser.file.sync_all().unwrap();
    let length = exerciser.expected.len();
    exerciser.check(0, length + 1, 0);
    assert!(fs::read(mounted.source("file")).unwrap() == exerciser.expected);
}

#[test]
fn data_that_the_kernel_moves_is_right() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    exercise(&mounted);
    assert_eq!(mounted.status("counts")["opens_daemon_io"], 0);
}

#[test]
fn data_that_goes_through_the_daemon_is_right() {
    let Some(mounted) = Mounted::new(&["--passthrough", "off"]) else { return };
    exercise(&mounted);
    assert_eq!(mounted.status("counts")["opens_passthrough"], 0);
}

#[test]
fn data_in_a_view_of_several_sources_is_right() {
    let Some(mounted) = Mounted::with_sources(&["source", "other"], &[], |_| ()) else { return };
    exercise(&mounted);
}

/// Changes a byte of an old file through a map, and waits until the file is new.
const THROUGH_A_MAP: &str = "
import mmap, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
held = mmap.mmap(file, 4096)
assert os.stat(sys.argv[1]).st_mtime == 1000
held[0] = 33
held.close()
os.close(file)
end = time.monotonic() + 60
while os.stat(sys.argv[1]).st_mtime == 1000 and time.monotonic() < end:
    time.sleep(0.01)
print(os.stat(sys.argv[1]).st_mtime > 1000)
";

#[test]
fn what_was_written_through_a_map_changes_the_files_times() {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("python3 is not installed");
        return;
    }
    let Some(mounted) = Mounted::new(&[]) else { return };
    let file = mounted.target("file");
    fs::write(&file, [0; 4096]).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    File::open(&file).unwrap().set_modified(long_ago).unwrap();
    let mut python = Command::new("python3");
    let output = python.args(["-c", THROUGH_A_MAP]).arg(&file).output().unwrap();
    assert_eq!((stdout(&output), stderr(&output)), ("True\n", ""));
}
