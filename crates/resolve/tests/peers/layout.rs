//! Random folders, and random searches in them.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use thruway_testing::Random;

/// A command that is searched for in a `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) path: Vec<u8>,
    pub(crate) name: Vec<u8>,
}

/// Folders with files of all kinds.
pub(crate) struct Layout {
    folder: tempfile::TempDir,
    pub(crate) queries: Vec<Query>,
}

/// Each is a folder of every layout. The last may not be searched.
const FOLDERS: [&[u8]; 6] = [b"a", b"b", b"c", b"d e", b"\xff\xc3\xa9", b"shut"];
/// Names of commands. No shell has one of them as a builtin.
const NAMES: [&[u8]; 9] =
    [b"x", b"y", b"x.sh", b"b z", b"-v", b"\xc3\xa9\xff", b"q'\"\\", b"n\nl", b"$(x)*"];
/// The queries in each layout.
const QUERIES: usize = 16;
/// A script without the name of its interpreter.
const TEXT: &[u8] = b"printf '%s\\0' \"$0\"\n";
/// A name that is longer than file systems allow.
const LONG: [u8; 300] = [b'l'; 300];

impl Layout {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut layout =
            Self { folder: tempfile::tempdir().expect("a folder"), queries: Vec::new() };
        for folder in FOLDERS {
            fs::create_dir(layout.at(folder)).expect("a folder");
        }
        fs::write(layout.at(b"file"), "").expect("a file");
        symlink("a", layout.at(b"link")).expect("a link");
        symlink("loop", layout.at(b"loop")).expect("a link");
        for folder in FOLDERS {
            for name in NAMES {
                let path = layout.at(&[folder, b"/", name].concat());
                layout.entry(&path, random);
            }
        }
        // A command in the current folder.
        NAMES.iter().take(2).for_each(|name| layout.entry(&layout.at(name), random));
        fs::set_permissions(layout.at(b"shut"), Permissions::from_mode(0o600)).expect("its mode");
        layout.queries = (0..QUERIES).map(|_| layout.query(random)).collect();
        layout
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Describes a search with different results.
    pub(crate) fn difference(
        &self,
        query: &Query,
        program: &str,
        theirs: &Option<Vec<u8>>,
        ours: &Option<Vec<u8>>,
    ) -> String {
        let root = self.path().display().to_string();
        let text = |text: &[u8]| text.escape_ascii().to_string().replace(&root, "@");
        let result = |found: &Option<Vec<u8>>| found.as_deref().map_or("nothing".into(), text);
        let [name, path] = [&query.name, &query.path].map(|bytes| text(bytes));
        format!("{name} in {path}: {} by {program}, {} by us", result(theirs), result(ours))
    }

    fn at(&self, name: &[u8]) -> PathBuf {
        self.path().join(OsStr::from_bytes(name))
    }

    /// Makes an entry, or leaves it out.
    fn entry(&self, path: &Path, random: &mut Random) {
        let link = |target: &Path| symlink(target, path).expect("a link");
        match random.below(24) {
            0..10 => {}
            10 => fs::create_dir(path).expect("a folder"),
            11 => link(Path::new("nowhere")),
            12 => link(&self.at(b"loop")),
            13 => link(&self.at(FOLDERS[random.below(FOLDERS.len())])),
            14 => link(Path::new("/dev/null")),
            15 => link(&self.at(&self.other(random))),
            16 => self.write(path, &program_without_linker(), 0o755),
            17 => {
                let fifo = rustix::fs::FileType::Fifo;
                let mode = rustix::fs::Mode::from_raw_mode(mode(random));
                rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).expect("a FIFO");
            }
            18 => self.write(path, TEXT, 0o755),
            _ => self.write(path, &self.script(random), mode(random)),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) {
        fs::write(path, bytes).expect("a file");
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
    }

    /// Returns an entry that may exist or not.
    fn other(&self, random: &mut Random) -> Vec<u8> {
        [FOLDERS[random.below(FOLDERS.len())], b"/", NAMES[random.below(NAMES.len())]].concat()
    }

    /// Returns a script that writes its path with a NUL behind it, if its interpreter can be run, or if a shell runs it
    /// because its interpreter is text.
    fn script(&self, random: &mut Random) -> Vec<u8> {
        let own = |name: &[u8]| [self.path().as_os_str().as_bytes(), b"/", name].concat();
        let interpreter = match random.below(16) {
            0 => b"/no/such/interpreter".to_vec(),
            1 => b"/usr/bin/printf\r".to_vec(),
            2 => own(b"file"),
            3 => own(b"a"),
            4 => own(b"loop"),
            5 => own(b"a/x"),
            6 => own(b"b/y"),
            7 => b"b/x".to_vec(),
            8 => own(b"shut/x"),
            9 => [b"/".as_slice(), &LONG].concat(),
            _ => b"/usr/bin/printf".to_vec(),
        };
        let blank: &[u8] = [b"".as_slice(), b" ", b"\t "][random.below(3)];
        [b"#!", blank, &interpreter, b" %s\\0\n", TEXT].concat()
    }

    fn query(&self, random: &mut Random) -> Query {
        let entries: Vec<_> = (0..random.below(6)).map(|_| self.entry_of_path(random)).collect();
        let name = NAMES[random.below(NAMES.len())];
        let name = match random.below(20) {
            0 => self.other(random),
            1 => [b"./", self.other(random).as_slice()].concat(),
            2 => [name, b"/"].concat(),
            3 => LONG.to_vec(),
            _ => name.to_vec(),
        };
        Query { path: entries.join(&b':'), name }
    }

    fn entry_of_path(&self, random: &mut Random) -> Vec<u8> {
        let folder = FOLDERS[random.below(FOLDERS.len())];
        let own = self.path().as_os_str().as_bytes();
        match random.below(16) {
            0 => Vec::new(),
            1 => b".".to_vec(),
            2 => folder.to_vec(),
            3 => [b"./", folder, b"//"].concat(),
            4 => [own, b"/nowhere"].concat(),
            5 => [own, b"/file"].concat(),
            6 => [own, b"/link"].concat(),
            7 if random.below(3) == 0 => [own, b"/loop"].concat(),
            8 if random.below(3) == 0 => [own, b"/", &LONG].concat(),
            _ => [own, b"/", folder].concat(),
        }
    }
}

fn mode(random: &mut Random) -> u32 {
    [0o755, 0o755, 0o755, 0o755, 0o555, 0o644, 0o111, 0o100, 0o010, 0o000][random.below(10)]
}

/// Returns a program whose dynamic linker does not exist.
fn program_without_linker() -> Vec<u8> {
    let mut program = fs::read("/bin/true").expect("true");
    let linker = b"/lib64/ld-";
    if let Some(at) = program.windows(linker.len()).position(|bytes| bytes == linker) {
        program[at..at + linker.len()].copy_from_slice(b"/lib64/no-");
    }
    program
}
