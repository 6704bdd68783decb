//! Stamps, which change whenever a file or folder does.

use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(unix)]
use rustix::fs::Stat;
#[cfg(target_os = "linux")]
use rustix::fs::Statx;

/// The size, times and inode of a file at one moment.
///
/// Equal stamps mean an unchanged file: a change of the content, or another file in its place, changes the
/// change time, which programs cannot set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Stamp {
    /// The size, in bytes.
    pub size: u64,
    /// The time of the last change of the content, in nanoseconds since 1970. Programs may set it to any
    /// value.
    pub mtime_ns: i64,
    /// The time of the last change of content, name or permissions, in nanoseconds since 1970. Set by the
    /// kernel only.
    pub ctime_ns: i64,
    /// The inode number.
    pub inode: u64,
}

impl Stamp {
    /// Creates the stamp of a `stat` result.
    #[cfg(unix)]
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }

    /// Creates the stamp of a `statx` result.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn of_statx(stat: &Statx) -> Self {
        Self {
            size: stat.stx_size,
            mtime_ns: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime_ns: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            inode: stat.stx_ino,
        }
    }

    /// Creates the stamp of a file on Windows, whose times of the last write and the last change are in units
    /// of 100 ns since 1601. A time of 0 is one that the file system does not keep.
    #[cfg(windows)]
    #[must_use]
    pub fn of_file_times(size: u64, [written, changed]: [i64; 2], id: u64) -> Self {
        const UNITS_TO_1970: i64 = 116_444_736_000_000_000;
        let nanoseconds = |time: i64| match time {
            0 => 0,
            time => time.saturating_sub(UNITS_TO_1970).saturating_mul(100),
        };
        let (mtime_ns, ctime_ns) = (nanoseconds(written), nanoseconds(changed));
        Self { size, mtime_ns, ctime_ns, inode: id }
    }

    /// Whether the content could change at `now_ns` (nanoseconds since 1970) or later without a change of the
    /// stamp.
    ///
    /// The kernel's clock for file times advances in ticks of at most 10 ms on Linux and 16 ms on Windows. A
    /// stamp younger than two ticks may be shared by another content; git calls such files "racily clean".
    /// Change times in whole seconds indicate a file system with that resolution; FAT's is two seconds.
    #[must_use]
    pub fn is_racy(&self, now_ns: i64) -> bool {
        const TICKS_NS: i64 = if cfg!(windows) { 50_000_000 } else { 20_000_000 };
        const SECOND_NS: i64 = 1_000_000_000;
        let resolution_ns =
            if self.ctime_ns % SECOND_NS == 0 { 2 * SECOND_NS + TICKS_NS } else { TICKS_NS };
        now_ns.saturating_sub(self.ctime_ns.max(self.mtime_ns)) < resolution_ns
    }
}

/// Returns the current time in nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(unix)]
fn nanoseconds(seconds: i64, fraction: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(fraction.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn every_field_of_the_stat_is_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        let stat = rustix::fs::stat(file.path()).unwrap();
        let stamp = Stamp::of(&stat);
        assert_eq!((stamp.size, stamp.inode), (5, stat.st_ino));
        assert_eq!(stamp.mtime_ns / 1_000_000_000, stat.st_mtime);
        assert!(stamp.ctime_ns >= stamp.mtime_ns);
        let (flags, mask) = (rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::BASIC_STATS);
        let stat = rustix::fs::statx(rustix::fs::CWD, file.path(), flags, mask).unwrap();
        assert_eq!(Stamp::of_statx(&stat), stamp);
    }

    #[test]
    fn a_file_that_was_just_written_is_racy() {
        let stamp = Stamp { mtime_ns: 1_000_000_001, ctime_ns: 1_000_000_001, ..Stamp::default() };
        assert!(stamp.is_racy(1_010_000_001));
        assert!(!stamp.is_racy(1_050_000_001));
        let future = Stamp { mtime_ns: i64::MAX, ..stamp };
        assert!(future.is_racy(1_020_000_001));
    }

    #[test]
    fn whole_seconds_take_longer_to_pass() {
        let stamp = Stamp { mtime_ns: 1_000_000_000, ctime_ns: 1_000_000_000, ..Stamp::default() };
        assert!(stamp.is_racy(2_900_000_000));
        assert!(!stamp.is_racy(3_100_000_000));
    }
}
