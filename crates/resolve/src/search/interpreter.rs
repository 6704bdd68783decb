//! Checks that the interpreter of a file exists, without which the file does not start.
//!
//! `execve` reports a missing interpreter as `ENOENT`, like a missing file, and `execvp` then tries the next
//! candidate. The same is true after `EACCES`, for an interpreter that must not be executed. After `ELOOP`,
//! for too many scripts, `execvp` gives up. A search by name alone would stop at a file that never starts.
//! The rules are those of Linux' `fs/exec.c`, `fs/binfmt_script.c` and `fs/binfmt_elf.c`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{LookupFailure, Obstacle, SCRIPTS_MAX};

/// The number of bytes that Linux examines (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;

/// The longest name of an interpreter (`PATH_MAX`).
const NAME_BYTES_MAX: u64 = 4096;

/// The values of `e_machine` that this processor runs natively. Other programs need an emulator with rules of
/// its own.
const MACHINES: &[u16] = if cfg!(target_arch = "x86_64") {
    &[62, 3]
} else if cfg!(target_arch = "aarch64") {
    &[183, 40]
} else {
    &[]
};

/// A way to open files.
pub(super) trait Programs {
    /// Checks that the file exists and may be executed.
    fn check(&mut self, path: &[u8]) -> Result<(), LookupFailure>;

    /// Opens a file for reading. An executable file need not be readable.
    fn read(&mut self, path: &[u8]) -> Option<File>;
}

/// Returns the reason why the program at `path` does not start, as far as its interpreters are concerned.
pub(super) fn obstacle(path: &[u8], programs: &mut impl Programs) -> Option<Obstacle> {
    let mut path = path.to_vec();
    // The last interpreter of a chain that is too long is still looked up before the start fails.
    for _ in 0..=SCRIPTS_MAX {
        let interpreter = interpreter_of(&programs.read(&path)?)?;
        match programs.check(&interpreter) {
            Ok(()) => path = interpreter,
            Err(LookupFailure::Missing) => return Some(Obstacle::Missing(interpreter)),
            Err(LookupFailure::Denied) => return Some(Obstacle::Denied(interpreter)),
            Err(LookupFailure::Failed(code)) => return Some(Obstacle::Failed(interpreter, code)),
        }
    }
    Some(Obstacle::Nested)
}

fn interpreter_of(file: &File) -> Option<Vec<u8>> {
    let mut head = [0; HEAD_BYTES];
    let length = file.read_at(&mut head, 0).ok()?;
    match &head[..length] {
        [b'#', b'!', line @ ..] => of_script(line),
        head if head.starts_with(b"\x7fELF") => of_elf(head, file),
        _ => None,
    }
}

/// Returns the name between `#!` and the first blank. The system ignores a name that is cut off by the limit.
fn of_script(line: &[u8]) -> Option<Vec<u8>> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let is_whole = line.len() + 2 < HEAD_BYTES || line.contains(&b'\n');
    let line = line.split(|byte| *byte == b'\n').next()?;
    let name = &line[line.iter().position(|byte| !is_blank(byte))?..];
    match name.iter().position(|byte| is_blank(byte) || *byte == 0) {
        Some(end) => Some(name[..end].to_vec()),
        None => is_whole.then(|| name.to_vec()),
    }
    .filter(|name| !name.is_empty())
}

/// The offsets of fields in an ELF header and a program header.
struct Layout {
    table: usize,
    entry_bytes: usize,
    entries: usize,
    offset: usize,
    length: usize,
    wide: bool,
}

const ELF32: Layout =
    Layout { table: 28, entry_bytes: 42, entries: 44, offset: 4, length: 16, wide: false };
const ELF64: Layout =
    Layout { table: 32, entry_bytes: 54, entries: 56, offset: 8, length: 32, wide: true };

/// Returns the dynamic linker of a program (`PT_INTERP`).
fn of_elf(head: &[u8], file: &File) -> Option<Vec<u8>> {
    const PT_INTERP: u64 = 3;
    const LITTLE_ENDIAN: u8 = 1;
    let layout = match head.get(4)? {
        1 => ELF32,
        2 => ELF64,
        _ => return None,
    };
    let is_native = MACHINES.iter().any(|machine| number(head, 18, 2) == Some(u64::from(*machine)));
    if head.get(5) != Some(&LITTLE_ENDIAN) || !is_native {
        return None;
    }
    let width = if layout.wide { 8 } else { 4 };
    let table = number(head, layout.table, width)?;
    let entry_bytes = number(head, layout.entry_bytes, 2)?;
    for place in 0..number(head, layout.entries, 2)? {
        let mut entry = [0; 56];
        let at = table.checked_add(place * entry_bytes)?;
        let length = file.read_at(&mut entry, at).ok()?;
        let entry = &entry[..length];
        if number(entry, 0, 4)? == PT_INTERP {
            let offset = number(entry, layout.offset, width)?;
            return name_at(file, offset, number(entry, layout.length, width)?);
        }
    }
    None
}

/// Reads a NUL-terminated name of `length` bytes.
fn name_at(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut name = vec![0; usize::try_from(length.min(NAME_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut name, offset).ok()?;
    let end = name.iter().position(|byte| *byte == 0)?;
    name.truncate(end);
    (end > 0).then_some(name)
}

/// Returns the little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Executable programs by name, without a disk.
    struct FakePrograms(BTreeMap<&'static str, Vec<u8>>, tempfile::TempDir);

    impl FakePrograms {
        fn new(files: &[(&'static str, &[u8])]) -> Self {
            let files = files.iter().map(|(name, bytes)| (*name, bytes.to_vec())).collect();
            Self(files, tempfile::tempdir().unwrap())
        }
    }

    impl Programs for FakePrograms {
        fn check(&mut self, path: &[u8]) -> Result<(), LookupFailure> {
            let bytes =
                self.0.get(std::str::from_utf8(path).unwrap()).ok_or(LookupFailure::Missing)?;
            if bytes == b"denied" { Err(LookupFailure::Denied) } else { Ok(()) }
        }

        fn read(&mut self, path: &[u8]) -> Option<File> {
            let bytes = self.0.get(std::str::from_utf8(path).unwrap())?;
            let file = self.1.path().join("file");
            std::fs::write(&file, bytes).unwrap();
            File::open(file).ok()
        }
    }

    fn missing_of(files: &[(&'static str, &[u8])]) -> Option<String> {
        obstacle(b"/a", &mut FakePrograms::new(files)).map(|obstacle| match obstacle {
            Obstacle::Missing(name) => String::from_utf8(name).unwrap(),
            Obstacle::Denied(name) => format!("denied {}", String::from_utf8(name).unwrap()),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn an_interpreter_that_is_not_there_is_named() {
        assert_eq!(missing_of(&[("/a", b"#!/no/sh -e\n")]), Some("/no/sh".into()));
        assert_eq!(missing_of(&[("/a", b"#! \t/no/sh")]), Some("/no/sh".into()));
        assert_eq!(missing_of(&[("/a", b"#!/b\n"), ("/b", b"#!/c\n")]), Some("/c".into()));
        assert_eq!(missing_of(&[("/a", b"#!/b\n"), ("/b", b"text")]), None);
    }

    #[test]
    fn files_without_an_interpreter_line_are_left_to_the_system() {
        assert_eq!(missing_of(&[("/a", b"echo")]), None);
        assert_eq!(missing_of(&[("/a", b"#!\n/no")]), None);
        assert_eq!(missing_of(&[("/a", b"#!   ")]), None);
        assert_eq!(missing_of(&[("/a", b"")]), None);
        assert_eq!(missing_of(&[("/a", b"\x7fELF\x02")]), None);
        let long = [b"#!/".as_slice(), &[b'x'; 300]].concat();
        assert_eq!(missing_of(&[("/a", &long)]), None);
    }

    #[test]
    fn a_denied_interpreter_is_distinguished_from_a_missing_one() {
        assert_eq!(missing_of(&[("/a", b"#!/b\n"), ("/b", b"denied")]), Some("denied /b".into()));
        assert_eq!(missing_of(&[("/a", b"#!/bin/sh\r\n")]), Some("/bin/sh\r".into()));
    }

    #[test]
    fn linux_follows_five_scripts() {
        assert_eq!(missing_of(&[("/a", b"#!/a\n")]), Some("Nested".into()));
        let names = ["/a", "/b", "/c", "/d", "/e", "/f"];
        let chain = |scripts: usize| {
            let lines: Vec<_> = (1..=scripts)
                .map(|next| format!("#!{}\n", names.get(next).unwrap_or(&"/z")))
                .collect();
            let mut files: Vec<_> =
                names.iter().zip(&lines).map(|(name, line)| (*name, line.as_bytes())).collect();
            files.extend([
                ("/z", b"text".as_slice()),
                (*names.get(scripts).unwrap_or(&"/y"), b"text"),
            ]);
            missing_of(&files)
        };
        assert_eq!(chain(5), None);
        assert_eq!(chain(6), Some("Nested".into()));
    }

    #[test]
    fn a_program_of_this_machine_needs_its_dynamic_linker() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = missing_of(&[("/a", &program)]);
        assert!(
            needed.is_some_and(|name| name.starts_with("/lib")),
            "the tests are linked dynamically"
        );
    }
}
