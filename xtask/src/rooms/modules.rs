//! Resolves each name in a crate to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Import, Source};

/// The longest chain of re-exports: longer than any crate has.
const STEPS_MAX: usize = 8;

/// The files of one crate by their modules.
struct Crate<'a> {
    sources: &'a [Source],
    files: BTreeMap<&'a [String], usize>,
}

/// Pairs of files of which the first uses a name of the second.
pub(crate) fn imports(sources: &[Source]) -> BTreeSet<(usize, usize)> {
    let files = sources.iter().enumerate();
    let files = files.map(|(file, source)| (source.module.as_slice(), file)).collect();
    let all = Crate { sources, files };
    let mut arrows = BTreeSet::new();
    for (file, source) in sources.iter().enumerate() {
        let is_used = |import: &&Import| {
            // A re-export is the interface of a folder, and no use of its own.
            !import.is_public || source.paths.iter().any(|path| path[0] == import.alias)
        };
        let imported = source.imports.iter().filter(is_used).map(|import| &import.path);
        let named = source.paths.iter().filter(|path| path.len() > 1);
        for path in imported.chain(named) {
            if let Some(target) = all.file_of(&source.module, path, STEPS_MAX) {
                arrows.insert((file, target));
            }
        }
    }
    arrows.retain(|(from, to)| from != to);
    arrows
}

impl Crate<'_> {
    /// The file that defines `path` as seen from `module`; none if another crate does.
    fn file_of(&self, module: &[String], path: &[String], steps: usize) -> Option<usize> {
        let (mut at, mut rest) = (module.to_vec(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let [first, more @ ..] = rest
                    && first == "super"
                {
                    at.pop();
                    rest = more;
                }
            }
            // A module declared in the file, or a name imported together with its module.
            first => {
                let child: Vec<String> = at.iter().cloned().chain([first.to_owned()]).collect();
                if !self.files.contains_key(child.as_slice()) {
                    return None;
                }
            }
        }
        self.follow(at, rest, steps)
    }

    fn follow(&self, mut at: Vec<String>, mut rest: &[String], steps: usize) -> Option<usize> {
        while let [first, more @ ..] = rest {
            at.push(first.clone());
            if !self.files.contains_key(at.as_slice()) {
                at.pop();
                break;
            }
            rest = more;
        }
        let file = *self.files.get(at.as_slice())?;
        let name = rest.first();
        let passed_on =
            self.sources[file].imports.iter().find(|import| Some(&import.alias) == name);
        match passed_on {
            Some(import) if steps > 0 => self.file_of(&at, &import.path, steps - 1).or(Some(file)),
            _ => Some(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(module: &[&str], imports: &[(&[&str], bool)], paths: &[&[&str]]) -> Source {
        let names = |path: &[&str]| path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let import = |(path, is_public): &(&[&str], bool)| Import {
            path: names(path),
            alias: names(path).pop().unwrap_or_default(),
            is_public: *is_public,
        };
        Source {
            module: names(module),
            imports: imports.iter().map(import).collect(),
            paths: paths.iter().map(|path| names(path)).collect(),
            ..Source::default()
        }
    }

    #[test]
    fn a_name_is_followed_to_the_file_that_defines_it() {
        let sources = [
            source(&[], &[(&["a", "A"], true)], &[]),
            source(&["a"], &[(&["crate", "b", "B"], false)], &[]),
            source(&["b"], &[(&["crate", "A"], false)], &[&["super", "a", "f"], &["std", "fs"]]),
            source(&["c"], &[(&["crate", "b"], false)], &[]),
        ];
        assert_eq!(imports(&sources), [(1, 2), (2, 1), (3, 2)].into());
    }

    #[test]
    fn a_reexport_is_an_import_only_if_it_is_used_too() {
        let passing = |paths| {
            let parent = source(&["a"], &[(&["b", "B"], true)], paths);
            imports(&[parent, source(&["a", "b"], &[(&["super", "C"], false)], &[])])
        };
        assert_eq!(passing(&[]), [(1, 0)].into());
        assert_eq!(passing(&[&["B", "new"]]), [(0, 1), (1, 0)].into());
    }
}
