//! `thruway run` on Windows: the program and the extension are built for the Ruby of `cargo x windows-ruby`, laid out
//! as in a release, and tried under Wine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::succeed;
use crate::debian;
use crate::windows_ruby::{RUBY_VERSION, WindowsRuby, wine_path};
use crate::wine::{TARGET, Wine};

/// The headers of Windows.
const HEADERS: &str = "/usr/x86_64-w64-mingw32/include";

/// With a target, bindgen does not look for the headers of clang itself.
const TARGET_OPTION: &str = "--target=x86_64-w64-mingw32";

/// A folder for each version of clang, with its own headers.
const CLANG_VERSIONS: &str = "/usr/lib/clang";

/// Runs the tests of the boot, if there is a Ruby for Windows: the quick ones, or all.
pub(crate) fn test(root: &Path, wine: &Wine, all: bool) -> Result<(), String> {
    let Some(ruby) = WindowsRuby::installed() else {
        println!(
            "windows: thruway run: skipped, because this machine has no Ruby for Windows \
             (cargo x windows-ruby builds one)"
        );
        return Ok(());
    };
    let folder = lay_out(root, wine, &ruby)?;
    let mut tests = Command::new("ruby");
    tests.current_dir(root).args(["-w", "tests/windows/all.rb", "--verbose"]);
    wine.settle(&mut tests);
    tests
        .env("THRUWAY_WINDOWS", &folder)
        .env("WINDOWS_RUBY", ruby.program())
        .env("WINEPATH", wine_path(ruby.program().parent().unwrap_or(root)));
    if all {
        tests.env("THRUWAY_WINDOWS_ALL", "1");
    }
    succeed(&mut tests)
}

/// Builds the program and the extension, and puts them where `thruway.exe` finds them: in `target/windows`, with
/// `bin/thruway.exe` and `lib/thruway`.
fn lay_out(root: &Path, wine: &Wine, ruby: &WindowsRuby) -> Result<PathBuf, String> {
    let mut cargo =
        wine.cargo(["build", "--package", "thruway-cli", "--package", "thruway-gem-ext"])?;
    cargo.envs(crate::linting::environment(Path::new(debian::CARGO)));
    cargo.env("RUBY", ruby.configuration()).env("BINDGEN_EXTRA_CLANG_ARGS", clang_arguments());
    succeed(&mut cargo)?;
    let built = debian::target(root).join(TARGET).join("debug");
    let folder = root.join("target/windows");
    let library = folder.join("lib/thruway");
    let extension = library.join("thruway").join(RUBY_VERSION);
    let failed = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder.join("bin")).map_err(failed)?;
    fs::create_dir_all(&extension).map_err(failed)?;
    fs::copy(built.join("thruway.exe"), folder.join("bin/thruway.exe")).map_err(failed)?;
    fs::copy(built.join("thruway_ext.dll"), extension.join("thruway.so")).map_err(failed)?;
    succeed(Command::new("cp").arg("-r").arg(root.join("gem/lib/.")).arg(library))?;
    Ok(folder)
}

/// The arguments with which libclang reads the headers of a Ruby for Windows.
fn clang_arguments() -> String {
    let versions = fs::read_dir(CLANG_VERSIONS).into_iter().flatten().flatten();
    let headers = versions.map(|version| version.path().join("include"));
    let newest = headers.filter(|folder| folder.join("mm_malloc.h").is_file()).max();
    let own = newest.map(|folder| format!(" -isystem {}", folder.display()));
    format!("{TARGET_OPTION}{} -isystem {HEADERS}", own.unwrap_or_default())
}
