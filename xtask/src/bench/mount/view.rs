//! Ways to show a folder at another place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::test_filesystem::{TestFilesystem, unmount};
use crate::bench::context::BenchContext;
use crate::command::succeed;

/// How long a daemon may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The switch with which an administrator allows FUSE over io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// One of the ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Native,
    Overlay,
    Live,
    /// The same with a source that is a file system of its own, which is watched as a whole.
    LiveWhole,
    /// The same over io_uring, where that is switched on; so below.
    LiveRing,
    Frozen,
    MergerFs,
    PassthroughHp,
    PassthroughHpRing,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Overlay => "overlayfs",
            Self::Live => "thruway",
            Self::LiveWhole => "thruway, a whole file system",
            Self::LiveRing => "thruway, io_uring",
            Self::Frozen => "thruway `--frozen`",
            Self::MergerFs => "mergerfs",
            Self::PassthroughHp => "passthrough_hp",
            Self::PassthroughHpRing => "passthrough_hp, io_uring",
        }
    }
}

/// A folder, shown; it is not when this value is gone.
pub(super) struct View {
    pub(super) way: Way,
    /// Where it is shown.
    pub(super) folder: PathBuf,
    is_mounted: bool,
}

/// Where whose daemon may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processors {
    /// On the one where its users run.
    One,
    /// Anywhere, and so may its users.
    All,
}

impl Processors {
    /// A command that runs there.
    pub(super) fn command(self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        if self == Self::All {
            return Command::new(program);
        }
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "1"]).arg(program);
        command
    }
}

impl View {
    /// Shows the folders `sources` of the filesystem; `None` if the way is not at hand.
    pub(super) fn new(
        context: &BenchContext,
        filesystem: &TestFilesystem,
        way: Way,
        sources: &[PathBuf],
        processors: Processors,
    ) -> Result<Option<Self>, String> {
        let source = sources.first().ok_or("no source")?;
        if way == Way::Native {
            return Ok(Some(Self { way, folder: source.clone(), is_mounted: false }));
        }
        let folder = filesystem.at("targets").join(format!("{way:?}"));
        let failed = |error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let Some(mut command) = mounting(context, filesystem, way, sources, &folder, processors)?
        else {
            return Ok(None);
        };
        let beside = device(&folder);
        succeed(command.stdout(Stdio::null()))?;
        let view = Self { way, folder, is_mounted: true };
        let deadline = Instant::now() + PATIENCE;
        while device(&view.folder) == beside {
            if Instant::now() > deadline {
                return Err(format!("{} does not mount", way.name()));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(Some(view))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount(&self.folder);
        }
    }
}

/// The number of the file system that a folder lies on.
fn device(folder: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(folder).ok().map(|metadata| metadata.dev())
}

/// The command that shows `sources` at `target`.
fn mounting(
    context: &BenchContext,
    filesystem: &TestFilesystem,
    way: Way,
    sources: &[PathBuf],
    target: &Path,
    processors: Processors,
) -> Result<Option<Command>, String> {
    let joined = || sources.iter().map(|s| s.display().to_string()).collect::<Vec<_>>().join(":");
    let mut command = match way {
        Way::Native => return Ok(None),
        Way::LiveRing | Way::PassthroughHpRing if !is_uring_on() => return Ok(None),
        Way::Overlay => {
            let (upper, work) = (filesystem.folder("upper")?, filesystem.folder("work")?);
            let (upper, work) = (upper.display(), work.display());
            let options = format!("lowerdir={},upperdir={upper},workdir={work}", joined());
            let mut command = Command::new("mount");
            command.args(["-t", "overlay", "overlay", "-o", &options]);
            command
        }
        Way::Live | Way::LiveWhole | Way::LiveRing | Way::Frozen => {
            let mut command = processors.command(context.root.join("target/release/thruway"));
            command.arg("mount").args((way == Way::Frozen).then_some("--frozen"));
            command.args((way == Way::LiveRing).then_some("--transport=io-uring")).args(sources);
            command
        }
        Way::MergerFs => {
            let mut command = processors.command("mergerfs");
            command.args(["-o", MERGERFS_OPTIONS]).arg(joined());
            command
        }
        Way::PassthroughHp | Way::PassthroughHpRing => {
            let Some(program) = context.peers.get("passthrough_hp") else { return Ok(None) };
            let mut command = processors.command(program);
            if way == Way::PassthroughHpRing {
                command.args(["-o", "io_uring"]);
            }
            command.args(sources);
            command
        }
    };
    command.arg(target);
    Ok(Some(command))
}

/// It keeps what it was told as long as thruway does.
const MERGERFS_OPTIONS: &str = "cache.files=auto-full,cache.entry=3600,cache.attr=3600,\
                                cache.negative_entry=3600,cache.readdir=true,cache.symlinks=true";

/// Whether this kernel offers FUSE over io_uring now.
fn is_uring_on() -> bool {
    fs::read_to_string(URING).is_ok_and(|text| text.trim() == "Y")
}

/// Has the kernel forget all names, and waits until it has given their memory back. A native search leaves
/// 1.8 million names that are not there. Freeing them goes on for half a second after the call, and would
/// be counted for the next contender. A name that was used of late is spared the first time.
pub(super) fn drop_names() -> Result<(), String> {
    for _ in 0..2 {
        fs::write("/proc/sys/vm/drop_caches", "2")
            .map_err(|error| format!("drop_caches: {error}"))?;
    }
    sleep(Duration::from_secs(1));
    Ok(())
}

/// The process that keeps one of our mounts.
pub(super) fn supervisor(context: &BenchContext, folder: &Path) -> Result<u32, String> {
    let mut command = Command::new(context.root.join("target/release/thruway"));
    command.args(["mount", "status", "--json"]).arg(folder);
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let status: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {error}"))?;
    let process = status["process"].as_u64().and_then(|process| u32::try_from(process).ok());
    process.ok_or_else(|| format!("{command:?} said {status}"))
}
