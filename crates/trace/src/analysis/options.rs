//! Options that name the folders in which a program searches.

use super::text::{quoted, text};

/// A folder in an option; for a class path, a list of folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderOption {
    pub(super) kind: ListKind,
    /// The option as written, such as `-I` or `-isystem`.
    pub(super) option: String,
    pub(super) folder: String,
    /// Whether a process had changed its working directory before, so that a relative folder is ambiguous.
    pub(super) has_moved: bool,
}

/// The kind of files searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Headers.
    Include,
    /// Libraries, passed to a compiler that runs the linker.
    Link,
    /// Libraries, passed to the linker itself.
    Linker,
    /// Java classes.
    Classes,
}

impl FolderOption {
    /// Returns the option as it is written in a command.
    pub(super) fn word(&self) -> String {
        let space = if matches!(self.option.as_str(), "-I" | "-L") { "" } else { " " };
        format!("{}{space}{}", self.option, quoted(&self.folder))
    }
}

const INCLUDE: [&str; 4] = ["-I", "-isystem", "-iquote", "-idirafter"];
const CLASSES: [&str; 3] = ["-cp", "-classpath", "--class-path"];

/// Returns the folders in a program's arguments.
pub(super) fn of(program: &[u8], words: &[&[u8]], has_moved: bool) -> Vec<FolderOption> {
    let forms: (&[&str], ListKind) = match program {
        b"java" => (&CLASSES, ListKind::Classes),
        linker if is_linker(linker) => (&["-L"], ListKind::Linker),
        compiler if links(compiler) => (&["-L"], ListKind::Link),
        _ => (&[], ListKind::Include),
    };
    let find = |index: usize, word: &str| {
        let includes = INCLUDE.iter().map(|option| (*option, ListKind::Include));
        let others = forms.0.iter().map(|option| (*option, forms.1));
        let mut all = includes.chain(others);
        let (option, kind, rest) =
            all.find_map(|(option, kind)| Some((option, kind, word.strip_prefix(option)?)))?;
        let folder = match (kind, rest) {
            (_, "") => text(words.get(index + 1)?),
            (ListKind::Classes, rest) => rest.strip_prefix('=')?.to_owned(),
            (_, rest) => rest.to_owned(),
        };
        Some(FolderOption { kind, option: option.to_owned(), folder, has_moved })
    };
    let words = words.iter().enumerate();
    words.filter_map(|(index, word)| find(index, str::from_utf8(word).ok()?)).collect()
}

/// Whether a program is a linker, rather than a compiler that runs one.
fn is_linker(program: &[u8]) -> bool {
    const LINKERS: [&[u8]; 8] =
        [b"ld", b"ld.bfd", b"ld.gold", b"ld.lld", b"lld", b"gold", b"mold", b"collect2"];
    program.split(|byte| *byte == b'-').any(|part| LINKERS.contains(&part))
}

/// Whether a program is a linker or a compiler that runs one.
pub(super) fn links(program: &[u8]) -> bool {
    const COMPILERS: [&[u8]; 8] =
        [b"gcc", b"g++", b"cc", b"c++", b"clang", b"clang++", b"gfortran", b"c99"];
    is_linker(program) || program.split(|byte| *byte == b'-').any(|part| COMPILERS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_words(words: &[&str]) -> Vec<String> {
        let bytes: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        of(bytes[0], &bytes, false)
            .iter()
            .map(|one| format!("{:?} {}", one.kind, one.word()))
            .collect()
    }

    #[test]
    fn options_are_found_as_they_were_written() {
        let words = ["gcc", "-Ia", "-I", "b", "-isystem", "c", "-L", "d", "-Le", "-lf", "x.c"];
        let expected = ["Include -Ia", "Include -Ib", "Include -isystem c", "Link -Ld", "Link -Le"];
        assert_eq!(of_words(&words), expected);
        assert_eq!(of_words(&["x86_64-linux-gnu-ld", "-La"]), ["Linker -La"]);
        assert_eq!(of_words(&["java", "-cp", "a:b", "Main"]), ["Classes -cp a:b"]);
        assert_eq!(of_words(&["java", "--class-path=a:b", "Main"]), ["Classes --class-path a:b"]);
        assert_eq!(of_words(&["ls", "-L", "a"]), [""; 0]);
    }
}
