use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{run, stderr, stdout};

/// Returns the line for the checkout in which the binary was built. The gem is not released, so Bundler would find no
/// gem by the name alone, or another project's.
fn line() -> String {
    let checkout = Path::new(env!("CARGO_BIN_EXE_thruway")).ancestors().nth(3).expect("a checkout");
    format!("gem \"thruway\", path: \"{}\", require: false", checkout.display())
}

const GEMFILE: &str =
    "source \"https://rubygems.org\"\n\n# Rails\ngem \"rails\"\ngem \"bootsnap\", require: false\n";
const BOOT: &str = "ENV[\"BUNDLE_GEMFILE\"] ||= File.expand_path(\"../Gemfile\", __dir__)\n\n\
                    require \"bundler/setup\" # Set up gems.\nrequire \"bootsnap/setup\" # Speed up.\n";

fn application() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("config")).expect("it is made");
    fs::write(folder.path().join("Gemfile"), GEMFILE).expect("it is written");
    fs::write(folder.path().join("config/boot.rb"), BOOT).expect("it is written");
    folder
}

fn files(folder: &Path) -> [String; 2] {
    ["Gemfile", "config/boot.rb"]
        .map(|file| fs::read_to_string(folder.join(file)).expect("it is there"))
}

#[test]
fn init_adds_two_lines_and_undo_takes_them_out() {
    let folder = application();
    let path = folder.path().to_str().expect("it is text");
    let output = run(&["init", path]);
    assert_eq!(
        stdout(&output),
        format!(
            "Gemfile: + {}\n\
             config/boot.rb: - require \"bootsnap/setup\" # Speed up.  + require \"thruway/boot\"  \
             + # thruway init: require \"bootsnap/setup\" # Speed up.\n\n\
             next: bundle install --local; then start the application as always\n",
            line()
        )
    );
    let [gemfile, boot] = files(folder.path());
    assert!(gemfile.contains(&format!("# Rails\n{}\ngem \"rails\"\n", line())), "{gemfile}");
    assert!(boot.contains("\nrequire \"thruway/boot\"\nrequire \"bundler/setup\""), "{boot}");
    let again = run(&["init", path]);
    assert!(stdout(&again).starts_with("Gemfile: nothing to do\nconfig/boot.rb: nothing to do\n"));
    assert!(run(&["init", "--undo", path]).status.success());
    assert_eq!(files(folder.path()), [GEMFILE, BOOT]);
}

/// A copy of the program elsewhere, as in an archive: no gem belongs to it, and none is installed.
#[test]
fn a_gem_that_is_not_there_is_not_named_to_bundler() {
    let (folder, other) = (application(), tempfile::tempdir().expect("a folder"));
    let program = other.path().join("thruway");
    fs::copy(env!("CARGO_BIN_EXE_thruway"), &program).expect("it is copied");
    let run = |option: &str| {
        let mut init = Command::new(&program);
        init.args(["init", option]).arg(folder.path()).env("GEM_PATH", other.path());
        init.env("GEM_HOME", other.path()).output().expect("it starts")
    };
    let output = run("--");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        stderr(&output).contains("the gem is not released: install the .gem file"),
        "{output:?}"
    );
    assert_eq!(files(folder.path()), [GEMFILE, BOOT]);
    fs::create_dir(other.path().join("specifications")).expect("it is made");
    let name = format!("specifications/thruway-{}.gemspec", env!("CARGO_PKG_VERSION"));
    let text =
        format!("Gem::Specification.new(\"thruway\", \"{}\") {{}}", env!("CARGO_PKG_VERSION"));
    fs::write(other.path().join(name), text).expect("it is written");
    assert!(run("--").status.success());
    assert!(files(folder.path())[0].contains("\ngem \"thruway\", require: false\n"));
    assert!(run("--undo").status.success());
    assert_eq!(files(folder.path()), [GEMFILE, BOOT]);
}

/// Bundler has no network, and uses the installed gems.
#[test]
fn bundler_takes_the_gem_of_the_checkout_as_it_is() {
    let folder = application();
    fs::write(folder.path().join("Gemfile"), "source \"https://rubygems.org\"\n").expect("written");
    assert!(run(&["init", folder.path().to_str().expect("it is text")]).status.success());
    let bundle = |arguments: &[&str]| {
        let mut bundle = Command::new("bundle");
        bundle.args(arguments).current_dir(folder.path()).env_remove("BUNDLE_GEMFILE");
        let output = bundle.env("https_proxy", "http://127.0.0.1:1").output().expect("Bundler");
        assert!(output.status.success(), "{output:?}");
        output
    };
    bundle(&["install", "--local"]);
    let found = bundle(&["exec", "ruby", "-e", "puts Gem.loaded_specs[\"thruway\"].full_gem_path"]);
    assert!(line().contains(stdout(&found).trim_end()), "{found:?}");
}

#[test]
fn a_folder_that_is_no_application_is_left_alone() {
    let folder = application();
    fs::remove_file(folder.path().join("config/boot.rb")).expect("it was there");
    let output = run(&["init", folder.path().to_str().expect("it is text")]);
    assert!(stderr(&output).contains("config/boot.rb: No such file"), "{output:?}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(folder.path().join("Gemfile")).unwrap(), GEMFILE);
}

/// The disk is full for the second file: no file may be larger than a block of 512 bytes.
#[test]
fn files_are_as_they_were_if_one_cannot_be_written() {
    let folder = application();
    let boot = format!("{BOOT}# {}\n", "x".repeat(1000));
    fs::write(folder.path().join("config/boot.rb"), &boot).expect("it is written");
    let script = "ulimit -f 1; trap '' XFSZ; exec \"$0\" init \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_thruway")]).arg(folder.path());
    let output = shell.output().expect("a shell");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("cannot write"), "{output:?}");
    assert_eq!(files(folder.path()), [GEMFILE.to_owned(), boot]);
    let left = |path: &Path| fs::read_dir(path).expect("a folder").count();
    assert_eq!((left(folder.path()), left(&folder.path().join("config"))), (2, 1));
}

#[test]
fn a_link_stays_a_link_and_the_mode_of_its_file_stays() {
    let folder = application();
    let (gemfile, shared) = (folder.path().join("Gemfile"), folder.path().join("shared"));
    fs::rename(&gemfile, &shared).expect("it is renamed");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o600)).expect("it is ours");
    symlink("shared", &gemfile).expect("a link");
    assert!(run(&["init", folder.path().to_str().expect("it is text")]).status.success());
    assert_eq!(fs::read_link(&gemfile).expect("a link"), Path::new("shared"));
    assert!(fs::read_to_string(&shared).expect("it is there").contains("gem \"thruway\""));
    let mode = shared.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}
