//! Fresh Debian roots, created by debootstrap.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments of unshare. Mounts are private; mounts and processes end with the command, even if it is killed.
pub(crate) const NAMESPACES: [&str; 5] =
    ["--mount", "--pid", "--kill-child", "--propagation", "private"];
const PROGRAM: &str = "/usr/sbin/debootstrap";
/// The host of Debian's packages, if the machine's own sources name none.
const DEFAULT_HOST: &str = "http://deb.debian.org";
/// The machine's package sources, in both of apt's formats.
const SOURCES: [&str; 2] = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"];

/// Returns the reason why this machine cannot create or enter a root.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("that takes root");
    }
    (!Path::new(PROGRAM).is_file()).then_some("that takes debootstrap")
}

/// Returns the root of a suite as debootstrap leaves it. An existing root is kept. An unfinished root stands under
/// another name, and is created anew.
pub(crate) fn root(
    folder: &Path,
    name: &str,
    suite: &str,
    options: &[&str],
) -> Result<PathBuf, String> {
    let root = folder.join(name);
    if root.join("etc/debian_version").metadata().is_ok() {
        return Ok(root);
    }
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let partial = folder.join(format!("{name}.partial"));
    if partial.symlink_metadata().is_ok() {
        fs::remove_dir_all(&partial).map_err(|error| failed(&partial, error))?;
    }
    fs::create_dir_all(&partial).map_err(|error| failed(&partial, error))?;
    println!("debootstrap {name}: about a minute");
    let log = folder.join(format!("{name}.log"));
    let mut debootstrap = Command::new("unshare");
    debootstrap
        .args(NAMESPACES)
        .args([PROGRAM, "--variant=minbase"])
        .args(options)
        .arg(suite)
        .arg(&partial)
        .arg(archive("debian"));
    if !std::io::stdout().is_terminal() {
        let file = fs::File::create(&log).map_err(|error| failed(&log, error))?;
        debootstrap.stdout(file);
    }
    crate::command::succeed(&mut debootstrap).map_err(|error| {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default();
        format!("{error}\n{last}\n\nhint: debootstrap downloads packages; is there a network?")
    })?;
    fs::rename(&partial, &root).map_err(|error| failed(&root, error))?;
    Ok(root)
}

/// The address of a Debian archive, `debian` or `debian-security`: the mirror in this machine's own list of sources if
/// the machine runs Debian, and otherwise the default host.
pub(crate) fn archive(name: &str) -> String {
    let texts = SOURCES.iter().filter_map(|file| fs::read_to_string(file).ok());
    let found = texts.into_iter().find_map(|text| archive_in(&text, name).map(str::to_owned));
    found.unwrap_or_else(|| format!("{DEFAULT_HOST}/{name}"))
}

/// The first address in a list of sources whose last part is `name`.
fn archive_in<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let is_address = |word: &&str| {
        let is_http = word.starts_with("http://") || word.starts_with("https://");
        is_http && word.trim_end_matches('/').rsplit('/').next() == Some(name)
    };
    lines.flat_map(str::split_whitespace).find(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_mirror_is_found_in_both_formats() {
        let list =
            "# deb http://old.example/debian x\ndeb https://one.example/debian/ bookworm main\n";
        assert_eq!(archive_in(list, "debian"), Some("https://one.example/debian/"));
        let sources = "Types: deb\nURIs: http://two.example/debian-security\nSuites: a b\n";
        assert_eq!(
            archive_in(sources, "debian-security"),
            Some("http://two.example/debian-security")
        );
        assert_eq!(archive_in(sources, "debian"), None);
    }
}
