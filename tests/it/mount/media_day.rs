//! A simulated media server on three small disks, compared with a model.
//!
//! A torrent client downloads with preallocation and hash checks, an importer makes hard links, a scanner goes by the
//! times of folders, and a user tidies up. Disks fill, go and come, and files move between them. Nothing is lost, no
//! name is on a disk where it must not be, and all times are those of the disks.
//!
//! A step stands for three minutes. The seed determines the steps and the options of the mount:
//! `THRUWAY_MEDIA_SEED=9 THRUWAY_MEDIA_HOURS=24 cargo test --test it media_day` runs one simulation, and
//! `cargo x prove mount-media` runs many. One of some sixty days ends in a difference, so the simulation is not part of
//! the other tests yet: the content of a file that fills a disk is not the model's (seed 219).

mod audit;
mod events;
mod model;
mod placement;
mod scanner;
mod server;

use std::collections::VecDeque;
use std::fs;

use super::differential::Numbers;
use super::fixture::Mounted;
use super::freshness::number;
use super::submounts::Disks;
use model::Model;
use placement::POLICIES;
use scanner::Scanner;
use server::{Counts, MediaServer};
use thruway_testing::skipped;

const SOURCES: &[&str] = &["disk1", "disk2", "disk3"];
const DISK_BYTES: u64 = 6 << 20;
const STEPS_PER_HOUR: u64 = 20;

impl MediaServer {
    /// Mounts the disks with options that the seed determines, or reports why this machine cannot.
    fn new(seed: u64) -> Option<Self> {
        let mut numbers = Numbers(scrambled(seed));
        let policy = numbers.of(&POLICIES);
        let free_min = numbers.of(&[0, 0, 256 << 10]);
        let moves_when_full = numbers.below(2) == 0;
        let free_text = free_min.to_string();
        let arguments = [
            ["--create", policy.words],
            ["--free-min", &free_text],
            ["--on-full", if moves_when_full { "move" } else { "fail" }],
            ["--changes", numbers.of(&["told", "told", "asked"])],
            ["--missing", "skip"],
        ];
        let mut arguments: Vec<String> =
            arguments.as_flattened().iter().map(|&word| word.to_owned()).collect();
        arguments.push("--require-mount-point".into());
        eprintln!("media server: seed {seed}, {}", arguments.join(" "));
        let mut disks = Disks::default();
        let mut is_possible = true;
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mounted = Mounted::with_sources(SOURCES, &words, |mounted| {
            for disk in SOURCES {
                let aside = mounted.path(&format!("of {disk}"));
                fs::create_dir(&aside).unwrap();
                is_possible &= disks.mount_of(DISK_BYTES, &aside);
                is_possible &= disks.bind(&aside, &mounted.path(disk));
            }
        })?;
        is_possible.then_some(Self {
            mounted,
            disks,
            numbers,
            arguments,
            seed,
            at: 0,
            policy,
            free_min,
            moves_when_full,
            model: Model::default(),
            torrents: Vec::new(),
            scanner: Scanner::default(),
            counts: Counts::default(),
            history: VecDeque::new(),
            next: 0,
        })
    }

    fn step(&mut self) {
        match self.numbers.below(60) {
            0..=4 => self.start_torrent(),
            5..=19 => self.progress(),
            20..=25 => self.import(),
            26..=29 => self.seed(),
            30..=32 => self.refresh(),
            33..=34 => self.upgrade(),
            35..=39 => self.remove_torrent(),
            40..=44 => self.tidy_up(),
            45..=49 => self.scan(),
            50..=52 => self.tier(),
            53..=55 => self.disk_goes_or_comes(),
            56..=57 => self.change_behind(),
            58 => self.fill(),
            _ => self.restart(),
        }
        self.check_disks();
        match self.numbers.below(16) {
            0..=3 => self.audit(),
            4 => self.check_contents(),
            _ => {}
        }
    }

    /// Brings all disks back, and compares everything.
    fn end(&mut self) {
        for disk in 0..SOURCES.len() {
            if self.model.disks[disk].is_away {
                self.disk_comes(disk);
            }
        }
        self.audit();
        self.check_contents();
    }
}

/// Returns a number without resemblance to those of other seeds, and never zero (the finalizer of splitmix64).
fn scrambled(seed: u64) -> u64 {
    let mut number = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ number >> 31).max(1)
}

/// Runs the simulation. Returns `false` if this machine cannot.
fn simulate(seed: u64, hours: u64) -> bool {
    let Some(mut server) = MediaServer::new(seed) else { return false };
    for step in 0..hours * STEPS_PER_HOUR {
        server.at = step;
        server.step();
    }
    server.end();
    eprintln!("media server: seed {seed}, {hours} hours, {:?}", server.counts);
    true
}

/// Says how the simulation that failed is run again, and what came last.
impl Drop for MediaServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last: Vec<_> = self.history.iter().map(|step| format!("  {step}\n")).collect();
            eprintln!(
                "THRUWAY_MEDIA_SEED={}: step {}, after\n{}",
                self.seed,
                self.at,
                last.concat()
            );
        }
    }
}

#[test]
fn a_media_server_loses_nothing_in_a_day() {
    let hours = number("THRUWAY_MEDIA_HOURS", 0);
    if hours == 0 {
        return skipped("cargo x prove mount-media runs this test");
    }
    let first = number("THRUWAY_MEDIA_SEED", 1);
    let count = number("THRUWAY_MEDIA_SEEDS", 1);
    assert!(count > 0);
    (first..first + count).all(|seed| simulate(seed, hours));
}
