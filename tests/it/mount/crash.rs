//! Processes are killed while files are written. Afterwards, synced data is there, and no data is wrong.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat, statvfs};

use super::fixture::{Mounted, kill, wait_until};
use super::ring;
use crate::{stderr, thruway};

const WRITERS: u64 = 3;
const FILES: u64 = 4;
const BLOCKS: u64 = 16;
const BLOCK_BYTES: usize = 4096;
/// The number of kills. After one more, a supervisor would give up.
const KILLS: u64 = 4;

/// The numbers that each block may contain: the last synced number, or any number whose write has failed since. Zero is
/// the initial content.
type Blocks = BTreeMap<(u64, u64), Vec<u64>>;

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

fn name(writer: u64, file: u64) -> String {
    format!("writer {writer} file {file}")
}

/// The work of one writer.
#[derive(Default)]
struct Work {
    blocks: Blocks,
    /// The number of failed writes.
    failures: u64,
}

/// Opens a file in the mount, and never in the folder below the mount, on the file system `below`. That folder is
/// visible while a mount over io_uring is replaced.
fn open(folder: &Path, below: u64, name: &str) -> io::Result<File> {
    let folder = File::open(folder)?;
    if folder.metadata()?.dev() == below {
        return Err(ErrorKind::NotConnected.into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    Ok(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Writes blocks with its own numbers until stopped. Reports when the first block is synced.
fn write(
    open: &(impl Fn(&str) -> io::Result<File> + Sync),
    writer: u64,
    stop: &AtomicBool,
    begun: &AtomicU64,
) -> Work {
    let mut work = Work::default();
    let mut number = 0u64;
    while !stop.load(Relaxed) {
        number += 1;
        let place = (number % FILES, number.wrapping_mul(7) % BLOCKS);
        let written = open(&name(writer, place.0)).and_then(|file| {
            file.write_all_at(&block(number), place.1 * BLOCK_BYTES as u64)?;
            file.sync_all()
        });
        let allowed = work.blocks.entry(place).or_insert_with(|| vec![0]);
        if written.is_ok() {
            if number == 1 {
                begun.fetch_add(1, Relaxed);
            }
            allowed.clear();
        } else {
            work.failures += 1;
        }
        allowed.push(number);
    }
    work
}

/// Stops the writers when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn check(source: &Path, writer: u64, blocks: &Blocks) {
    for ((file, index), allowed) in blocks {
        let mut found = vec![0; BLOCK_BYTES];
        if let Ok(file) = File::open(source.join(name(writer, *file))) {
            file.read_at(&mut found, index * BLOCK_BYTES as u64).unwrap();
        }
        assert!(
            allowed.iter().any(|&number| found == block(number)),
            "writer {writer}, block {index}: {:?} is none of {allowed:?}",
            &found[..8]
        );
    }
}

/// Runs writers while `torment` disturbs the mount. Afterwards, all synced data is in the source.
fn survive(mounted: &Mounted, torment: impl FnOnce()) -> Vec<Work> {
    let (target, stop, begun) = (mounted.target(""), AtomicBool::new(false), AtomicU64::new(0));
    let below = fs::metadata(mounted.folder.path()).unwrap().dev();
    let open = |name: &str| open(&target, below, name);
    let all: Vec<_> = thread::scope(|scope| {
        let (open, stop, begun) = (&open, &stop, &begun);
        let start = |writer| scope.spawn(move || write(open, writer, stop, begun));
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        {
            // The writers must also end if the check fails.
            let _stop = Stop(stop);
            wait_until("all have synced something", || begun.load(Relaxed) == WRITERS);
            torment();
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (writer, work) in (0..).zip(&all) {
        check(&mounted.source(""), writer, &work.blocks);
    }
    all
}

/// Returns the number of mounts to torment in each way. A long run sets `CRASH_MOUNTS`.
fn mounts() -> u64 {
    let long = std::env::var("CRASH_MOUNTS").ok().and_then(|text| text.parse().ok());
    long.unwrap_or(1)
}

/// Waits until an arbitrary moment of the continuous work.
fn wait_a_while(round: u64) {
    thread::sleep(Duration::from_millis(60 + round * 37 % 200));
}

/// Kills workers, each of which is followed by another; answers with how many writes failed.
fn survive_deaths_of_workers(mounted: &Mounted) -> u64 {
    let all = survive(mounted, || {
        for round in 0..KILLS {
            wait_a_while(round);
            kill(mounted.worker());
            wait_until("another worker serves", || mounted.restarts() == Some(round + 1));
        }
    });
    for (writer, work) in (0..).zip(&all) {
        check(&mounted.target(""), writer, &work.blocks);
    }
    all.iter().map(|work| work.failures).sum()
}

/// Kills all processes of a mount, and then unmounts it.
fn survive_the_death_of_all(mounted: &Mounted, round: u64) {
    survive(mounted, || {
        wait_a_while(round);
        // The supervisor is killed first, because it would start another worker.
        mounted.processes().into_iter().for_each(kill);
        let target = mounted.target("");
        wait_until("the connection is gone", || statvfs(&target).is_err());
    });
    let unmount = thruway().arg("unmount").arg(mounted.target("")).output().unwrap();
    assert!(unmount.status.success(), "{}", stderr(&unmount));
}

#[test]
fn what_was_synced_through_the_kernel_survives_the_death_of_workers() {
    for _ in 0..mounts() {
        let Some(mounted) = Mounted::new(&[]) else { return };
        assert_eq!(survive_deaths_of_workers(&mounted), 0);
    }
}

#[test]
fn what_was_synced_through_the_daemon_survives_the_death_of_workers() {
    for _ in 0..mounts() {
        let Some(mounted) = Mounted::new(&["--passthrough", "off"]) else { return };
        assert_eq!(survive_deaths_of_workers(&mounted), 0);
    }
}

#[test]
fn what_was_synced_over_io_uring_survives_the_death_of_workers() {
    for _ in 0..mounts() {
        let Some((mounted, _switch)) = ring::mounted(&[]) else { return };
        survive_deaths_of_workers(&mounted);
        assert_eq!(mounted.status("transport"), "io_uring");
    }
}

#[test]
fn what_was_synced_survives_the_death_of_all_processes() {
    for round in 0..KILLS * mounts() {
        let Some(mounted) = Mounted::new(&[]) else { return };
        survive_the_death_of_all(&mounted, round);
    }
}

#[test]
fn what_was_synced_over_io_uring_survives_the_death_of_all_processes() {
    for round in 0..KILLS * mounts() {
        let Some((mounted, _switch)) = ring::mounted(&[]) else { return };
        survive_the_death_of_all(&mounted, round);
    }
}

/// Kills the supervisor of a mount: the worker goes on until the mount is taken away.
fn survive_the_death_of_the_supervisor(mounted: &Mounted, round: u64) {
    let all = survive(mounted, || {
        wait_a_while(round);
        kill(mounted.processes()[0]);
        wait_a_while(round);
    });
    assert_eq!(all.iter().map(|work| work.failures).sum::<u64>(), 0);
    if round % 2 == 1 {
        let worker = mounted.worker().to_string();
        assert!(Command::new("kill").arg(worker).status().unwrap().success());
        wait_until("the worker ends", || mounted.processes().is_empty());
        assert_eq!(fs::read_dir(mounted.target("")).unwrap().count(), 0);
        return;
    }
    let unmount = thruway().arg("unmount").arg(mounted.target("")).output().unwrap();
    assert!(unmount.status.success(), "{}", stderr(&unmount));
    wait_until("the worker ends", || mounted.processes().is_empty());
}

#[test]
fn a_worker_whose_supervisor_was_killed_goes_on_until_it_is_told() {
    for round in 0..2 * mounts() {
        let Some(mounted) = Mounted::new(&[]) else { return };
        survive_the_death_of_the_supervisor(&mounted, round);
        let Some((mounted, _switch)) = ring::mounted(&[]) else { return };
        survive_the_death_of_the_supervisor(&mounted, round);
    }
}
