use crate::{run, stdout, thruway};

#[test]
fn names_are_expanded_one_a_line() {
    let output = run(&["expand", "--base", "/srv", "a/../b", "/c/./d"]);
    assert_eq!(stdout(&output), "/srv/b\n/c/d\n");
}

#[test]
fn the_current_folder_is_the_base_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let output = thruway().current_dir(&folder).args(["expand", "a"]).output().unwrap();
    assert_eq!(stdout(&output).trim_end(), folder.path().join("a").to_str().unwrap());
}
