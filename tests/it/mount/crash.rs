//! Workers that are killed while files are written: what was synced is there, and nothing is wrong.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::fixture::{Mounted, kill, wait_until};

const WRITERS: u64 = 3;
const FILES: u64 = 4;
const BLOCKS: u64 = 16;
const BLOCK_BYTES: usize = 4096;
/// A supervisor gives up after one more.
const KILLS: u64 = 4;

/// What each block must hold: the number that was synced last, or one that failed since.
type Blocks = BTreeMap<(u64, u64), Vec<u64>>;

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn name(writer: u64, file: u64) -> String {
    format!("writer {writer} file {file}")
}

/// Writes blocks with numbers of its own until told to stop.
fn write(folder: &Path, writer: u64, stop: &AtomicBool) -> Blocks {
    let mut blocks = Blocks::new();
    let mut number = 0u64;
    while !stop.load(Relaxed) {
        number += 1;
        let place = (number % FILES, number.wrapping_mul(7) % BLOCKS);
        let path = folder.join(name(writer, place.0));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).open(path);
        let written = opened.and_then(|file| {
            file.write_all_at(&block(number), place.1 * BLOCK_BYTES as u64)?;
            file.sync_all()
        });
        let allowed = blocks.entry(place).or_default();
        if written.is_ok() {
            allowed.clear();
        }
        allowed.push(number);
    }
    blocks
}

fn check(source: &Path, writer: u64, blocks: &Blocks) {
    for ((file, index), allowed) in blocks {
        let mut found = vec![0; BLOCK_BYTES];
        let file = fs::File::open(source.join(name(writer, *file))).unwrap();
        file.read_exact_at(&mut found, index * BLOCK_BYTES as u64).unwrap();
        assert!(
            allowed.iter().any(|&number| found == block(number)),
            "writer {writer}, block {index}: {:?} is none of {allowed:?}",
            &found[..8]
        );
    }
}

fn survive(arguments: &[&str]) {
    let Some(mounted) = Mounted::new(arguments) else { return };
    let (target, stop) = (mounted.target(""), AtomicBool::new(false));
    let all = thread::scope(|scope| {
        let (target, stop) = (&target, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(target, writer, stop))).collect();
        for round in 0..KILLS {
            // At no particular moment: the work goes on all the time.
            thread::sleep(Duration::from_millis(60 + 37 * round));
            kill(mounted.worker());
            wait_until("another worker serves", || mounted.restarts() == Some(round + 1));
        }
        stop.store(true, Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    for (writer, blocks) in all.iter().enumerate() {
        assert!(blocks.values().any(|allowed| allowed.len() == 1), "something was synced");
        check(&mounted.source(""), writer as u64, blocks);
        check(&target, writer as u64, blocks);
    }
}

#[test]
fn what_was_synced_through_the_kernel_survives_the_death_of_workers() {
    survive(&[]);
}

#[test]
fn what_was_synced_through_the_daemon_survives_the_death_of_workers() {
    survive(&["--passthrough", "off"]);
}
