use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::{run, stderr, stdout};

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
        "Gemfile: + gem \"thruway\", require: false\n\
         config/boot.rb: - require \"bootsnap/setup\" # Speed up.  + require \"thruway/boot\"  \
         + # thruway init: require \"bootsnap/setup\" # Speed up.\n\n\
         next: bundle install; then start the application as always\n"
    );
    let [gemfile, boot] = files(folder.path());
    assert!(
        gemfile.contains("# Rails\ngem \"thruway\", require: false\ngem \"rails\"\n"),
        "{gemfile}"
    );
    assert!(boot.contains("\nrequire \"thruway/boot\"\nrequire \"bundler/setup\""), "{boot}");
    let again = run(&["init", path]);
    assert!(stdout(&again).starts_with("Gemfile: nothing to do\nconfig/boot.rb: nothing to do\n"));
    assert!(run(&["init", "--undo", path]).status.success());
    assert_eq!(files(folder.path()), [GEMFILE, BOOT]);
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
