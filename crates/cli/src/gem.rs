//! Locates the gem that belongs to this program, and prepares Ruby to load it under `thruway run`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use thruway_resolve::native;
use thruway_spawn::Command;

/// The extension's file, with the suffix that Ruby has for such files on this system.
const EXTENSION: &str = if cfg!(target_os = "macos") { "thruway.bundle" } else { "thruway.so" };

/// The file name of the Ruby executable.
const RUBY: &str = if cfg!(windows) { "ruby.exe" } else { "ruby" };

/// The separator of folders in a list such as `RUBYLIB`.
const LIST_SEPARATOR: &str = if cfg!(windows) { ";" } else { ":" };

/// The folders of the gem's files.
#[derive(Debug)]
pub(crate) struct Gem {
    /// The folder with `thruway/run.rb`.
    library: PathBuf,
    /// Folders with a subfolder for each version of Ruby that contains the extension for the version.
    extensions: Vec<PathBuf>,
}

impl Gem {
    /// Finds the gem beside this program, in the checkout of its build, or where `gem install` has put the gem.
    pub(crate) fn find() -> Option<Self> {
        Self::around_this_program().or_else(Self::installed)
    }

    /// Finds the gem in the checkout, package or gem to which this program belongs.
    pub(crate) fn around_this_program() -> Option<Self> {
        Self::beside(&std::env::current_exe().ok()?)
    }

    /// Returns the folders in which Ruby finds the extension and the library.
    pub(crate) fn load_path(&self) -> Vec<&Path> {
        let mut folders: Vec<_> = self.extensions.iter().filter_map(|e| e.parent()).collect();
        folders.push(&self.library);
        folders.dedup();
        folders
    }

    /// Returns the checkout in which this program was built, if any. A Gemfile can name the checkout, because of its
    /// gemspec.
    #[cfg(target_os = "linux")]
    pub(crate) fn checkout() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        let root = program.ancestors().nth(3)?;
        let is_there = |name: &str| fs::metadata(root.join(name)).is_ok();
        (is_there("thruway.gemspec") && is_there("Cargo.toml")).then(|| root.to_owned())
    }

    /// Returns the folder of the gem's Ruby files.
    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Returns the extension for a version of Ruby, such as `3.1`.
    pub(crate) fn extension(&self, version: &str) -> Option<PathBuf> {
        let found = self.extensions.iter().map(|folder| folder.join(version).join(EXTENSION));
        found.into_iter().find(|file| fs::metadata(file).is_ok())
    }

    fn beside(program: &Path) -> Option<Self> {
        let folder = program.parent()?;
        let up = |levels: usize| folder.ancestors().nth(levels);
        let places = [
            Some(folder.join("gem")),
            up(2).map(|checkout| checkout.join("gem/lib")),
            up(1).map(|prefix| prefix.join("lib/thruway")),
            // `thruway/bin/thruway` of an installed gem.
            up(2).map(Path::to_owned),
        ];
        let find = |has: fn(&Path) -> bool| places.iter().flatten().find(|place| has(place));
        let extensions = vec![find(has_extension)?.join("thruway")];
        Some(Self { library: find(has_library)?.clone(), extensions })
    }

    /// Finds an installed gem. The folder depends on Ruby's build and on the environment, so the usual folders are
    /// searched first. Ruby itself is asked only if none of them contains the gem, because a start of Ruby takes long.
    fn installed() -> Option<Self> {
        Self::in_homes(&usual_homes()).or_else(|| Self::in_homes(&homes_by_ruby()))
    }

    fn in_homes(homes: &[PathBuf]) -> Option<Self> {
        let name = concat!("thruway-", env!("CARGO_PKG_VERSION"));
        let library = |home: &PathBuf| home.join("gems").join(name).join("gem/lib");
        let with_programs =
            concat!("gems/thruway-", env!("CARGO_PKG_VERSION"), "-x86_64-linux/gem/lib");
        let with_programs = homes.iter().map(|home| home.join(with_programs));
        if let Some(library) = with_programs.into_iter().find(|library| has_library(library)) {
            return Some(Self { extensions: vec![library.join("thruway")], library });
        }
        let homes: Vec<_> = homes.iter().filter(|home| has_library(&library(home))).collect();
        // extensions/PLATFORM/VERSION/NAME
        let extensions = homes.iter().map(|home| home.join("extensions"));
        let extensions = extensions.flat_map(|folder| entries(&folder));
        let extensions = extensions.flat_map(|platform| entries(&platform));
        let extensions = extensions.map(|version| version.join(name).join("thruway"));
        let is_built = |folder: &PathBuf| fs::metadata(folder.join(EXTENSION)).is_ok();
        let extensions: Vec<_> = extensions.filter(is_built).collect();
        (!extensions.is_empty()).then_some(Self { library: library(homes.first()?), extensions })
    }

    /// Sets an environment in which Ruby loads the gem before anything else.
    ///
    /// `RUBYLIB` names the folder with the gem's `rubygems.rb`, in which a comment explains why `run.rb` is required
    /// twice. `RUBYOPT` ends a path at white space. A path with white space is therefore replaced by the file's name,
    /// and `RUBYLIB` gets the folder.
    pub(crate) fn preload(&self, command: Command) -> Command {
        let mut library = for_ruby(&self.library.join("thruway/first"));
        let mut file = for_ruby(&self.library.join("thruway/run.rb"));
        if file.as_encoded_bytes().iter().any(u8::is_ascii_whitespace) {
            library = joined(&library, LIST_SEPARATOR, Some(for_ruby(&self.library)));
            file = OsString::from("thruway/run");
        }
        let words =
            [OsStr::new("-r"), &file, OsStr::new(" -r"), &file].into_iter().collect::<OsString>();
        let extensions: Vec<_> = self.extensions.iter().map(|folder| for_ruby(folder)).collect();
        command
            .env("RUBYLIB", joined(&library, LIST_SEPARATOR, self.without_own("RUBYLIB")))
            .env("RUBYOPT", joined(&words, " ", self.without_own("RUBYOPT")))
            .env("THRUWAY_EXTENSIONS", extensions.join(OsStr::new(LIST_SEPARATOR)))
    }
}

impl Gem {
    /// Returns a variable's value without the words that an outer `thruway run` has added.
    fn without_own(&self, variable: &str) -> Option<OsString> {
        let separator = if variable == "RUBYLIB" { LIST_SEPARATOR } else { " " };
        let separator = separator.as_bytes()[0];
        let value = std::env::var_os(variable)?;
        let value = native::bytes(&value);
        let words = value.split(|byte| *byte == separator);
        let library = for_ruby(&self.library);
        let library = native::bytes(&library);
        let is_own = |word: &[u8]| match variable {
            "RUBYLIB" => word.ends_with(b"/thruway/first") || word == &*library,
            _ => {
                word.starts_with(b"-r")
                    && (word.ends_with(b"/thruway/run.rb") || word == b"-rthruway/run")
            }
        };
        let others: Vec<_> = words.filter(|word| !is_own(word)).collect();
        Some(native::os_string(others.join(&separator)))
    }
}

fn has_library(place: &Path) -> bool {
    fs::metadata(place.join("thruway/run.rb")).is_ok()
}

/// Whether a folder contains an extension, for one Ruby or for each of several.
fn has_extension(place: &Path) -> bool {
    let has = |folder: &Path| fs::metadata(folder.join(EXTENSION)).is_ok();
    let folder = place.join("thruway");
    has(&folder) || entries(&folder).iter().any(|version| has(version))
}

/// Returns the candidates for RubyGems' folder: from the environment, of the user, of the system, and of the Ruby on
/// `PATH`.
fn usual_homes() -> Vec<PathBuf> {
    let list = |name| {
        let list = std::env::var_os(name).unwrap_or_default();
        std::env::split_paths(&list).filter(|home| home.is_absolute()).collect::<Vec<_>>()
    };
    let user = std::env::var_os("HOME").map(PathBuf::from);
    let user = user
        .into_iter()
        .flat_map(|home| [".local/share/gem/ruby", ".gem/ruby"].map(|end| home.join(end)));
    let system = ["/var/lib/gems", "/usr/local/lib/ruby/gems"].map(PathBuf::from);
    let rubies = list("PATH").into_iter().filter_map(|folder| prefix(&folder.join(RUBY)));
    let rubies = rubies.map(|prefix| prefix.join("lib/ruby/gems"));
    // Each of these folders has a subfolder for every version of Ruby.
    let homes = user.chain(system).chain(rubies).flat_map(|folder| entries(&folder));
    list("GEM_HOME").into_iter().chain(list("GEM_PATH")).chain(homes).collect()
}

/// Returns the prefix of a program's installation: the folder above `bin`.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it is not opened: only where its links lead counts")]
fn prefix(program: &Path) -> Option<PathBuf> {
    Some(fs::canonicalize(program).ok()?.parent()?.parent()?.to_owned())
}

/// Returns the prefix of a program's installation: the folder above `bin`. Programs are hardly ever links on Windows.
#[cfg(windows)]
fn prefix(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    fs::metadata(program).is_ok().then(|| prefix.to_owned())
}

fn homes_by_ruby() -> Vec<PathBuf> {
    let mut ruby = process::Command::new("ruby");
    let ruby = ruby.args(["-e", "puts Gem.path"]).stdin(Stdio::null()).stderr(Stdio::null());
    let homes = ruby.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&homes).lines().map(PathBuf::from).collect()
}

/// Returns a path in Ruby's form, with `/` on Windows too.
fn for_ruby(path: &Path) -> OsString {
    if cfg!(windows) {
        let mut bytes = native::bytes(path.as_os_str()).into_owned();
        bytes.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
        native::os_string(bytes)
    } else {
        path.as_os_str().to_owned()
    }
}

/// Returns the entries of a folder, sorted, or none if the folder cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
    entries.sort_unstable();
    entries
}

fn joined(first: &OsStr, separator: &str, rest: Option<OsString>) -> OsString {
    let mut joined = first.to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        joined.push(separator);
        joined.push(rest);
    }
    joined
}
