//! Another system in a folder, created by debootstrap: its Ruby, and its installed servers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Starts a program with the folder as its root: `sh -c SCRIPT sh ROOT WORKING_FOLDER GEM SHOWN… -- PROGRAM ARGUMENT…`.
/// Folders of this machine appear in the root at their own paths, in a mount namespace that ends with the program. GEM
/// is a folder of thruway's extensions, in which the extension for the system's Ruby covers this machine's.
const SCRIPT: &str = r#"
root=$1 folder=$2 gem=$3
shift 3
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --rbind "$1" "$root$1"
    shift
done
shift
if [ -n "$gem" ]; then
    version=$(chroot "$root" ruby -e 'print RUBY_VERSION[/[0-9]+[.][0-9]+/]')
    if [ ! -e "$gem/$version/thruway.so" ]; then
        echo "there is no extension for Ruby $version in $gem/$version" >&2
        exit 1
    fi
    mount --bind "$gem/$version/thruway.so" "$root$gem/thruway.so"
fi
exec chroot "$root" env --chdir="$folder" "$@"
"#;

/// The kernel's file systems that programs need.
const KERNEL: [&str; 2] = ["/proc", "/dev"];

/// Another system in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemRoot {
    /// The name in tables.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

/// Says that the root is set up, and keeps it until the input ends.
const HOLDER: &str = "echo ready; exec cat";

/// A root that is set up: programs start in it without further mounts.
#[derive(Debug)]
pub(crate) struct EnteredRoot {
    pub(crate) name: String,
    /// The process whose root and mounts the programs share.
    holder: Child,
}

impl EnteredRoot {
    /// A command that runs inside the root. Its start costs one `execve` more than outside.
    pub(crate) fn command(&self, program: &str, working_folder: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id())).args(["--mount", "--root"]);
        command.arg(format!("--wdns={}", working_folder.display())).arg(program);
        command
    }
}

impl Drop for EnteredRoot {
    fn drop(&mut self) {
        // The mounts end with the last process that sees them.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl SystemRoot {
    /// Sets the root up for many programs, which see the folders `shown`.
    pub(crate) fn enter(&self, shown: &[PathBuf]) -> Result<EnteredRoot, String> {
        let mut command = self.command(Path::new("sh"), Path::new("/"), shown, None);
        command.args(["-c", HOLDER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let refused = |error| format!("{}: {error}", self.folder.display());
        let holder = command.spawn().map_err(refused)?;
        let mut root = EnteredRoot { name: self.name.clone(), holder };
        let mut line = String::new();
        let output = root.holder.stdout.take().map(BufReader::new);
        output.ok_or("no output")?.read_line(&mut line).map_err(refused)?;
        if line.trim_end() == "ready" {
            Ok(root)
        } else {
            Err(format!("cannot enter {}", self.name))
        }
    }

    /// The path of an installed program inside the root.
    pub(crate) fn installed(&self, program: &str) -> Option<PathBuf> {
        let inside = Path::new("/usr/bin").join(program);
        let outside = self.folder.join("usr/bin").join(program);
        // A link may have a target that exists only inside the root.
        outside.symlink_metadata().is_ok().then_some(inside)
    }

    /// A command that runs inside the root, in `working_folder`, and sees the folders `shown`. With `gem`, the folder
    /// of thruway's extensions, the extension for the system's Ruby is loaded.
    pub(crate) fn command(
        &self,
        program: &Path,
        working_folder: &Path,
        shown: &[PathBuf],
        gem: Option<&Path>,
    ) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", SCRIPT, "sh"]);
        command.arg(&self.folder).arg(working_folder).arg(gem.unwrap_or(Path::new("")));
        command.args(KERNEL).args(shown);
        command.arg("--").arg(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_below_the_root_and_named_as_inside() {
        let folder = tempfile::tempdir().unwrap();
        let root = SystemRoot { name: "other".into(), folder: folder.path().to_owned() };
        assert_eq!(root.installed("puma"), None);
        std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        std::fs::write(folder.path().join("usr/bin/puma"), "").unwrap();
        assert_eq!(root.installed("puma"), Some(PathBuf::from("/usr/bin/puma")));
    }
}
