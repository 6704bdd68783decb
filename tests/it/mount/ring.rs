//! Requests over io_uring, on machines where the kernel's switch can be set.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{FlockOperation, flock};

use super::differential::{MODES, compare, seeds};
use super::fixture::{Mounted, kill, wait_until};
use thruway_testing::skipped;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Serializes the tests that set the switch.
static ONE: Mutex<()> = Mutex::new(());

/// The state of the kernel's switch. Dropping the value restores the previous state.
pub(super) struct UringSwitch {
    before: String,
    _one: MutexGuard<'static, ()>,
}

impl UringSwitch {
    fn to(state: &str) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let switched = fs::read_to_string(SWITCH).and_then(|before| {
            fs::write(SWITCH, state)?;
            Ok(before)
        });
        match switched {
            Ok(before) => Some(Self { before, _one: one }),
            Err(error) => {
                skipped(format_args!("{SWITCH}: {error}"));
                None
            }
        }
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.before.trim());
    }
}

/// Makes a mount whose requests arrive over io_uring; `None` where a container forbids io_uring.
pub(super) fn mounted(arguments: &[&str]) -> Option<(Mounted, UringSwitch)> {
    let switch = UringSwitch::to("Y")?;
    let mounted = Mounted::new(&[&["--transport", "io-uring"], arguments].concat())?;
    if mounted.status("transport") != "io_uring" {
        skipped("no io_uring for this process");
        return None;
    }
    Some((mounted, switch))
}

#[test]
fn a_mount_that_does_not_ask_for_io_uring_keeps_to_the_device() {
    let Some(_switch) = UringSwitch::to("Y") else { return };
    let Some(mounted) = Mounted::new(&[]) else { return };
    assert_eq!(mounted.status("transport"), "/dev/fuse");
    assert!(!mounted.log().contains("io_uring"), "{}", mounted.log());
}

#[test]
fn a_mount_that_cannot_have_io_uring_keeps_to_the_device_and_says_so() {
    let Some(_switch) = UringSwitch::to("N") else { return };
    let Some(mounted) = Mounted::new(&["--transport", "io-uring"]) else { return };
    assert_eq!(mounted.status("transport"), "/dev/fuse");
    assert!(mounted.log().contains("io_uring needs Linux 6.14"), "{}", mounted.log());
}

#[test]
fn a_mount_over_io_uring_behaves_as_a_plain_folder() {
    for arguments in [&["--suid"][..], &["--suid", "--passthrough", "off"]] {
        let Some((mounted, _switch)) = mounted(arguments) else { return };
        seeds(1).for_each(|seed| compare(&mounted, &MODES, seed, 1500));
    }
}

#[test]
fn several_at_once_are_served_over_io_uring() {
    let Some((mounted, _switch)) = mounted(&[]) else { return };
    let target = mounted.target("");
    thread::scope(|scope| {
        for user in 0..4 {
            let target = &target;
            scope.spawn(move || {
                for name in 0..100 {
                    let file = File::create(target.join(format!("{user} {name}"))).unwrap();
                    file.write_all_at(b"text", 0).unwrap();
                    // The slow ones go to another thread, and come back from there.
                    file.sync_all().unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(mounted.source("")).unwrap().count(), 400);
}

#[test]
fn data_through_the_daemon_over_io_uring_is_right() {
    let Some((mounted, _switch)) = mounted(&["--passthrough", "off"]) else { return };
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(mounted.target("file"), &bytes).unwrap();
    assert_eq!(fs::read(mounted.source("file")).unwrap(), bytes);
    fs::write(mounted.source("other"), &bytes).unwrap();
    assert_eq!(fs::read(mounted.target("other")).unwrap(), bytes);
}

#[test]
fn a_request_that_waits_for_a_lock_does_not_delay_others() {
    let Some((mounted, _switch)) = mounted(&[]) else { return };
    let path = mounted.target("locked");
    let holder = File::create(&path).unwrap();
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        // Also when the test fails: the threads would wait for ever.
        let unlock = Unlock(&holder);
        for _ in 0..20 {
            scope.spawn(|| {
                let file = File::open(&path).unwrap();
                flock(&file, FlockOperation::LockExclusive).unwrap();
            });
        }
        // A thread that is stopped while it waits, as by a debugger, sends its request once more.
        wait_until("all of them wait", || mounted.requests("setlkw") >= 21);
        fs::write(mounted.target("other"), "text").unwrap();
        drop(unlock);
    });
}

/// Releases the lock when dropped.
struct Unlock<'a>(&'a File);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        flock(self.0, FlockOperation::Unlock).unwrap();
    }
}

#[test]
fn a_worker_that_dies_at_its_ring_is_followed_by_a_new_mount() {
    let Some((mounted, _switch)) = mounted(&[]) else { return };
    fs::write(mounted.target("file"), "before").unwrap();
    let open = OpenOptions::new().read(true).write(true).open(mounted.target("file")).unwrap();
    kill(mounted.worker());
    wait_until("it is mounted anew", || mounted.restarts() == Some(1));
    // The kernel continues with the file that it was given.
    open.write_all_at(b"after!", 0).unwrap();
    assert_eq!(fs::read_to_string(mounted.target("file")).unwrap(), "after!");
    assert_eq!(mounted.status("transport"), "io_uring");
}
