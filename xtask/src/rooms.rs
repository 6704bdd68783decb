//! The shape of each crate: which of its files import each other, and how long its functions are.
//!
//! Imports are what the code names: `use` trees and paths, followed through re-exports to the file that defines
//! the name. What is compiled for tests alone does not count.

mod graph;
mod modules;
mod source;

use std::path::Path;

use source::Source;

/// Lines of a function, at most.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of the median function, at most.
const MEDIAN_LINES_MAX: usize = 7;

/// Folders of sources, with the name that a breach gives their crate.
pub(crate) fn folders(root: &Path) -> Vec<(String, std::path::PathBuf)> {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut found: Vec<_> = crates
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")))
        .collect();
    found.push(("gem-ext".into(), root.join("gem/ext/thruway/src")));
    found.push(("xtask".into(), root.join("xtask/src")));
    found.sort();
    found
}

/// Every breach, one a line; none is `Ok`.
pub(crate) fn check(root: &Path) -> Result<(), Vec<String>> {
    let mut breaches = Vec::new();
    let mut lengths = Vec::new();
    for (name, folder) in folders(root) {
        let sources = source::read(&folder).map_err(|error| vec![error])?;
        breaches.extend(circles(&name, &sources));
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

/// Files that import each other, directly or by way of others.
fn circles(name: &str, sources: &[Source]) -> Vec<String> {
    let imports = modules::imports(sources);
    let circles = graph::circles(sources.len(), &imports);
    let told = |circle: Vec<usize>| {
        let files: Vec<_> = circle.iter().map(|file| sources[*file].file.as_str()).collect();
        format!("{name}: a circle of imports: {}", files.join(", "))
    };
    circles.into_iter().map(told).collect()
}
