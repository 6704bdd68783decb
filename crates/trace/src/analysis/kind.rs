//! Which search path a miss belongs to, by the program and the name.

use serde::{Deserialize, Serialize};

use super::maps::HashSet;
use super::options;
use crate::call::CallKind;

/// A kind of search path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchKind {
    /// Ruby's `$LOAD_PATH` and RubyGems' folders.
    Ruby,
    /// The folders of `PATH`.
    Commands,
    /// A C or C++ compiler's include folders.
    Includes,
    /// Python's `sys.path`.
    Python,
    /// Where node looks for packages.
    Node,
    /// Where the loader looks for shared libraries.
    Libraries,
    /// A linker's folders, those of `-L`.
    Link,
    /// Java's class path.
    Java,
    /// Translations and other data of a language.
    Locale,
    /// Any other.
    Other,
}

impl SearchKind {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 10] = [
        Self::Ruby,
        Self::Commands,
        Self::Includes,
        Self::Python,
        Self::Node,
        Self::Libraries,
        Self::Link,
        Self::Java,
        Self::Locale,
        Self::Other,
    ];

    /// What a program of this name, without folder, searches for most of all.
    pub(super) fn of_program(name: &[u8]) -> Self {
        let starts =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
        if starts(&["ruby", "irb", "rake", "bundle", "rails", "puma", "unicorn"]) {
            Self::Ruby
        } else if starts(&["python", "pypy", "pip"]) {
            Self::Python
        } else if starts(&["node"]) {
            Self::Node
        } else if starts(&["cc1", "clang", "cpp"]) {
            Self::Includes
        } else if name == b"java" {
            Self::Java
        } else if options::links(name) {
            Self::Link
        } else {
            Self::Other
        }
    }

    /// What users call it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Ruby => "$LOAD_PATH and gem folders",
            Self::Commands => "folders of PATH",
            Self::Includes => "include folders",
            Self::Python => "folders of sys.path",
            Self::Node => "node_modules folders",
            Self::Libraries => "library folders",
            Self::Link => "folders of -L",
            Self::Java => "folders of the class path",
            Self::Locale => "locale folders",
            Self::Other => "folders of other searches",
        }
    }

    /// Whether what is searched is one component, so that the folder of a candidate is where the
    /// search was.
    pub(super) fn is_flat(self) -> bool {
        matches!(self, Self::Commands | Self::Libraries | Self::Link | Self::Node | Self::Locale)
    }

    /// Whether a folder is of use if something in it was asked about and was there; otherwise only
    /// if something in it was opened.
    #[must_use]
    pub fn is_satisfied_by_checks(self) -> bool {
        matches!(self, Self::Commands | Self::Other)
    }
}

/// A look-up, as far as its kind depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// What the program that asks searches for.
    pub(super) program: SearchKind,
    pub(super) call: CallKind,
    pub(super) folder: FolderKind,
    pub(super) component: &'a [u8],
}

/// What a folder's path tells of searches in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FolderKind {
    /// One of `PATH`.
    has_commands: bool,
    has_locales: bool,
}

impl FolderKind {
    /// `commands` are the folders of `PATH`.
    pub(super) fn of(path: &[u8], commands: &HashSet<Vec<u8>>) -> Self {
        let mut components = path.split(|byte| *byte == b'/');
        let has_locales = components.any(|component| component.starts_with(b"locale"));
        Self { has_commands: commands.contains(path), has_locales }
    }
}

impl Asked<'_> {
    pub(super) fn kind(&self) -> SearchKind {
        if self.call == CallKind::Execute || self.is_command() {
            SearchKind::Commands
        } else if self.program == SearchKind::Link {
            if self.is_library() { SearchKind::Link } else { SearchKind::Other }
        } else if self.component.starts_with(b"lib") && contains(self.component, b".so") {
            SearchKind::Libraries
        } else if self.folder.has_locales {
            SearchKind::Locale
        } else {
            self.program
        }
    }

    /// What a linker looks for.
    fn is_library(&self) -> bool {
        self.component.starts_with(b"lib") || self.component.ends_with(b".o")
    }

    /// A program without a suffix in a folder of `PATH`. Compilers try names of programs there that
    /// they can do without.
    fn is_command(&self) -> bool {
        let is_question = matches!(self.call, CallKind::Status | CallKind::Access)
            && self.program != SearchKind::Link;
        is_question && self.folder.has_commands && !self.component.contains(&b'.')
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(program: &str, call: CallKind, folder: &str, component: &str) -> SearchKind {
        let commands = HashSet::from_iter([b"/usr/bin".to_vec()]);
        let program = SearchKind::of_program(program.as_bytes());
        let folder = FolderKind::of(folder.as_bytes(), &commands);
        Asked { program, call, folder, component: component.as_bytes() }.kind()
    }

    #[test]
    fn the_program_and_the_name_tell_the_search_path() {
        use CallKind::{Execute, Open, Status};
        use SearchKind::{Commands, Includes, Java, Libraries, Link, Locale, Other, Python, Ruby};
        assert_eq!(kind("ruby3.1", Status, "/gems/x/lib", "json.so"), Ruby);
        assert_eq!(kind("ruby3.1", Open, "/usr/lib", "libruby-3.1.so.3.1"), Libraries);
        assert_eq!(kind("dash", Status, "/usr/bin", "make"), Commands);
        assert_eq!(kind("env", Execute, "/opt/bin", "make"), Commands);
        assert_eq!(kind("dash", Status, "/opt", "make"), Other);
        assert_eq!(kind("cc1plus", Open, "/usr/include", "stdio.h"), Includes);
        assert_eq!(kind("python3", Status, "/usr/lib/python3", "json"), Python);
        assert_eq!(kind("collect2", Status, "/usr/bin", "gnm"), Other);
        assert_eq!(kind("ld", Status, "/opt/lib", "libz.so"), Link);
        assert_eq!(kind("java", Status, "/srv/classes", "Main.class"), Java);
        assert_eq!(kind("ls", Open, "/usr/share/locale/de/LC_MESSAGES", "coreutils.mo"), Locale);
    }
}
