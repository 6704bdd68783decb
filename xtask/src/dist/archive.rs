//! Archives to unpack: for Linux with all files of a prefix, for Windows with the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Builder;
use super::files::{self, copy, copy_tree, named, write};
use super::gems;
use super::manual::{self, Shell};
use super::ruby::Ruby;
use super::{bill, crates, output};
use crate::windows;

/// The maximum size of a stripped program in bytes.
const PROGRAM_BYTES_MAX: u64 = 8_000_000;

/// Builds the archive for any Linux on the processor: a prefix such as `/usr/local`, or a folder of
/// its own.
pub(super) fn linux(builder: &Builder, rubies: &[Ruby]) -> Result<PathBuf, String> {
    let name = format!("thruway-{}-{}", builder.version, builder.processor.platform());
    let tree = builder.work("archive").join(&name);
    files::empty(&tree)?;
    let program = builder.static_program()?;
    check_size(&program)?;
    copy(&program, &tree.join("bin/thruway"), 0o755)?;
    let library = tree.join("lib/thruway");
    copy_tree(&builder.root.join("gem/lib"), &library, &|_| true)?;
    gems::extensions(builder, &library, rubies)?;
    for page in manual::pages(builder.processor, &program)? {
        write(&tree.join("share/man/man1").join(&page.name), page.text)?;
    }
    for (shell, place) in Shell::PLACES {
        write(
            &tree.join("share").join(place),
            manual::completions(builder.processor, &program, shell)?,
        )?;
    }
    documents(builder, &tree.join("share/doc/thruway"))?;
    let time = output::source_time(builder)?;
    output::finish(builder, &format!("{name}.tar.gz"), |path| {
        let mut tar = Command::new("tar");
        tar.current_dir(builder.work("archive")).args(["--sort=name", "--owner=0", "--group=0"]);
        tar.args(["--numeric-owner", "--use-compress-program=gzip -9n"]);
        tar.arg(format!("--mtime=@{time}")).arg("-cf").arg(path).arg(&name);
        tar
    })
}

/// Builds the archive of `thruway.exe`, if this machine can.
pub(super) fn windows(builder: &Builder) -> Result<Option<PathBuf>, String> {
    if let Some(missing) = crate::wine::missing() {
        println!("dist: nothing for Windows, because this machine lacks {missing}");
        return Ok(None);
    }
    println!("dist: cargo x windows build");
    let program = windows::release_program(&builder.root)?;
    let name = format!("thruway-{}-x86_64-windows", builder.version);
    let tree = builder.work("archive").join(&name);
    files::empty(&tree)?;
    let copied = tree.join("thruway.exe");
    copy(&program, &copied, 0o755)?;
    crate::command::succeed(Command::new("x86_64-w64-mingw32-strip").arg(&copied))?;
    check_size(&copied)?;
    documents(builder, &tree)?;
    let made = output::finish(builder, &format!("{name}.zip"), |path| {
        let mut zip = Command::new("python3");
        let work = builder.work("archive");
        zip.current_dir(work).args(["-m", "zipfile", "-c"]).arg(path).arg(&name);
        zip
    });
    made.map(Some)
}

/// Writes the bill of materials, and the third-party licences of the programs.
pub(super) fn documents(builder: &Builder, folder: &Path) -> Result<(), String> {
    let crates = crates::of_programs(builder)?;
    write(&folder.join("thruway.cdx.json"), bill::materials(builder, &crates)?)?;
    write(&folder.join("THIRD-PARTY.txt"), bill::licences(builder, &crates)?)?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&builder.root.join(file), &folder.join(file), 0o644)?;
    }
    Ok(())
}

/// Writes the checksum of each file of the version.
pub(super) fn checksums(builder: &Builder) -> Result<PathBuf, String> {
    let folder = builder.output("");
    let mut sums = Command::new("sha256sum");
    sums.current_dir(&folder);
    let files = output::of_this_version(builder)?;
    sums.args(files.iter().filter_map(|path| path.file_name()));
    let output = sums.output().map_err(|error| format!("cannot start sha256sum: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_by_key(|line| line.split_whitespace().last());
    let file = builder.output("SHA256SUMS");
    write(&file, lines.join("\n") + "\n")?;
    Ok(file)
}

fn check_size(program: &Path) -> Result<(), String> {
    let bytes = named(program, program.metadata())?.len();
    if bytes <= PROGRAM_BYTES_MAX {
        return Ok(());
    }
    Err(format!("{} has {bytes} bytes; {PROGRAM_BYTES_MAX} are allowed", program.display()))
}
