//! The file of a time zone, which libc reads through calls that cannot be observed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The folder of zones if `TZDIR` names no other.
const FOLDER: &str = "/usr/share/zoneinfo";
/// The zone of an empty `TZ`.
const EMPTY: &[u8] = b"Universal";

/// Returns the file that glibc reads for the given `TZ` and `TZDIR` (tzset(3)). glibc looks for a file even
/// if the value is a rule such as `EST5EDT`. Without `TZ` it reads `/etc/localtime`.
#[must_use]
pub fn file(zone: &OsStr, folder: Option<&OsStr>) -> Vec<u8> {
    let zone = zone.as_bytes();
    let name = if zone.is_empty() { EMPTY } else { zone.strip_prefix(b":").unwrap_or(zone) };
    if name.starts_with(b"/") {
        return name.to_vec();
    }
    let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or(OsStr::new(FOLDER));
    [folder.as_bytes(), name].join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_a_name_below_the_folder_or_a_path() {
        for (zone, folder, expected) in [
            ("Europe/Rome", None, "/usr/share/zoneinfo/Europe/Rome"),
            (":Europe/Rome", Some(""), "/usr/share/zoneinfo/Europe/Rome"),
            ("UTC", Some("/zones"), "/zones/UTC"),
            ("/etc/zone", Some("/zones"), "/etc/zone"),
            (":/etc/zone", None, "/etc/zone"),
            ("", None, "/usr/share/zoneinfo/Universal"),
        ] {
            let path = file(OsStr::new(zone), folder.map(OsStr::new));
            assert_eq!(String::from_utf8_lossy(&path), expected, "{zone:?}");
        }
    }
}
