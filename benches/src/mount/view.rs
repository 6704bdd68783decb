//! The ways to show a folder at another place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::test_filesystem::{TestFilesystem, unmount};
use crate::context::BenchContext;
use xtask::command::succeed;

/// How long a daemon may take until it responds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The switch by which an administrator allows FUSE over io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// One way to show a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Native,
    Overlay,
    Live,
    /// A live mount of a source that is a file system of its own, which is watched as a whole.
    LiveWhole,
    /// A live mount over io_uring, if the kernel allows it; so below.
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

/// A shown folder, which is unmounted when the value is dropped.
pub(super) struct View {
    pub(super) way: Way,
    /// The place at which the folder is shown.
    pub(super) folder: PathBuf,
    is_mounted: bool,
}

/// The processors of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processors {
    /// The processor of its users.
    One,
    /// Any processor, for the daemon and its users.
    All,
}

impl Processors {
    /// A command that runs on the processors.
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
    /// Shows the folders `sources` of the file system; `None` if the way is not available.
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

/// The number of the file system of a folder.
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

/// The options by which mergerfs keeps attributes and names as long as thruway does, and makes folders where they are
/// missing.
const MERGERFS_OPTIONS: &str = "cache.files=auto-full,cache.entry=3600,cache.attr=3600,\
                                cache.negative_entry=3600,cache.readdir=true,cache.symlinks=true,\
                                category.create=ff";

/// Whether the kernel offers FUSE over io_uring now.
fn is_uring_on() -> bool {
    fs::read_to_string(URING).is_ok_and(|text| text.trim() == "Y")
}

/// Makes the kernel drop all names, and waits until their memory is free. A native search leaves 1.8 million negative
/// entries, whose release goes on for half a second after the call, and would be counted for the next contender. A
/// recently used name is spared the first time.
pub(super) fn drop_names() -> Result<(), String> {
    for _ in 0..2 {
        fs::write("/proc/sys/vm/drop_caches", "2")
            .map_err(|error| format!("drop_caches: {error}"))?;
    }
    sleep(Duration::from_secs(1));
    Ok(())
}

/// Returns the process that keeps one of our mounts.
pub(super) fn supervisor(context: &BenchContext, folder: &Path) -> Result<u32, String> {
    let mut command = Command::new(context.root.join("target/release/thruway"));
    command.args(["mount", "status", "--json"]).arg(folder);
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let status: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{command:?}: {error}"))?;
    let process = status["process"].as_u64().and_then(|process| u32::try_from(process).ok());
    process.ok_or_else(|| format!("{command:?} said {status}"))
}
