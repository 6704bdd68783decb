//! The project's own text, file by file.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the project.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// The path below the top of the checkout.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(super) path: PathBuf,
    /// The number of the line, from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

/// The suffixes of files with the project's own text; recordings, packed files and the like are data.
const SUFFIXES: [&str; 10] = ["rs", "rb", "md", "ru", "sh", "py", "js", "toml", "yml", "css"];

/// Folders of build output and leftovers in a developer's checkout.
const LEFT_OUT: [&str; 5] = ["target", "tmp", "log", "node_modules", "vendor"];

pub(super) fn pages(root: &Path) -> Vec<Page> {
    let mut pages = Vec::new();
    collect(root, Path::new(""), &mut pages);
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

fn collect(root: &Path, below: &Path, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = below.join(&name);
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !name.starts_with('.') && !LEFT_OUT.contains(&name.as_str()) {
            collect(root, &path, pages);
        } else if SUFFIXES.iter().any(|suffix| has_suffix(&path, suffix)) {
            // A file that is not UTF-8 contains none of our text.
            pages.extend(fs::read_to_string(root.join(&path)).map(|text| Page { path, text }));
        }
    }
}

pub(super) fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|own| own == suffix)
}

impl Page {
    pub(super) fn is_markdown(&self) -> bool {
        has_suffix(&self.path, "md")
    }

    /// Lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    pub(super) fn breach(&self, line: usize, what: String) -> Breach {
        Breach { path: self.path.clone(), line, what }
    }
}

#[cfg(test)]
pub(super) fn page(path: &str, text: &str) -> Page {
    Page { path: path.into(), text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_files_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["a.rs", "target/b.rs", "tmp/c.rb", ".git/d.md", "docs/e.md", "docs/f.pack"] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, "text").expect("written");
        }
        let found: Vec<_> = pages(folder.path()).into_iter().map(|page| page.path).collect();
        assert_eq!(found, [Path::new("a.rs"), Path::new("docs/e.md")]);
    }
}
