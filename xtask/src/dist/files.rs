//! Files and folders, with errors that name them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Adds the path to an error.
pub(super) fn named<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    named(path, fs::read_to_string(path))
}

/// Writes a file, and creates its folders.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    make_parent(path)?;
    named(path, fs::write(path, content))
}

/// Writes an executable file.
pub(super) fn write_program(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    write(path, content)?;
    set_mode(path, 0o755)
}

/// Copies a file with the given mode, and creates its folders.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    make_parent(to)?;
    named(from, fs::copy(from, to))?;
    set_mode(to, mode)
}

/// Copies the regular files below a folder whose paths `wants` accepts. Links are followed.
pub(super) fn copy_tree(
    from: &Path,
    to: &Path,
    wants: &dyn Fn(&Path) -> bool,
) -> Result<(), String> {
    for file in below(from)? {
        let inside = file.strip_prefix(from).map_err(|error| error.to_string())?;
        if wants(inside) {
            copy(&file, &to.join(inside), 0o644)?;
        }
    }
    Ok(())
}

/// Returns every file below a folder, sorted. Links count as files.
pub(super) fn below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in named(folder, fs::read_dir(folder))? {
        let entry = named(folder, entry)?;
        let is_folder = named(folder, entry.file_type())?.is_dir();
        if is_folder { found.extend(below(&entry.path())?) } else { found.push(entry.path()) }
    }
    found.sort();
    Ok(found)
}

/// Creates an empty folder in place of any earlier one.
pub(super) fn empty(folder: &Path) -> Result<(), String> {
    if folder.symlink_metadata().is_ok() {
        named(folder, fs::remove_dir_all(folder))?;
    }
    named(folder, fs::create_dir_all(folder))
}

fn make_parent(path: &Path) -> Result<(), String> {
    let Some(folder) = path.parent() else { return Ok(()) };
    named(folder, fs::create_dir_all(folder))
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    named(path, fs::set_permissions(path, fs::Permissions::from_mode(mode)))
}

/// The file's path in the workspace, and its size.
pub(super) fn describe(root: &Path, file: &Path) -> String {
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let name = file.strip_prefix(root).unwrap_or(file);
    format!("{:>9.2} MB  {}", bytes as f64 / 1e6, name.display())
}

/// The folders in a folder, sorted; none if the folder is missing.
pub(super) fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}
