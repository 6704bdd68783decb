//! An ext4 in memory, which is removed when its value is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use xtask::command::succeed;

/// The size of the image: room for a million inodes, a source tree for each contender, and fio's files.
const IMAGE_BYTES: u64 = 6 << 30;
const INODES: &str = "1500000";

/// The memory file system of every Linux.
const MEMORY: &str = "/dev/shm";

/// The time limit of an unmount.
const UNMOUNT_MAX: Duration = Duration::from_secs(10);

pub(super) struct TestFilesystem {
    folder: PathBuf,
    is_mounted: bool,
}

impl TestFilesystem {
    /// Creates the file system and mounts it.
    pub(super) fn new() -> Result<Self, String> {
        Self::named("bench")
    }

    /// Creates another file system beside the first.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let folder = Path::new(MEMORY).join(format!("thruway-{name}-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut filesystem = Self { folder, is_mounted: false };
        let failed = |error: std::io::Error| format!("cannot set up a file system: {error}");
        let image = filesystem.folder.join("image");
        File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(failed)?;
        succeed(Command::new("mkfs.ext4").args(["-q", "-F", "-N", INODES]).arg(&image))?;
        fs::create_dir(filesystem.at("ext4")).map_err(failed)?;
        fs::create_dir(filesystem.at("targets")).map_err(failed)?;
        succeed(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(filesystem.at("ext4")))?;
        filesystem.is_mounted = true;
        Ok(filesystem)
    }

    /// A path beside the ext4.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new folder on the ext4.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.at("ext4").join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }
}

impl Drop for TestFilesystem {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount(&self.at("ext4"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Unmounts. A daemon that has just been asked for something, or has just ended, may still hold the mount for a moment.
pub(super) fn unmount(folder: &Path) {
    let unmounted = || Command::new("umount").arg(folder).output();
    let deadline = Instant::now() + UNMOUNT_MAX;
    while !unmounted().is_ok_and(|output| output.status.success()) && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
}
