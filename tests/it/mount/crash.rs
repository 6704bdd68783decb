//! Workers that are killed while files are written: what was synced is there, and nothing is wrong.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use super::fixture::{Mounted, kill, processes_with, wait_until};
use crate::{stderr, thruway};

const WRITERS: u64 = 3;
const FILES: u64 = 4;
const BLOCKS: u64 = 16;
const BLOCK_BYTES: usize = 4096;
/// A supervisor gives up after one more.
const KILLS: u64 = 4;

/// What each block must hold: the number that was synced last, or one that failed since. Zero is what was there
/// before.
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
        let allowed = blocks.entry(place).or_insert_with(|| vec![0]);
        if written.is_ok() {
            allowed.clear();
        }
        allowed.push(number);
    }
    blocks
}

/// Stops the writers when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn check(source: &Path, writer: u64, blocks: &Blocks) {
    for ((file, index), allowed) in blocks {
        let mut found = vec![0; BLOCK_BYTES];
        if let Ok(file) = fs::File::open(source.join(name(writer, *file))) {
            file.read_at(&mut found, index * BLOCK_BYTES as u64).unwrap();
        }
        assert!(
            allowed.iter().any(|&number| found == block(number)),
            "writer {writer}, block {index}: {:?} is none of {allowed:?}",
            &found[..8]
        );
    }
}

/// Has writers at work while `torment` does what it does to the mount; then what was synced is in the source.
fn survive(mounted: &Mounted, torment: impl FnOnce()) -> Vec<Blocks> {
    let (target, stop) = (mounted.target(""), AtomicBool::new(false));
    let all: Vec<_> = thread::scope(|scope| {
        let (target, stop) = (&target, &stop);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(target, writer, stop))).collect();
        {
            // When it fails, too, the writers must end.
            let _stop = Stop(stop);
            torment();
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (writer, blocks) in (0..).zip(&all) {
        assert!(blocks.values().any(|allowed| allowed[0] != 0), "something was synced");
        check(&mounted.source(""), writer, blocks);
    }
    all
}

fn survive_deaths_of_workers(arguments: &[&str]) {
    let Some(mounted) = Mounted::new(arguments) else { return };
    let all = survive(&mounted, || {
        for round in 0..KILLS {
            // At no particular moment: the work goes on all the time.
            thread::sleep(Duration::from_millis(60 + 37 * round));
            kill(mounted.worker());
            wait_until("another worker serves", || mounted.restarts() == Some(round + 1));
        }
    });
    for (writer, blocks) in (0..).zip(&all) {
        check(&mounted.target(""), writer, blocks);
    }
}

#[test]
fn what_was_synced_through_the_kernel_survives_the_death_of_workers() {
    survive_deaths_of_workers(&[]);
}

#[test]
fn what_was_synced_through_the_daemon_survives_the_death_of_workers() {
    survive_deaths_of_workers(&["--passthrough", "off"]);
}

#[test]
fn what_was_synced_survives_the_death_of_all_processes() {
    for round in 0..KILLS {
        let Some(mounted) = Mounted::new(&[]) else { return };
        survive(&mounted, || {
            thread::sleep(Duration::from_millis(60 + 37 * round));
            // The supervisor first, which would start another worker.
            let mut processes: Vec<_> = processes_with(&mounted.source("")).collect();
            processes.sort_unstable();
            processes.into_iter().for_each(kill);
            let target = mounted.target("");
            wait_until("the connection is gone", || fs::read_dir(&target).is_err());
        });
        let unmount = thruway().arg("unmount").arg(mounted.target("")).output().unwrap();
        assert!(unmount.status.success(), "{}", stderr(&unmount));
    }
}
