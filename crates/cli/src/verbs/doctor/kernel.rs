//! Checks of the kernel's features, and of this user's right to use them.

use std::fs;

use std::process::{Command, Stdio};

use rustix::process::{Resource, getrlimit};

use super::checks::Check;

/// As bits of `/proc/self/status`: capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;
const FUSE_DEVICE: &str = "/dev/fuse";
/// Fewer run out with a few programs that watch.
const INOTIFY_INSTANCES_LEAST: u64 = 128;
const INOTIFY_WATCHES_LEAST: u64 = 8192;
/// Clients of a small server, with their files.
const DESCRIPTORS_LEAST: u64 = 4096;

pub(super) fn checks() -> Vec<Check> {
    vec![fuse(), passthrough(), io_uring(), ptrace(), inotify(), descriptors()]
}

fn fuse() -> Check {
    const NAME: &str = "fuse";
    if fs::metadata(FUSE_DEVICE).is_err() {
        let cure = "modprobe fuse; in a container, give it --device /dev/fuse";
        return Check::limited(NAME, "no /dev/fuse: thruway mount does not work", cure);
    }
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(FUSE_DEVICE) {
        let cure = "let the user read and write /dev/fuse";
        return Check::limited(NAME, format!("cannot open /dev/fuse: {error}"), cure);
    }
    if has_capability(CAP_SYS_ADMIN) || is_on_path("fusermount3") {
        return Check::works(NAME, "folders can be mounted");
    }
    let cure = "mount as root, or install fusermount3 (Debian: apt install fuse3)";
    Check::limited(NAME, "this user is not allowed to mount", cure)
}

fn passthrough() -> Check {
    const NAME: &str = "fuse passthrough";
    let (major, minor, release) = kernel();
    if (major, minor) < (6, 9) {
        let told = format!("not supported by Linux {release}: data passes through the daemon");
        return Check::limited(NAME, told, "run Linux 6.9 or later");
    }
    if !has_capability(CAP_SYS_ADMIN) {
        let told = "not permitted for this user: data passes through the daemon";
        return Check::limited(NAME, told, "mount as root, in the initial user namespace");
    }
    Check::works(NAME, format!("Linux {release}: the kernel moves the data"))
}

fn io_uring() -> Check {
    const NAME: &str = "fuse over io_uring";
    let disabled = number("/proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    if disabled == 2 || (disabled == 1 && !has_capability(CAP_SYS_ADMIN)) {
        let told =
            format!("kernel.io_uring_disabled is {disabled}: requests arrive through /dev/fuse");
        return Check::limited(NAME, told, "sysctl kernel.io_uring_disabled=0");
    }
    match fs::read_to_string("/sys/module/fuse/parameters/enable_uring") {
        Ok(text) if text.trim() == "Y" => {
            Check::works(NAME, "mount --transport io-uring can use it")
        }
        Ok(_) => Check::limited(
            NAME,
            "switched off: requests arrive through /dev/fuse",
            "echo Y > /sys/module/fuse/parameters/enable_uring, as root",
        ),
        Err(_) => Check::limited(
            NAME,
            "not supported by this kernel: requests arrive through /dev/fuse",
            "run Linux 6.14 or later",
        ),
    }
}

fn ptrace() -> Check {
    const NAME: &str = "trace by ptrace";
    if is_traced_by_ptrace() {
        return Check::works(NAME, "a command was traced");
    }
    let told = match number("/proc/sys/kernel/yama/ptrace_scope") {
        Some(3) => "kernel.yama.ptrace_scope is 3",
        _ => "a command could not be traced",
    };
    let cure = "sysctl kernel.yama.ptrace_scope=1 (takes a restart, if it is 3); in a container, \
                --cap-add SYS_PTRACE; it needs x86-64";
    Check::limited(NAME, told, cure)
}

/// Traces this program, and answers with whether that worked.
fn is_traced_by_ptrace() -> bool {
    let Ok(own) = std::env::current_exe() else { return false };
    let mut trace = Command::new(&own);
    trace.args(["trace", "--json", "--backend", "ptrace", "--"]).arg(&own).arg("--version");
    trace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    trace.status().is_ok_and(|status| status.success())
}

fn inotify() -> Check {
    const NAME: &str = "inotify";
    let folder = "/proc/sys/fs/inotify";
    let instances = number(&format!("{folder}/max_user_instances"));
    let watches = number(&format!("{folder}/max_user_watches"));
    let (Some(instances), Some(watches)) = (instances, watches) else {
        return Check::limited(
            NAME,
            "not supported by this kernel",
            "run a kernel with CONFIG_INOTIFY_USER",
        );
    };
    let told = format!("{instances} instances and {watches} watches per user");
    if instances >= INOTIFY_INSTANCES_LEAST && watches >= INOTIFY_WATCHES_LEAST {
        return Check::works(NAME, told);
    }
    let cure = "sysctl fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288";
    Check::limited(NAME, told, cure)
}

fn descriptors() -> Check {
    const NAME: &str = "descriptors";
    let limit = getrlimit(Resource::Nofile);
    // Without a number there is no limit; serve raises its own to the hard one.
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard == u64::MAX {
        return Check::works(NAME, "no limit per process");
    }
    let told = format!("at most {hard} per process");
    if hard >= DESCRIPTORS_LEAST {
        return Check::works(NAME, told);
    }
    Check::limited(NAME, told, "ulimit -Hn 65536, or LimitNOFILE=65536 in a systemd unit")
}

/// Major and minor number, and the whole release.
fn kernel() -> (u32, u32, String) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor, release.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn has_capability(bit: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits & (1 << bit) != 0)
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| fs::metadata(folder.join(program)).is_ok())
}
