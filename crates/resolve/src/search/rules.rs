//! The rules of a search as a value: which candidates there are, their order, and when the search ends.
//!
//! docs/reference/names.md compares the rules point by point and names the source of each.

use std::borrow::Cow;

use crate::expand::Flavour;
use crate::native;

/// The most suffixes of a `PATHEXT`, which limits the queries that an environment variable can cause.
pub const SUFFIXES_MAX: usize = 63;

/// The `PATHEXT` of a fresh system, for programs without one in their environment.
pub const PATH_EXT: &[u8] = b".COM;.EXE;.BAT;.CMD;.VBS;.VBE;.JS;.JSE;.WSF;.WSH;.MSC";

/// Error numbers of Linux after which `execvp` of the GNU C library tries the next candidate: `EACCES`,
/// `ENOENT`, `ENOTDIR`, `ENODEV`, `ETIMEDOUT`, `ESTALE`.
#[cfg(any(target_os = "linux", not(unix)))]
pub const EXEC_PASSED_OVER: [i32; 6] = [13, 2, 20, 19, 110, 116];

/// The same errors on macOS and the BSDs.
#[cfg(all(unix, not(target_os = "linux")))]
pub const EXEC_PASSED_OVER: [i32; 6] = [13, 2, 20, 19, 60, 70];

/// The length in bytes from which on `execvp` of the GNU C library skips an entry of the `PATH`.
const ENTRY_BYTES_MAX: usize = 4096;

/// The suffixes of Go where there is no `PATHEXT`.
const GO_PATH_EXT: &[u8] = b".com;.exe;.bat;.cmd";

/// Error numbers of Windows for a missing file and a missing folder.
const NOT_FOUND: [i32; 2] = [2, 3];

/// Error numbers of Windows after which Zig tries the next candidate: those, and "access denied".
const ZIG_PASSED_OVER: [i32; 3] = [2, 3, 5];

/// The error number of Windows for a file that is not a valid program.
const BAD_PROGRAM: i32 = 193;

/// Suffixes of files that `CreateProcessW` can start, directly or through `cmd.exe`.
const STARTABLE: [&[u8]; 4] = [b".BAT", b".CMD", b".COM", b".EXE"];

/// The rules by which a name becomes candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    kind: Kind,
    /// The suffixes in order: upper case, with the dot.
    suffixes: Vec<Vec<u8>>,
    current_first: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exec,
    Shell,
    Cmd,
    Zig,
    Rust,
    Go,
    Python,
    Libuv,
    PowerShell,
}

impl Rules {
    /// The rules of `execvp` on POSIX, as in the GNU C library.
    ///
    /// There is one candidate per base: the unchanged name. An empty entry is the working directory. Files
    /// that must not be executed are skipped, and any other failure except "not found" ends the search.
    #[must_use]
    pub fn exec() -> Self {
        Self { kind: Kind::Exec, suffixes: Vec::new(), current_first: false }
    }

    /// The rules by which POSIX shells find a command (`command -v`): the first file that may be executed, whether it
    /// starts or not. `exec.LookPath` of Go and `shutil.which` of Python find the same file on POSIX systems.
    ///
    /// Unlike the search of [`exec`](Self::exec), the search goes on after every failure, such as a cycle of links, and
    /// no entry of the `PATH` is too long.
    #[must_use]
    pub fn shell() -> Self {
        Self { kind: Kind::Shell, suffixes: Vec::new(), current_first: false }
    }

    /// The rules of `cmd.exe`: every suffix of `path_ext` in each base, preceded by the unchanged name if it
    /// contains a dot. Entries may be quoted, and empty ones are skipped.
    ///
    /// The working directory comes first only on request ([`current_first`](Self::current_first)), because
    /// searching it is the classic way to start the wrong program.
    #[must_use]
    pub fn cmd(path_ext: &[u8]) -> Self {
        Self { kind: Kind::Cmd, suffixes: split_path_ext(path_ext), current_first: false }
    }

    /// The rules of Zig's standard library: the working directory first, and the unchanged name before its
    /// suffixes, of which only `.bat`, `.cmd`, `.com` and `.exe` count. Quotes have no meaning.
    #[must_use]
    pub fn zig(path_ext: &[u8]) -> Self {
        let mut suffixes = split_path_ext(path_ext);
        suffixes.retain(|suffix| STARTABLE.contains(&suffix.as_slice()));
        Self { kind: Kind::Zig, suffixes, current_first: true }
    }

    /// The rules of Rust's standard library (1.96) on Windows: `.exe` is added to a name without a dot, and
    /// there are no other suffixes. A folder with that name counts, and fails to start.
    #[must_use]
    pub fn rust() -> Self {
        Self { kind: Kind::Rust, suffixes: vec![b".EXE".to_vec()], current_first: false }
    }

    /// The rules of `exec.LookPath` in Go's standard library (1.24) on Windows: as `cmd.exe`, and a part of `path_ext`
    /// without its dot gets one. Go refuses a command that it finds in a relative folder (`exec.ErrDot`).
    #[must_use]
    pub fn go(path_ext: &[u8]) -> Self {
        let path_ext = if path_ext.is_empty() { GO_PATH_EXT } else { path_ext };
        let parts = path_ext.split(|byte| *byte == b';').filter(|part| !part.is_empty());
        let dotted = parts.flat_map(|part| {
            let dot: &[u8] = if part.starts_with(b".") { b"" } else { b"." };
            [dot, part, b";"]
        });
        let suffixes = split_path_ext(&dotted.collect::<Vec<_>>().concat());
        Self { kind: Kind::Go, suffixes, current_first: false }
    }

    /// The rules of `shutil.which` in Python's standard library (3.13) on Windows: every suffix of `path_ext` in each
    /// base, preceded by the unchanged name if it ends in one of them. An empty entry is the working directory.
    #[must_use]
    pub fn python(path_ext: &[u8]) -> Self {
        Self { kind: Kind::Python, suffixes: split_path_ext(path_ext), current_first: false }
    }

    /// The rules of libuv, and so of Node.js, on Windows: `.com` and `.exe`, preceded by the unchanged name if it has a
    /// dot. `PATHEXT` does not count. An entry may be quoted as a whole, by either kind of quotes.
    #[must_use]
    pub fn libuv() -> Self {
        let suffixes = vec![b".COM".to_vec(), b".EXE".to_vec()];
        Self { kind: Kind::Libuv, suffixes, current_first: false }
    }

    /// The rules by which PowerShell 7 finds scripts and programs on Windows: `.ps1`, every suffix of `path_ext`, and
    /// the unchanged name, which comes first if it has a suffix. The working directory is never searched.
    #[must_use]
    pub fn powershell(path_ext: &[u8]) -> Self {
        let mut suffixes = split_path_ext(path_ext);
        suffixes.retain(|suffix| suffix != b".PS1");
        suffixes.insert(0, b".PS1".to_vec());
        Self { kind: Kind::PowerShell, suffixes, current_first: false }
    }

    /// The rules of this system: those of `execvp`, or of `cmd.exe` with the variable `PATHEXT` and without
    /// its search of the working directory.
    #[must_use]
    pub fn of_host() -> Self {
        if cfg!(windows) {
            let path_ext = std::env::var_os("PATHEXT");
            let path_ext = path_ext.map(|text| native::bytes(&text).into_owned());
            Self::cmd(path_ext.as_deref().unwrap_or(PATH_EXT))
        } else {
            Self::exec()
        }
    }

    /// Sets whether the working directory is searched before the `PATH`. [`powershell`](Self::powershell) never does.
    #[must_use]
    pub fn current_first(mut self, first: bool) -> Self {
        self.current_first = first && self.kind != Kind::PowerShell;
        self
    }

    /// The system whose separators, lists and comparison of names these rules use.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        if self.is_of_posix() { Flavour::Posix } else { Flavour::Windows }
    }

    /// Whether the search continues after the candidate `path` could not be started with the system's error
    /// `code`.
    ///
    /// `cmd.exe` has chosen its file before it starts it, so the errors "access denied" and "not a valid
    /// program" end its search. Zig's search also ends at an `.exe` that is not a valid program. Shells, Rust, Go,
    /// Python, libuv and PowerShell choose one file and start no other.
    #[must_use]
    pub fn passes_over(&self, path: &[u8], code: i32) -> bool {
        let is_exe = || suffix_of(path).is_some_and(|end| end.eq_ignore_ascii_case(b".exe"));
        match self.kind {
            Kind::Exec => EXEC_PASSED_OVER.contains(&code),
            Kind::Cmd => NOT_FOUND.contains(&code),
            Kind::Zig if code == BAD_PROGRAM => !is_exe(),
            Kind::Zig => ZIG_PASSED_OVER.contains(&code),
            Kind::Shell | Kind::Rust | Kind::Go | Kind::Python | Kind::Libuv | Kind::PowerShell => {
                false
            }
        }
    }

    /// Whether the `PATH` of the program to be started is searched, if it differs from this process's.
    #[must_use]
    pub fn searches_child_path(&self) -> bool {
        matches!(self.kind, Kind::Exec | Kind::Shell | Kind::Libuv)
    }

    /// Whether a file counts only if its interpreters exist and may be executed: `execvp` tries the next candidate
    /// otherwise.
    #[must_use]
    pub fn checks_interpreters(&self) -> bool {
        self.kind != Kind::Shell
    }

    fn is_of_posix(&self) -> bool {
        matches!(self.kind, Kind::Exec | Kind::Shell)
    }

    /// Whether a command in a relative folder is refused, unless its name contains the folder: Go's `exec.ErrDot`.
    #[must_use]
    pub fn refuses_relative(&self) -> bool {
        self.kind == Kind::Go
    }

    /// Whether the program's future working directory is also the working directory of the search, as with
    /// Zig on Windows.
    #[must_use]
    pub fn searches_child_folder(&self) -> bool {
        self.kind == Kind::Zig
    }

    /// Returns the folders to search without any `PATH`.
    #[must_use]
    pub fn default_path(&self) -> &'static [u8] {
        match self.kind {
            Kind::Exec | Kind::Shell => b"/bin:/usr/bin",
            Kind::Python => br".;C:\bin",
            _ => b"",
        }
    }

    /// Whether the folders of the searching program and of the system are searched before its `PATH`, as with
    /// Rust on Windows. The `PATH` of the program to be started then comes before all of them.
    #[must_use]
    pub fn searches_own_folders(&self) -> bool {
        self.kind == Kind::Rust
    }

    /// Whether the working directory is searched before this `PATH`. Python searches nothing if the `PATH` is empty.
    pub(super) fn starts_in_current(&self, path: &[u8]) -> bool {
        self.current_first && !(self.kind == Kind::Python && path.is_empty())
    }

    /// Whether a folder counts as a match.
    pub(super) fn accepts_directories(&self) -> bool {
        self.kind == Kind::Rust
    }

    /// Whether a base that cannot be examined (a cycle of links, an I/O error) is skipped.
    pub(super) fn goes_on_after_failure(&self) -> bool {
        self.kind != Kind::Exec
    }

    /// Whether the drive of `c:name` is dropped and the name searched for, as with Zig.
    pub(super) fn drops_drive(&self) -> bool {
        self.kind == Kind::Zig
    }

    /// Returns the suffixes to append to `stem`, in order; empty for the unchanged name. `is_path` tells
    /// whether the name contains a folder.
    pub(super) fn suffixes_of(&self, stem: &[u8], is_path: bool) -> Vec<Vec<u8>> {
        let bare = || std::iter::once(Vec::new());
        let suffixes = self.suffixes.iter().cloned();
        match self.kind {
            Kind::Exec | Kind::Shell => bare().collect(),
            Kind::Zig => bare().chain(suffixes).collect(),
            Kind::Cmd | Kind::Go | Kind::Libuv if stem.contains(&b'.') => {
                bare().chain(suffixes).collect()
            }
            Kind::Python if self.has_suffix(stem) => bare().chain(suffixes).collect(),
            Kind::PowerShell if stem.contains(&b'.') => bare().chain(suffixes).collect(),
            Kind::PowerShell => suffixes.chain(bare()).collect(),
            Kind::Cmd | Kind::Go | Kind::Libuv | Kind::Python => suffixes.collect(),
            Kind::Rust if is_path && !self.has_suffix(stem) => suffixes.chain(bare()).collect(),
            Kind::Rust if is_path || stem.contains(&b'.') => bare().collect(),
            Kind::Rust => suffixes.collect(),
        }
    }

    /// Whether `stem` ends in one of the suffixes. Everything after the last dot counts, so `a.exec` does not
    /// end in `.exe`.
    fn has_suffix(&self, stem: &[u8]) -> bool {
        suffix_of(stem).is_some_and(|end| self.suffixes.iter().any(|s| s.eq_ignore_ascii_case(end)))
    }

    /// Splits a `PATH` into its folders.
    #[must_use]
    pub fn split_path<'a>(&self, path: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
        let split = |separator| path.split(move |byte| *byte == separator);
        let not_empty = |entry: &&[u8]| !entry.is_empty();
        match self.kind {
            Kind::Exec | Kind::Shell => {
                let or_current = |entry: &'a [u8]| if entry.is_empty() { b"." } else { entry };
                let counts =
                    |entry: &&[u8]| self.kind == Kind::Shell || entry.len() < ENTRY_BYTES_MAX;
                split(b':').filter(counts).map(or_current).map(Cow::Borrowed).collect()
            }
            Kind::Cmd | Kind::Rust | Kind::Go if path.contains(&b'"') => split_quoted(path),
            Kind::Libuv => split_quoted_whole(path),
            Kind::Python if path.is_empty() => Vec::new(),
            Kind::Python => {
                let or_current = |entry: &'a [u8]| if entry.is_empty() { b"." } else { entry };
                split(b';').map(or_current).map(Cow::Borrowed).collect()
            }
            _ => split(b';').filter(not_empty).map(Cow::Borrowed).collect(),
        }
    }
}

/// Returns the part of `stem` from its last dot on.
#[must_use]
pub fn suffix_of(stem: &[u8]) -> Option<&[u8]> {
    stem.iter().rposition(|byte| *byte == b'.').map(|dot| &stem[dot..])
}

/// Splits a `PATHEXT` into suffixes in upper case. Parts without a leading dot are dropped. Spaces belong to
/// a suffix, as in `cmd.exe`.
fn split_path_ext(path_ext: &[u8]) -> Vec<Vec<u8>> {
    let mut suffixes: Vec<Vec<u8>> = Vec::new();
    for suffix in path_ext.split(|byte| *byte == b';') {
        let suffix = suffix.to_ascii_uppercase();
        let is_one = suffix.len() > 1 && suffix.starts_with(b".");
        if is_one && !suffixes.contains(&suffix) && suffixes.len() < SUFFIXES_MAX {
            suffixes.push(suffix);
        }
    }
    suffixes
}

/// Splits at each `;` outside of quotes. Quotes and empty entries are dropped.
fn split_quoted(path: &[u8]) -> Vec<Cow<'static, [u8]>> {
    let mut entries = Vec::new();
    let mut entry = Vec::new();
    let mut quoted = false;
    for byte in path {
        match byte {
            b'"' => quoted = !quoted,
            b';' if !quoted => entries.push(std::mem::take(&mut entry)),
            _ => entry.push(*byte),
        }
    }
    entries.push(entry);
    entries.into_iter().filter(|entry| !entry.is_empty()).map(Cow::Owned).collect()
}

/// Splits at each `;`, except within an entry that begins with a quote, up to the same quote. A quote at either end of
/// an entry is dropped, as are empty entries.
fn split_quoted_whole(path: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let is_quote = |byte: &u8| matches!(byte, b'"' | b'\'');
    let mut entries = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let quoted = match rest.first().filter(|byte| is_quote(byte)) {
            Some(quote) => {
                let end = rest[1..].iter().position(|byte| byte == quote);
                end.map_or(rest.len(), |end| end + 1)
            }
            None => 0,
        };
        let end = rest[quoted..].iter().position(|byte| *byte == b';');
        let (entry, after) = rest.split_at(end.map_or(rest.len(), |end| quoted + end));
        rest = after.get(1..).unwrap_or_default();
        let entry = entry.strip_prefix(b"\"").or(entry.strip_prefix(b"'")).unwrap_or(entry);
        let entry = entry.strip_suffix(b"\"").or(entry.strip_suffix(b"'")).unwrap_or(entry);
        if !entry.is_empty() {
            entries.push(Cow::Borrowed(entry));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: Vec<impl Into<Vec<u8>>>) -> Vec<String> {
        bytes.into_iter().map(|bytes| String::from_utf8(bytes.into()).unwrap()).collect()
    }

    fn suffixes(rules: &Rules, stem: &str) -> Vec<String> {
        texts(rules.suffixes_of(stem.as_bytes(), false))
    }

    #[test]
    fn cmd_tries_the_bare_name_only_if_it_has_a_dot() {
        let rules = Rules::cmd(b".com;.EXE;.bat");
        assert_eq!(suffixes(&rules, "a"), [".COM", ".EXE", ".BAT"]);
        assert_eq!(suffixes(&rules, "a.exe"), ["", ".COM", ".EXE", ".BAT"]);
        assert_eq!(suffixes(&rules, "a.b"), ["", ".COM", ".EXE", ".BAT"]);
    }

    #[test]
    fn zig_tries_the_bare_name_first_and_knows_four_suffixes() {
        let rules = Rules::zig(PATH_EXT);
        assert_eq!(suffixes(&rules, "a"), ["", ".COM", ".EXE", ".BAT", ".CMD"]);
    }

    #[test]
    fn rust_adds_exe_to_a_name_without_a_dot() {
        let rules = Rules::rust();
        assert_eq!(suffixes(&rules, "a"), [".EXE"]);
        assert_eq!(suffixes(&rules, "a.bat"), [""]);
        assert_eq!(texts(rules.suffixes_of(b"a", true)), [".EXE", ""]);
        assert_eq!(texts(rules.suffixes_of(b"a.exe", true)), [""]);
    }

    #[test]
    fn libraries_and_powershell_have_suffixes_of_their_own() {
        assert_eq!(suffixes(&Rules::go(b""), "a"), [".COM", ".EXE", ".BAT", ".CMD"]);
        assert_eq!(suffixes(&Rules::go(b"exe;.py;"), "a.b"), ["", ".EXE", ".PY"]);
        let python = Rules::python(b".exe;.PY");
        assert_eq!(suffixes(&python, "a.b"), [".EXE", ".PY"]);
        assert_eq!(suffixes(&python, "a.Py"), ["", ".EXE", ".PY"]);
        assert_eq!(suffixes(&Rules::libuv(), "a"), [".COM", ".EXE"]);
        assert_eq!(suffixes(&Rules::libuv(), "a.b"), ["", ".COM", ".EXE"]);
        let powershell = Rules::powershell(b".EXE;.ps1");
        assert_eq!(suffixes(&powershell, "a"), [".PS1", ".EXE", ""]);
        assert_eq!(suffixes(&powershell, "a.b"), ["", ".PS1", ".EXE"]);
    }

    #[test]
    fn libuv_takes_quotes_around_a_whole_entry() {
        let split = |path: &str| texts(Rules::libuv().split_path(path.as_bytes()));
        assert_eq!(split(r#"C:\a;;"C:\b;c";'D:\e;f'"#), [r"C:\a", r"C:\b;c", r"D:\e;f"]);
        assert_eq!(split(r#"C:\"b";""#), [r#"C:\"b"#]);
        assert_eq!(split(r#""C:\a"#), [r"C:\a"]);
        assert!(split("").is_empty() && split(";").is_empty());
    }

    #[test]
    fn an_odd_path_ext_gives_each_suffix_once() {
        let odd = split_path_ext(b";.EXE; .bat ;exe;.;.exe;;.CMD");
        assert_eq!(texts(odd), [".EXE", ".CMD"]);
        let many: Vec<u8> = (0..1000).flat_map(|n| format!(".{n};").into_bytes()).collect();
        assert_eq!(split_path_ext(&many).len(), SUFFIXES_MAX);
    }

    #[test]
    fn each_rule_reads_a_path_in_its_own_way() {
        assert_eq!(texts(Rules::exec().split_path(b"/a::b:")), ["/a", ".", "b", "."]);
        let long = format!("/{}:/b", "a".repeat(4095));
        assert_eq!(texts(Rules::exec().split_path(long.as_bytes())), ["/b"]);
        let path = br#"C:\a;;"C:\b;c"\d;e"#;
        assert_eq!(texts(Rules::cmd(b"").split_path(path)), [r"C:\a", r"C:\b;c\d", "e"]);
        assert_eq!(texts(Rules::rust().split_path(path)), [r"C:\a", r"C:\b;c\d", "e"]);
        let zig = texts(Rules::zig(b"").split_path(path));
        assert_eq!(zig, [r"C:\a", r#""C:\b"#, r#"c"\d"#, "e"]);
    }
}
