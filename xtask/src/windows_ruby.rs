//! `cargo x windows-ruby`: a Ruby for Windows, built on Debian from its own source package, to be run under Wine.
//!
//! The build happens once, outside of the checkout, and takes ten to thirty minutes. Apt gets a list of sources of its
//! own, so that the machine's is left as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::command::succeed;
use crate::debian;
use crate::debootstrap;
use crate::wine::Wine;

/// The source package.
const PACKAGE: &str = "ruby3.1";
const VERSION: &str = "3.1.2-7+deb12u1";
const SOURCE: &str = "ruby3.1-3.1.2";
const SUITE: &str = "bookworm";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An archive of a day on which Debian had the version.
const SNAPSHOT: &str = "https://snapshot.debian.org/archive/debian/20250601T000000Z";

/// The version by which `thruway run` finds the extension.
pub(crate) const RUBY_VERSION: &str = "3.1";

/// The Ruby that runs the build's scripts, of the same version.
const BASE_RUBY: &str = "/usr/bin/ruby3.1";

/// The tools that the build needs: a file of each, and its package.
const NEEDED: [(&str, &str); 6] = [
    ("/usr/bin/x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"),
    (BASE_RUBY, "ruby3.1"),
    ("/usr/bin/dpkg-source", "dpkg-dev"),
    ("/usr/bin/make", "make"),
    ("/usr/bin/wine", "wine wine64"),
    (KEYRING, "debian-archive-keyring"),
];

/// Extensions whose libraries mingw lacks in Debian, and those of Ruby's own tests.
const LEFT_OUT: &str = "openssl,readline,fiddle,pty,syslog,zlib,win32ole,-test-/*";

/// The tests of Ruby's own that tell whether `require`, `load` and `File` are right under Wine.
const TESTS: [&str; 3] = ["ruby/test_require.rb", "ruby/test_require_lib.rb", "ruby/test_file.rb"];

/// Build a Ruby for Windows, once, outside of the checkout
#[derive(Debug, Args)]
pub(crate) struct WindowsRubyTask {
    /// The folder of the build [default: $THRUWAY_WINDOWS_RUBY, else thruway-dev/windows-ruby in the user's cache]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Compilers that run at the same time
    #[arg(long, default_value_t = 1)]
    jobs: u32,
    /// Archive of Debian's packages with the source package [default: this machine's mirror]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Run some of Ruby's own tests under Wine afterwards
    #[arg(long)]
    test: bool,
}

/// A Ruby for Windows, and what belongs to it.
#[derive(Debug)]
pub(crate) struct WindowsRuby {
    folder: PathBuf,
}

impl WindowsRubyTask {
    pub(crate) fn run(&self, root: &Path) -> Result<(), String> {
        let folder = self.folder.clone().or_else(default_folder);
        let folder =
            folder.ok_or("neither XDG_CACHE_HOME nor HOME is set\n\nhint: --folder DIR")?;
        let ruby = WindowsRuby { folder };
        if ruby.is_built() {
            println!("windows-ruby: {} is there", ruby.program().display());
        } else {
            let archive = self.archive.clone().unwrap_or_else(|| debootstrap::archive("debian"));
            ruby.build(self.jobs, &archive)?;
        }
        let wine = Wine::start(root)?;
        succeed(wine.command("wine").arg(ruby.program()).arg("--version"))?;
        if self.test { ruby.test(&wine) } else { Ok(()) }
    }
}

fn default_folder() -> Option<PathBuf> {
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = || {
        let home = || variable("HOME").map(|home| home.join(".cache"));
        Some(variable("XDG_CACHE_HOME").or_else(home)?.join("thruway-dev/windows-ruby"))
    };
    variable("THRUWAY_WINDOWS_RUBY").or_else(cache)
}

impl WindowsRuby {
    /// The Ruby in the usual folder, if it was built.
    pub(crate) fn installed() -> Option<Self> {
        Some(Self { folder: default_folder()? }).filter(Self::is_built)
    }

    /// `ruby.exe`.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("ruby/bin/ruby.exe")
    }

    /// A script that answers as this Ruby would when it is asked for its configuration. Build scripts run it.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.join("configuration")
    }

    fn is_built(&self) -> bool {
        self.configuration().is_file()
    }

    fn build(&self, jobs: u32, archive: &str) -> Result<(), String> {
        if let Some(missing) = debian::missing(&NEEDED) {
            return Err(format!("this machine lacks {missing}\n\nhint: apt-get install {missing}"));
        }
        let work = self.folder.join("work");
        let failed = |error| format!("{}: {error}", work.display());
        // The leftovers of an interrupted build might be incomplete anywhere.
        remove(&work).map_err(failed)?;
        fs::create_dir_all(work.join("build")).map_err(failed)?;
        println!("windows-ruby: building {PACKAGE} {VERSION} in {}", self.folder.display());
        fetch(&work, archive)?;
        keep_configure(&work.join(SOURCE)).map_err(failed)?;
        compile(&work, jobs)?;
        self.put_in_place(&work).map_err(failed)?;
        println!("windows-ruby: {}", self.program().display());
        Ok(())
    }

    /// Moves what was built out of the folder of the build. The script comes last: with it the Ruby counts as built.
    fn put_in_place(&self, work: &Path) -> std::io::Result<()> {
        for (built, place) in [
            ("install/ruby", "ruby"),
            (&*format!("{SOURCE}/test"), "test"),
            (&*format!("{SOURCE}/tool"), "tool"),
        ] {
            let place = self.folder.join(place);
            remove(&place)?;
            fs::rename(work.join(built), place)?;
        }
        let script = self.folder.join("configuration.partial");
        let library = self.folder.join(format!("ruby/lib/ruby/{RUBY_VERSION}.0/x64-mingw32"));
        let quoted = library.to_string_lossy().replace('\'', r"'\''");
        fs::write(&script, format!("#!/bin/sh\nexec {BASE_RUBY} -I '{quoted}' \"$@\"\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        fs::rename(script, self.configuration())?;
        fs::remove_dir_all(work)
    }

    /// Runs some of Ruby's own tests, whose failures are Wine's.
    fn test(&self, wine: &Wine) -> Result<(), String> {
        let mut command = wine.command("wine");
        command.arg(self.program()).current_dir(&self.folder);
        command.args(["-Itool/lib", "test/runner.rb", "--color=never", "--ruby=ruby.exe"]);
        command.args(TESTS.map(|test| format!("test/{test}")));
        command.env("WINEPATH", wine_path(&self.folder.join("ruby/bin")));
        let status = command.status().map_err(|error| format!("cannot start wine: {error}"))?;
        println!("windows-ruby: tests of {PACKAGE} under Wine: {status}");
        Ok(())
    }
}

/// Removes a folder that may not be there.
fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Fetches the source package, without a change of the machine's own list of sources.
fn fetch(work: &Path, archive: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", work.display());
    let (lists, list) = (work.join("lists"), work.join("sources.list"));
    fs::create_dir_all(lists.join("partial")).map_err(failed)?;
    let sources = format!("deb-src [signed-by={KEYRING}] {archive} {SUITE} main\n");
    fs::write(&list, sources).map_err(failed)?;
    let apt = || {
        let mut apt = Command::new("apt-get");
        let option = |name: &str, value: &Path| format!("{name}={}", value.display());
        apt.current_dir(work).arg("--quiet").stdin(Stdio::null());
        apt.args(["-o", &option("Dir::Etc::sourcelist", &list)]);
        apt.args(["-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Sandbox::User=root"]);
        apt.args(["-o", &option("Dir::State::lists", &lists)]);
        apt
    };
    let hint = |error| {
        format!(
            "{error}\n\nhint: {archive} has to offer {PACKAGE} {VERSION}; a mirror drops a version when the next one \
             comes, and --archive names another archive: {SNAPSHOT}"
        )
    };
    succeed(apt().arg("update")).map_err(hint)?;
    succeed(apt().args(["source", &format!("{PACKAGE}={VERSION}")])).map_err(hint)
}

/// Makes `configure` newer than the files that it is made of. Debian's patches change these, so that make would write
/// `configure` anew, which needs autoconf; but the changes are for processors of Debian.
fn keep_configure(source: &Path) -> std::io::Result<()> {
    let configure = fs::OpenOptions::new().append(true).open(source.join("configure"))?;
    configure.set_modified(std::time::SystemTime::now())
}

fn compile(work: &Path, jobs: u32) -> Result<(), String> {
    let build = work.join("build");
    let log = build.join("log");
    let quiet = |command: &mut Command| -> Result<(), String> {
        let log_file = fs::OpenOptions::new().create(true).append(true).open(&log);
        let log_file = log_file.map_err(|error| format!("{}: {error}", log.display()))?;
        let copy = log_file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        command.current_dir(&build).stdin(Stdio::null()).stdout(log_file).stderr(copy);
        succeed(command).map_err(|error| format!("{error}\n\nhint: {} says why", log.display()))
    };
    let mut configure = Command::new(work.join(SOURCE).join("configure"));
    configure.args(["--build=x86_64-linux-gnu", "--host=x86_64-w64-mingw32", "--prefix=/ruby"]);
    configure.args(["--enable-shared", "--disable-install-doc"]);
    configure.arg(format!("--with-baseruby={BASE_RUBY}"));
    configure.arg(format!("--with-out-ext={LEFT_OUT}"));
    // The times of files in the archives of DLLs would make each build another.
    configure.env("SOURCE_DATE_EPOCH", "1650000000");
    quiet(&mut configure)?;
    quiet(Command::new("make").arg(format!("--jobs={jobs}")))?;
    quiet(Command::new("make").arg("install").arg(format!("DESTDIR={}/install", work.display())))
}

/// A path of this machine as programs under Wine have it.
pub(crate) fn wine_path(path: &Path) -> String {
    format!("Z:{}", path.display()).replace('/', "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_finds_configure_newer_than_the_files_of_debians_patches() {
        let source = tempfile::tempdir().unwrap();
        let [configure, patched] = ["configure", "configure.ac"].map(|name| {
            let file = source.path().join(name);
            fs::write(&file, "").unwrap();
            file
        });
        let time = |file: &Path| fs::metadata(file).unwrap().modified().unwrap();
        let later = fs::File::options().append(true).open(&configure).unwrap();
        later.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(time(&configure) < time(&patched));
        keep_configure(source.path()).unwrap();
        assert!(time(&configure) >= time(&patched));
    }
}
