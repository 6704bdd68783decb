//! Attributes a look-up to a search path, by the program and the name.

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
    /// The include folders of a C or C++ compiler.
    Includes,
    /// Python's `sys.path`.
    Python,
    /// Node's package folders.
    Node,
    /// The folders in which the loader finds shared libraries.
    Libraries,
    /// The folders of a linker's `-L`.
    Link,
    /// Java's class path.
    Java,
    /// Translations and other data of a locale.
    Locale,
    /// Any other search.
    Other,
}

impl SearchKind {
    /// All kinds, in order.
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

    /// Returns the search that a program is known for. `name` is the program's name without folder.
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

    /// The title for display.
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

    /// Whether searched names have one component, so that the folder of a candidate is the searched folder.
    pub(super) fn is_flat(self) -> bool {
        matches!(self, Self::Commands | Self::Libraries | Self::Link | Self::Node | Self::Locale)
    }

    /// Whether a folder counts as used when a file in it was merely found. For other kinds a file must have
    /// been opened.
    #[must_use]
    pub fn is_satisfied_by_checks(self) -> bool {
        matches!(self, Self::Commands | Self::Other)
    }
}

/// A look-up, as far as its kind depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'a> {
    /// The search that the program is known for.
    pub(super) program: SearchKind,
    pub(super) call: CallKind,
    pub(super) folder: FolderKind,
    pub(super) component: &'a [u8],
}

/// The properties of a folder that determine the kind of searches in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FolderKind {
    /// Whether the folder is listed in `PATH`.
    has_commands: bool,
    has_locales: bool,
}

impl FolderKind {
    /// Examines a folder. `commands` are the folders of `PATH`.
    pub(super) fn of(path: &[u8], commands: &HashSet<Vec<u8>>) -> Self {
        let mut components = path.split(|byte| *byte == b'/');
        let has_locales = components.any(|component| component.starts_with(b"locale"));
        Self { has_commands: commands.contains(path), has_locales }
    }
}

impl Lookup<'_> {
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

    /// Whether the name is one that a linker searches for.
    fn is_library(&self) -> bool {
        self.component.starts_with(b"lib") || self.component.ends_with(b".o")
    }

    /// Whether a program without a suffix was looked up in a folder of `PATH`. Linkers are excluded, because
    /// they try names of optional programs there.
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
        Lookup { program, call, folder, component: component.as_bytes() }.kind()
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
