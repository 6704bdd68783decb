//! The memory of a million inodes, looked up and then forgotten.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::test_filesystem::TestFilesystem;
use super::view::{Processors, View, Way, drop_names, supervisor};
use crate::context::BenchContext;
use crate::process::{family, memory_mb};
use crate::table::{Table, at_most};

const FOLDERS: usize = 1000;
const NAMES: usize = 1000;

pub(crate) fn run(context: &BenchContext) -> Result<String, String> {
    let filesystem = TestFilesystem::new()?;
    let source = filesystem.folder("million")?;
    each_name(&source, |path| fs::write(path, ""))?;
    let view = View::new(context, &filesystem, Way::Live, &[source], Processors::All)?;
    let view = view.ok_or("thruway is not at hand")?;
    let processes = family(supervisor(context, &view.folder)?);
    let fresh = memory_mb(&processes);
    each_name(&view.folder, |path| fs::symlink_metadata(path).map(drop))?;
    let full = memory_mb(&processes);
    drop_names()?;
    // The kernel reports forgotten inodes late, and idle memory is returned after some seconds.
    sleep(Duration::from_secs(15));
    let empty = memory_mb(&processes);
    let mut table =
        Table::new("A million inodes", &["MB", "fresh", "all looked up", "all forgotten"]);
    table.row("thruway", &[fresh, full, empty].map(|mb| format!("{mb:.0}")));
    table.target("looked up ≤ 300 MB", at_most(Some(full), 300.0));
    table.target("given back: forgotten ≤ 30 MB", at_most(Some(empty), 30.0));
    Ok(table.text())
}

/// Acts on each name, folder by folder.
fn each_name(base: &Path, act: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), String> {
    for folder in 0..FOLDERS {
        let folder = base.join(folder.to_string());
        let acted = fs::create_dir_all(&folder)
            .and_then(|()| (0..NAMES).try_for_each(|name| act(&folder.join(name.to_string()))));
        acted.map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(())
}
