//! Copies of folders.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::command;

/// Copies the contents of a folder except for some names at its top. Links stay links.
pub(super) fn copy(from: &Path, to: &Path, left_out: &[&str]) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", from.display());
    let entries = fs::read_dir(from).map_err(failed)?.collect::<Result<Vec<_>, _>>();
    let kept = entries
        .map_err(failed)?
        .into_iter()
        .filter(|entry| left_out.iter().all(|name| entry.file_name() != *name));
    let mut cp = Command::new("cp");
    command::succeed(cp.args(["-a", "-t"]).arg(to).arg("--").args(kept.map(|entry| entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_links_as_links_and_no_logs() {
        let around = tempfile::tempdir().unwrap();
        let (from, to) = (around.path().join("from"), around.path().join("to"));
        ["from/app/tmp", "from/log", "from/tmp", "to"]
            .iter()
            .for_each(|name| fs::create_dir_all(around.path().join(name)).unwrap());
        fs::write(from.join("app/tmp/kept"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        copy(&from, &to, &["tmp", "log"]).unwrap();
        assert!(to.join("app/tmp/kept").is_file() && !to.join("log").is_dir());
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
    }
}
