//! The shape of each crate: the imports between its files, and the lengths of its functions.
//!
//! Imports are the names in the code: `use` trees and paths, followed through re-exports to the file that defines the
//! name. Code for tests alone does not count.
//!
//! In the crates of [`LAYERED`], imports between the top-level folders of `src` form no circle either, so that a folder
//! can be read before the folders that depend on it.

mod graph;
mod modules;
mod source;

use std::path::Path;

use source::Source;

/// Crates whose top-level folders are layers.
const LAYERED: [&str; 1] = ["serve"];

/// The maximum number of lines in a function.
const FUNCTION_LINES_MAX: usize = 70;

/// The maximum number of lines in the median function.
const MEDIAN_LINES_MAX: usize = 7;

/// Returns the source folders, each with the name of its crate in reports.
pub(crate) fn folders(root: &Path) -> Vec<(String, std::path::PathBuf)> {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut found: Vec<_> = crates
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")))
        .collect();
    found.push(("gem-ext".into(), root.join("gem/ext/thruway/src")));
    found.push(("xtask".into(), root.join("xtask/src")));
    found.push(("benches".into(), root.join("benches/src")));
    found.sort();
    found
}

/// Returns every breach, one per line; none is `Ok`.
pub(crate) fn check(root: &Path) -> Result<(), Vec<String>> {
    let mut breaches = Vec::new();
    let mut lengths = Vec::new();
    for (name, folder) in folders(root) {
        let sources = source::read(&folder).map_err(|error| vec![error])?;
        breaches.extend(circles(&name, &sources));
        if LAYERED.contains(&name.as_str()) {
            breaches.extend(folder_circles(&name, &sources));
        }
        for function in sources.iter().flat_map(|source| &source.functions) {
            lengths.push(function.lines);
            if function.lines > FUNCTION_LINES_MAX {
                breaches.push(format!("{name}: {} has {} lines", function.name, function.lines));
            }
        }
    }
    lengths.sort_unstable();
    match lengths.get(lengths.len() / 2) {
        Some(median) if *median > MEDIAN_LINES_MAX => {
            breaches.push(format!("the median function has {median} lines"));
        }
        _ => {}
    }
    if breaches.is_empty() { Ok(()) } else { Err(breaches) }
}

/// Reports files that import each other, directly or indirectly.
fn circles(name: &str, sources: &[Source]) -> Vec<String> {
    let imports = modules::imports(sources);
    let circles = graph::circles(sources.len(), &imports);
    let told = |circle: Vec<usize>| {
        let files: Vec<_> = circle.iter().map(|file| sources[*file].file.as_str()).collect();
        format!("{name}: a circle of imports: {}", files.join(", "))
    };
    circles.into_iter().map(told).collect()
}

/// Reports top-level folders that import each other, with the files involved.
fn folder_circles(name: &str, sources: &[Source]) -> Vec<String> {
    let mut folders: Vec<&str> = sources.iter().filter_map(Source::folder).collect();
    folders.sort_unstable();
    folders.dedup();
    let room = |file: usize| {
        let folder = sources[file].folder()?;
        folders.binary_search(&folder).ok()
    };
    let arrows: Vec<_> = modules::imports(sources)
        .into_iter()
        .filter_map(|(from, to)| Some((room(from)?, room(to)?, from, to)))
        .filter(|(from, to, ..)| from != to)
        .collect();
    let rooms = arrows.iter().map(|(from, to, ..)| (*from, *to)).collect();
    let told = |circle: Vec<usize>| {
        let names: Vec<_> = circle.iter().map(|room| folders[*room]).collect();
        let inside = |room: &usize| circle.contains(room);
        let imports: Vec<_> = arrows
            .iter()
            .filter(|(from, to, ..)| inside(from) && inside(to))
            .map(|(.., from, to)| format!("{} -> {}", sources[*from].file, sources[*to].file))
            .collect();
        let (names, imports) = (names.join(", "), imports.join(", "));
        format!("{name}: a circle of imports between folders {names}: {imports}")
    };
    graph::circles(folders.len(), &rooms).into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(file: &str, import: &str) -> Source {
        let names = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
        let path = [vec!["crate".to_owned()], names(import)].concat();
        Source {
            file: format!("{file}.rs"),
            module: names(file),
            imports: vec![source::Import { path, alias: "it".to_owned(), is_public: false }],
            ..Source::default()
        }
    }

    #[test]
    fn folders_that_import_each_other_are_a_circle_though_their_files_are_none() {
        let sources = [
            source("high", "std"),
            source("high/a", "low/b"),
            source("high/c", "error"),
            source("low", "std"),
            source("low/b", "error"),
            source("low/d", "high/c"),
            source("error", "std"),
        ];
        assert!(circles("serve", &sources).is_empty());
        let found = folder_circles("serve", &sources);
        let expected = "serve: a circle of imports between folders high, low: high/a.rs -> low/b.rs, \
                        low/d.rs -> high/c.rs";
        assert_eq!(found, [expected]);
        assert!(folder_circles("serve", &sources[..5]).is_empty());
    }
}
