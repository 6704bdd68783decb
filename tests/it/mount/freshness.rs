//! Changes behind a mount, and looks through the mount directly afterwards. A look returns the source's own state.
//!
//! `cargo x prove mount-freshness --cases 100000` runs more of the random changes.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use thruway_testing::Progress;

use super::differential::{MODES, Numbers};
use super::fixture::{Mounted, kill, wait_until};

const FOLDERS: [&str; 5] = [".", "a", "b", "a/c", "b/c"];
const NAMES: [&str; 5] = ["x", "y", "z", "c", "a"];
/// Changes in CI.
const CASES: u64 = 1_000;
/// The looks of a thousand that may be late in the long run, which has the machine alone.
const LATE_IN_A_THOUSAND_MAX: u64 = 1;
/// A twentieth part, where other programs may keep the mount's threads from the processor.
const LATE_IN_A_THOUSAND_BUSY_MAX: u64 = 50;
/// A limit only for a test that would hang.
const LATE_MAX: Duration = Duration::from_secs(60);
/// Less than the half a minute for which the kernel caches the attributes of a closed file. With a free processor, an
/// open file is followed within half a second.
const FOLLOWED_MAX: Duration = Duration::from_secs(25);
/// Any number but zero.
const SEED: u64 = 88_172_645_463_325_252;

pub(super) fn number(name: &str, else_it_is: u64) -> u64 {
    std::env::var(name).map_or(else_it_is, |value| value.parse().expect(name))
}

/// The state of a name in a folder: nothing, a file or a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NameState {
    Nothing,
    File { number: u64, mode: u32, links: u64, size: u64, changed: [i64; 4], what: Vec<u8> },
    Folder { mode: u32, changed: [i64; 4], names: Option<BTreeSet<PathBuf>> },
}

/// Looks up a name, and sometimes its contents.
pub(super) fn look(at: &Path, inside: bool) -> NameState {
    let stat = match fs::symlink_metadata(at) {
        Ok(stat) => stat,
        Err(_) => return NameState::Nothing,
    };
    let changed = [stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()];
    if stat.is_dir() {
        let names = inside.then(|| {
            let entries = fs::read_dir(at).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into()).collect()
        });
        return NameState::Folder { mode: stat.mode(), changed, names };
    }
    let what = match inside {
        true if stat.is_symlink() => {
            fs::read_link(at).unwrap().into_os_string().into_encoded_bytes()
        }
        true => fs::read(at).unwrap(),
        false => Vec::new(),
    };
    NameState::File {
        number: stat.ino(),
        mode: stat.mode(),
        links: stat.nlink(),
        size: stat.size(),
        changed,
        what,
    }
}

/// Looks at several sources: the first source with the name, and the names and newest times of all its folders.
pub(super) fn look_merged(sources: &[PathBuf], name: &str, inside: bool) -> NameState {
    let parts: Vec<_> = merged_at(sources, name).collect();
    let Some(first) = parts.first() else { return look(&sources[0].join(name), inside) };
    match look(first, inside) {
        NameState::Folder { mode, mut changed, mut names } => {
            for part in parts.iter().filter(|part| is_folder(part)) {
                let NameState::Folder { changed: times, names: more, .. } = look(part, inside)
                else {
                    continue;
                };
                let newer = |own: &[i64], other: &[i64]| own.max(other).to_vec();
                let modified = newer(&changed[..2], &times[..2]);
                let other = newer(&changed[2..], &times[2..]);
                changed = [modified[0], modified[1], other[0], other[1]];
                names.iter_mut().for_each(|names| names.extend(more.iter().flatten().cloned()));
            }
            NameState::Folder { mode, changed, names }
        }
        seen => seen,
    }
}

/// Returns the places of a name in the sources in which the folders above are shown.
fn merged_at<'a>(sources: &'a [PathBuf], name: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let above = Path::new(name).parent().filter(|above| !above.as_os_str().is_empty());
    let is_shown = move |source: &&PathBuf| {
        above.is_none_or(|above| {
            let mut having = above.ancestors().filter(|path| !path.as_os_str().is_empty());
            having.all(|path| {
                let first = sources.iter().find(|source| exists(&source.join(path)));
                first.is_some_and(|first| is_folder(&first.join(path)))
                    && is_folder(&source.join(path))
            })
        })
    };
    sources.iter().filter(is_shown).map(move |source| source.join(name)).filter(|path| exists(path))
}

/// Whether the path to the name contains a symbolic link. The mount follows the link to the names of all sources, and
/// not of a single source.
pub(super) fn leads_through_a_link(sources: &[PathBuf], name: &str) -> bool {
    let above = Path::new(name).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    above.into_iter().any(|path| {
        let first = sources.iter().map(|source| source.join(path)).find(|path| exists(path));
        first.is_some_and(|first| first.is_symlink())
    })
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir())
}

/// Makes a random change below a source, which may fail, and returns its description.
pub(super) fn change(source: &Path, numbers: &mut Numbers) -> String {
    let name = random_name(numbers);
    let other = random_name(numbers);
    let (one, two) = (source.join(&name), source.join(&other));
    let length = usize::try_from(numbers.below(500)).unwrap();
    let kind = numbers.below(13);
    let done = match kind {
        0 => fs::write(&one, vec![b'w'; length]),
        1 => {
            OpenOptions::new().append(true).open(&one).and_then(|mut file| file.write_all(b"more"))
        }
        2 => {
            let new = source.join("new");
            fs::write(&new, vec![b'n'; length]).and_then(|()| fs::rename(&new, &one))
        }
        3 => fs::rename(&one, &two),
        4 => fs::rename(source.join("a"), source.join("b")),
        5 => fs::rename(source.join("b"), source.join("a")),
        6 => fs::hard_link(&one, &two),
        7 => fs::remove_file(&one),
        8 => fs::remove_dir_all(&one),
        9 => fs::create_dir_all(&one),
        10 => {
            OpenOptions::new().write(true).open(&one).and_then(|file| file.set_len(length as u64))
        }
        11 => {
            // Folders without permissions do not matter, as the test runs as root.
            let mode = MODES[usize::try_from(numbers.below(3)).unwrap()] | 0o100;
            fs::set_permissions(&one, fs::Permissions::from_mode(mode))
        }
        _ if numbers.below(2) == 0 => symlink(&other, &one),
        _ => File::open(&one).and_then(|file| {
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(numbers.below(1 << 30));
            file.set_times(FileTimes::new().set_accessed(then).set_modified(then))
        }),
    };
    format!("{kind} {name} {other} {length}: {done:?}")
}

pub(super) fn random_name(numbers: &mut Numbers) -> String {
    let of = |numbers: &mut Numbers, from: &[&str]| {
        from[usize::try_from(numbers.below(from.len() as u64)).unwrap()].to_owned()
    };
    match of(numbers, &FOLDERS) {
        folder if folder == "." => of(numbers, &NAMES),
        folder => format!("{folder}/{}", of(numbers, &NAMES)),
    }
}

/// Makes random changes behind the mount, each followed by looks through the mount. Of a thousand looks, `late_max` may
/// be too early, because other threads of a busy machine may delay those that notify the kernel.
fn changes_are_seen(sources: &'static [&'static str], arguments: &[&str], late_max: u64) {
    let Some(mounted) = Mounted::with_sources(sources, arguments, |_| ()) else { return };
    let below: Vec<_> = sources.iter().map(|source| mounted.path(source)).collect();
    let seed = number("THRUWAY_SEED", SEED);
    let mut numbers = Numbers(seed.max(1));
    let mut last = std::collections::VecDeque::new();
    let (mut looks, mut late) = (0, 0);
    let progress = Progress::start();
    for case in 0..number("THRUWAY_CASES", CASES) {
        let changed = usize::try_from(numbers.below(below.len() as u64)).unwrap();
        last.push_back(format!("{} {}", sources[changed], change(&below[changed], &mut numbers)));
        if last.len() > 8 {
            last.pop_front();
        }
        for _ in 0..4 {
            let name = random_name(&mut numbers);
            let inside = numbers.below(4) == 0;
            if below.len() > 1 && leads_through_a_link(&below, &name) {
                continue;
            }
            let itself = look_merged(&below, &name, inside);
            let mut through = look(&mounted.target(&name), inside);
            looks += 1;
            if through != itself {
                late += 1;
                eprintln!("late: {name} was {through:?}, is {itself:?}; last: {last:#?}");
            }
            let since = Instant::now();
            while late_max > 0 && through != itself && since.elapsed() < LATE_MAX {
                through = look(&mounted.target(&name), inside);
                if through == itself {
                    eprintln!("late by {:?}", since.elapsed());
                }
            }
            assert_eq!(through, itself, "{name} after case {case} of seed {seed}; last: {last:#?}");
        }
        progress.add(1);
    }
    eprintln!("{late} of {looks} looks saw what was before");
    let is_long = std::env::var_os("THRUWAY_CASES").is_some();
    let late_max = if is_long || late_max == 0 { late_max } else { LATE_IN_A_THOUSAND_BUSY_MAX };
    assert!(late * 1000 <= looks * late_max, "{late} of {looks} looks saw what was before");
}

#[test]
fn a_change_behind_the_mount_is_seen_by_the_next_look() {
    changes_are_seen(&["source"], &[], LATE_IN_A_THOUSAND_MAX);
}

#[test]
fn a_change_behind_the_mount_is_seen_where_each_look_asks() {
    changes_are_seen(&["source"], &["--changes", "asked"], 0);
}

#[test]
fn a_change_behind_a_mount_of_several_sources_is_seen_by_the_next_look() {
    changes_are_seen(&["first", "second"], &[], LATE_IN_A_THOUSAND_MAX);
}

#[test]
fn a_change_behind_a_mount_of_several_sources_is_seen_where_each_look_asks() {
    changes_are_seen(&["first", "second"], &["--changes", "asked"], 0);
}

/// A part of a merged folder, which the kernel knew as such, has become a folder by itself.
#[test]
fn the_part_that_is_left_of_a_merged_folder_is_seen_to_change() {
    let Some(mounted) = Mounted::with_sources(&["first", "second"], &[], |_| ()) else { return };
    for source in ["first", "second"] {
        fs::create_dir(mounted.path(source).join("folder")).unwrap();
    }
    let mode = |at: &Path| fs::metadata(at).unwrap().mode() & 0o777;
    let target = mounted.target("folder");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    fs::remove_dir(mounted.path("first").join("folder")).unwrap();
    let left = mounted.path("second").join("folder");
    assert_eq!(mode(&target), mode(&left));
    // The kernel reports a little later that it has forgotten the other part.
    for bits in [0o700, 0o755, 0o711] {
        std::thread::sleep(Duration::from_millis(20));
        fs::set_permissions(&left, fs::Permissions::from_mode(bits)).unwrap();
        wait_until("its mode is seen", || mode(&target) == bits);
    }
}

/// The kernel holds a listing against the times of the first part.
#[test]
fn a_merged_folder_that_moves_in_one_source_is_listed_anew() {
    for how in [&[][..], &["--changes", "asked"]] {
        let Some(mounted) = Mounted::with_sources(&["first", "second"], how, |_| ()) else {
            return;
        };
        for source in ["first", "second"] {
            fs::create_dir(mounted.path(source).join("folder")).unwrap();
            fs::write(mounted.path(source).join("folder").join(source), "").unwrap();
        }
        let names = |at: &str| fs::read_dir(mounted.target(at)).unwrap().count();
        assert_eq!((names("folder"), names("folder")), (2, 2));
        let first = mounted.path("first");
        fs::rename(first.join("folder"), first.join("moved")).unwrap();
        wait_until("the names of one part are left", || names("moved") == 1);
        wait_until("the names of the other part are left", || names("folder") == 1);
    }
}

/// `tail -f` reads the length of its open file each second. The writer does not close the file.
#[test]
fn a_file_that_others_begin_to_write_to_is_followed() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let file = mounted.source("log");
    fs::write(&file, "old\n").unwrap();
    let mut writer = OpenOptions::new().append(true).open(&file).unwrap();
    let reader = File::open(mounted.target("log")).unwrap();
    // The kernel caches attributes that changed a while ago.
    wait_until("it is held", || {
        let before = mounted.requests("getattr");
        (0..3).for_each(|_| assert_eq!(reader.metadata().unwrap().len(), 4));
        mounted.requests("getattr") - before < 3
    });
    for length in [8, 12] {
        writer.write_all(b"new\n").unwrap();
        let written = Instant::now();
        wait_until("its new length is seen", || reader.metadata().unwrap().len() == length);
        assert!(written.elapsed() < FOLLOWED_MAX);
    }
}

/// The kernel holds attributes of a closed file for long if they came through the mount.
#[test]
fn an_open_shows_what_others_have_written_without_closing() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    for case in 0..50 {
        let name = format!("log-{case}");
        fs::write(mounted.target(&name), "old\n").unwrap();
        assert_eq!(fs::metadata(mounted.target(&name)).unwrap().len(), 4);
        let mut writer = OpenOptions::new().append(true).open(mounted.source(&name)).unwrap();
        writer.write_all(b"new\n").unwrap();
        let reader = File::open(mounted.target(&name)).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), 8, "{name}");
    }
}

/// There is no event for a write to a file that stays open. The kernel caches the attributes from the time of the
/// close.
#[test]
fn a_file_that_is_opened_as_the_kernel_knows_it_is_followed() {
    for is_worker_killed in [false, true] {
        let Some(mounted) = Mounted::new(&[]) else { return };
        fs::write(mounted.target("log"), "old\n").unwrap();
        assert_eq!(fs::metadata(mounted.target("log")).unwrap().len(), 4);
        let mut writer = OpenOptions::new().append(true).open(mounted.source("log")).unwrap();
        let reader = File::open(mounted.target("log")).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), 4);
        if is_worker_killed {
            kill(mounted.worker());
            wait_until("another worker", || mounted.restarts() == Some(1));
        }
        writer.write_all(b"new\n").unwrap();
        let written = Instant::now();
        wait_until("its new length is seen", || reader.metadata().unwrap().len() == 8);
        assert!(written.elapsed() < FOLLOWED_MAX);
    }
}

/// The file is created and kept open through the mount.
#[test]
fn a_file_that_was_just_made_is_followed_while_it_is_open() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let made = File::create(mounted.target("log")).unwrap();
    let mut writer = OpenOptions::new().append(true).open(mounted.source("log")).unwrap();
    writer.write_all(b"new\n").unwrap();
    let written = Instant::now();
    wait_until("its length is seen", || made.metadata().unwrap().len() == 4);
    assert!(written.elapsed() < FOLLOWED_MAX);
}

/// While a program writes to a file through the mount, changes are taken for its own, and compared a little later.
#[test]
fn what_others_write_to_a_file_that_is_written_through_the_mount_is_seen() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let mut made = File::create(mounted.target("log")).unwrap();
    made.write_all(b"ours").unwrap();
    assert_eq!(made.metadata().unwrap().len(), 4);
    let mut writer = OpenOptions::new().append(true).open(mounted.source("log")).unwrap();
    drop(made);
    // The kernel learns of the close within 5 ms.
    std::thread::sleep(Duration::from_millis(50));
    writer.write_all(b"more").unwrap();
    let closed = Instant::now();
    let length = || fs::metadata(mounted.target("log")).unwrap().len();
    wait_until("its length is seen", || length() == 8);
    assert!(closed.elapsed() < FOLLOWED_MAX);
}

/// GNU `tail` asks each second, since inotify does not report changes behind the mount.
#[test]
fn tail_follows_a_file_that_is_written_behind_the_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let (log, said) = (mounted.source("log"), mounted.path("said"));
    fs::write(&log, "").unwrap();
    let mut tail = Command::new("tail");
    tail.args(["-n", "+1", "-f"]).arg(mounted.target("log")).stdout(File::create(&said).unwrap());
    let mut tail = tail.spawn().unwrap();
    let mut writer = OpenOptions::new().append(true).open(&log).unwrap();
    let lines = || fs::read_to_string(&said).unwrap().lines().count();
    for line in 1..=3 {
        writeln!(writer, "{line}").unwrap();
        wait_until("the line is followed", || lines() == line);
    }
    tail.kill().and_then(|()| tail.wait()).unwrap();
    assert_eq!(fs::read_to_string(&said).unwrap(), "1\n2\n3\n");
}

/// The kernel detaches mounts upon a name that it is to look up again.
#[test]
fn what_is_mounted_upon_the_mount_stays_while_others_make_names_behind_it() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let upon = mounted.target("upon");
    fs::create_dir(mounted.source("upon")).unwrap();
    let tmpfs = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&upon).status();
    assert!(tmpfs.unwrap().success());
    fs::write(upon.join("inside"), "").unwrap();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            (0..2_000).for_each(|name| drop(fs::metadata(mounted.target(&format!("no{name}")))));
        });
        for name in 0.. {
            if looking.is_finished() {
                break;
            }
            fs::write(mounted.source(&name.to_string()), "").unwrap();
        }
    });
    let is_there = fs::metadata(upon.join("inside")).is_ok();
    let _ = Command::new("umount").arg(&upon).status();
    assert!(is_there);
}

#[test]
fn changes_that_are_ignored_are_seen_when_the_timeouts_end() {
    let options =
        ["--changes", "ignored", "--entry-timeout", "3600", "--attribute-timeout", "3600"];
    let Some(mounted) = Mounted::new(&options) else { return };
    assert!(fs::metadata(mounted.target("name")).is_err());
    fs::write(mounted.source("name"), "").unwrap();
    assert!(fs::metadata(mounted.target("name")).is_err());
    assert_eq!(mounted.status("changes"), "ignored");
}
