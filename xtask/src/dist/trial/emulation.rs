//! Lets the kernel start programs of another processor with QEMU for the duration of a trial.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::dist::files::named;

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";
const NAME: &str = "thruway-aarch64";
/// The head of a program for 64-bit ARM (ELF, little endian), and a mask of its significant bits. The flag F opens QEMU
/// at registration, so that it works in a root that does not contain it.
const RULE: &str = concat!(
    r":thruway-aarch64:M:",
    r":\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
    r":/usr/bin/qemu-aarch64-static:F"
);

/// A rule of the kernel and its mount, which are removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Emulation {
    is_ours: bool,
    is_mounted_by_us: bool,
}

impl Emulation {
    /// Registers the rule, unless another rule exists, as Debian's package `binfmt-support` sets it up.
    pub(super) fn start() -> Result<Self, String> {
        let mut emulation = Self { is_ours: false, is_mounted_by_us: false };
        let register = Path::new(FOLDER).join("register");
        if register.metadata().is_err() {
            let mut mount = Command::new("mount");
            crate::command::succeed(mount.args(["-t", "binfmt_misc", "binfmt_misc", FOLDER]))?;
            emulation.is_mounted_by_us = true;
        }
        let has = |rule: &str| Path::new(FOLDER).join(rule).metadata().is_ok();
        if !has("qemu-aarch64") {
            // A killed run has left the rule.
            if !has(NAME) {
                named(&register, fs::write(&register, RULE))?;
            }
            emulation.is_ours = true;
        }
        Ok(emulation)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // A registration that cannot be removed stays until the machine restarts.
        if self.is_ours {
            let _ = fs::write(Path::new(FOLDER).join(NAME), "-1");
        }
        if self.is_mounted_by_us {
            let _ = Command::new("umount").arg(FOLDER).status();
        }
    }
}
