//! Tells where the files of a mount are, by the extended attributes of the mount.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::getxattr;
use rustix::io::Errno;

use crate::Error;

/// The maximum length of the attribute in bytes, which the kernel sets.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Returns the paths of a file of a mount in all sources that have it, that of the source in use first.
///
/// # Errors
/// The file does not exist, or it is not on a thruway mount.
pub fn locate(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |cause: io::Error| Error::new("cannot locate", path, cause);
    let absolute = std::path::absolute(path).map_err(failed)?;
    let stat = fs::symlink_metadata(&absolute).map_err(failed)?;
    // Symbolic links have no attributes of their own for users, and those of a file with several names are about the
    // name that was used last.
    let is_by_name = stat.is_symlink() || stat.nlink() > 1 && !stat.is_dir();
    if !is_by_name {
        return copies(&absolute).map_err(|errno| not_located(path, errno));
    }
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(not_located(path, Errno::NODATA));
    };
    let folders = copies(parent).map_err(|errno| not_located(path, errno))?;
    let all = folders.into_iter().map(|folder| folder.join(name));
    Ok(all.filter(|path| fs::symlink_metadata(path).is_ok()).collect())
}

fn copies(path: &Path) -> Result<Vec<PathBuf>, Errno> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let length = getxattr(path, c"user.thruway.copies", value.as_mut_slice())?;
    value.truncate(length);
    let paths = value.split(|&byte| byte == 0).map(|path| OsString::from_vec(path.to_vec()).into());
    Ok(paths.collect())
}

fn not_located(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::NODATA | Errno::OPNOTSUPP => {
            let path = thruway_sys::printable::path(&path);
            Error::plain(format_args!("{path} is not on a thruway mount")).with_hint(
                "the mount may also have --xattr off; thruway mount status lists all mounts",
            )
        }
        errno => Error::new("cannot locate", path, errno),
    }
}
