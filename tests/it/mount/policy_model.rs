//! Random operations of several users under random policies. Each operation returns the result of a model that knows
//! only the rules, and no user reads a secret that the rules refuse. `docs/explanation/design/mount.md` states the
//! invariant.
//!
//! `cargo x prove policy` runs many sequences.

mod mapper;
mod operations;
mod rules;
mod tree;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{XattrFlags, setxattr};
use rustix::process::umask;

use super::differential::Numbers;
use super::fixture::Mounted;
use super::policy::ruled_in;
use mapper::Mapper;
use operations::{Sequence, Step};
use rules::{Rules, USERS, facts};
use thruway_testing::{Progress, skipped};
use tree::{Kind, Node, Place, SECRET, Tree};

/// The number of sequences under one policy.
const UNDER_A_POLICY: u64 = 50;
/// The number of mounts at the same time. They mostly wait for one another's processes.
const WORKERS: u64 = 4;
/// The number of operations in a sequence.
const STEPS: usize = 14;

const FOLDERS: [&str; 5] = ["", "d", "e", ".w", "d/e"];
const FILES: [&str; 5] = ["a", "s", ".h", "x.k", "b"];

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn seeded(seed: u64, which: u64) -> Numbers {
    Numbers((seed << 32 ^ which).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

#[test]
fn no_sequence_of_operations_gives_what_a_rule_refuses() {
    let (cases, seed) = (number("POLICY_CASES", 2000), number("POLICY_SEED", 1));
    let policies = cases.div_ceil(UNDER_A_POLICY);
    let progress = Progress::start();
    let run_every_other = |worker: u64| {
        // Only this thread's umask changes.
        thruway_sys::threads::unshare_umask().unwrap();
        umask(rustix::fs::Mode::empty());
        let mut mapper = Mapper::start();
        if mapper.is_none() {
            skipped("nothing is written through maps: python3 is not installed");
        }
        for policy in (worker..policies).step_by(usize::try_from(WORKERS).unwrap()) {
            let rules = Rules::random(&mut seeded(seed, policy));
            let first = policy * UNDER_A_POLICY;
            let end = cases.min(first + UNDER_A_POLICY);
            if !run(&rules, &mut mapper, seed, first..end) {
                return;
            }
            progress.add(end - first);
        }
    };
    std::thread::scope(|scope| {
        let start = |worker| scope.spawn(move || run_every_other(worker));
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Returns a folder in memory if files there support everything that the test needs.
fn memory() -> Option<&'static Path> {
    let folder = Path::new("/dev/shm");
    let file = tempfile::NamedTempFile::new_in(folder).ok()?;
    setxattr(file.path(), "user.note", &[0], XattrFlags::empty()).ok().map(|()| folder)
}

/// Runs sequences on a mount with these rules; `false` if there is none.
fn run(rules: &Rules, mapper: &mut Option<Mapper>, seed: u64, cases: std::ops::Range<u64>) -> bool {
    let protects_links =
        fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|text| text.trim() != "0");
    let mut trees = Vec::new();
    let mounted = ruled_in(memory(), &rules.text(), |mounted: &Mounted| {
        for case in cases {
            let mut numbers = seeded(seed, case << 8 | 0xff);
            let mut tree = Tree::new(rules, format!("q{case}"), protects_links);
            fill(&mut tree, &mounted.source(&format!("q{case}")), &mut numbers);
            trees.push((case, tree, numbers));
        }
    });
    let Some(mounted) = mounted else { return false };
    let root: OwnedFd = File::open(mounted.target("")).unwrap().into();
    let target = mounted.target("");
    for (case, tree, mut numbers) in trees {
        let base = mounted.source(&tree.base);
        let mut sequence = Sequence::new(tree, &root, &target, mapper.as_mut());
        let mut history = Vec::new();
        let is_of_maps = numbers.below(6) == 0;
        for _ in 0..STEPS {
            let step = Step::random(&mut numbers, &sequence.tree, is_of_maps);
            let (said, expected) = sequence.run(&step);
            history.push(format!("{step:?}: {expected:?}"));
            let all = || {
                format!("seed {seed}, case {case}, after\n{}\n{}", history.join("\n"), rules.text())
            };
            assert_eq!(said, expected, "{}", all());
            assert_eq!(sequence.betrayed, None, "a secret, {}", all());
        }
        let (found, expected) = (on_disk(&base), in_model(&sequence.tree, 0));
        assert_eq!(
            found,
            expected,
            "seed {seed}, case {case}, after\n{}\n{}",
            history.join("\n"),
            rules.text()
        );
    }
    true
}

/// Makes folders and files, in the source and in the model. A file in three has a second name.
fn fill(tree: &mut Tree<'_>, base: &Path, numbers: &mut Numbers) {
    let mut at = std::collections::BTreeMap::new();
    for folder in FOLDERS {
        fs::create_dir(base.join(folder)).unwrap();
        if folder.is_empty() {
            at.insert(folder, 0);
            continue;
        }
        let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let node = tree.add(Node::new(Kind::Folder(Default::default()), 0));
        tree.put(at[above], name, node);
        at.insert(folder, node);
    }
    let mut places: Vec<Place> = Vec::new();
    for folder in FOLDERS {
        places.extend(FILES.iter().filter(|_| numbers.below(3) == 0).map(|name| (folder, *name)));
    }
    for (index, &(folder, name)) in places.iter().enumerate() {
        let path = base.join(folder).join(name);
        if numbers.below(8) == 0 {
            symlink(operations::NOWHERE, path).unwrap();
            let node = tree.add(Node::new(Kind::Link, 0));
            tree.put(at[folder], name, node);
            continue;
        }
        let secret = SECRET + u8::try_from(index).unwrap();
        let begins = numbers.of(b"S.");
        let data = [&[begins, secret][..], &b"zzz"[..numbers.below(4) as usize]].concat();
        fs::write(&path, &data).unwrap();
        let node = tree.add(Node::new(Kind::File(data.clone()), 0));
        tree.put(at[folder], name, node);
        let mut names = vec![(folder, name)];
        let other = (numbers.of(&FOLDERS), numbers.of(&FILES));
        if numbers.below(3) == 0
            && !places.contains(&other)
            && fs::hard_link(&path, base.join(other.0).join(other.1)).is_ok()
        {
            tree.put(at[other.0], other.1, node);
            names.push(other);
        }
        let paths: Vec<Vec<String>> = names
            .iter()
            .map(|&place| tree.path(place).into_iter().map(str::to_owned).collect())
            .collect();
        let paths: Vec<Vec<&str>> =
            paths.iter().map(|path| path.iter().map(String::as_str).collect()).collect();
        tree.nodes[node].is_crossed =
            paths.iter().any(|path| !tree.rules.are_same(path, &paths[0]));
        tree.keep_secret(secret, &paths, facts(&data), &USERS);
    }
}

/// Returns the tree below a folder of the source.
fn on_disk(folder: &Path) -> Vec<String> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut all = Vec::new();
    for entry in entries {
        let (name, kind) = (entry.file_name().into_string().unwrap(), entry.file_type().unwrap());
        if kind.is_dir() {
            all.push(format!("{name}/"));
            all.extend(on_disk(&entry.path()).into_iter().map(|line| format!("{name}/{line}")));
        } else if kind.is_symlink() {
            all.push(format!("{name}@"));
        } else {
            all.push(format!("{name}: {:?}", OsStr::from_bytes(&fs::read(entry.path()).unwrap())));
        }
    }
    all
}

fn in_model(tree: &Tree<'_>, folder: usize) -> Vec<String> {
    let Kind::Folder(children) = &tree.nodes[folder].kind else { return Vec::new() };
    let mut all = Vec::new();
    for (name, &node) in children {
        match &tree.nodes[node].kind {
            Kind::Folder(_) => {
                all.push(format!("{name}/"));
                all.extend(in_model(tree, node).into_iter().map(|line| format!("{name}/{line}")));
            }
            Kind::Link => all.push(format!("{name}@")),
            Kind::File(data) => all.push(format!("{name}: {:?}", OsStr::from_bytes(data))),
        }
    }
    all
}
