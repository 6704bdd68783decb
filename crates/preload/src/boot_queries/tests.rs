//! Each kind of query, and the changes that make its answer differ or not.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::observation::look;
use super::{BootQueries, QueryLog, Question};

fn now() -> i64 {
    i64::MAX
}

fn noted(path: &Path, question: Question) -> BootQueries {
    let mut notes = QueryLog::default();
    notes.note(path.as_os_str().as_bytes(), question, now());
    notes.sealed()
}

fn changes(observed: &mut BootQueries) -> bool {
    observed.first_change(now()).is_some()
}

/// Waits until the file system's clock gives a new stamp.
fn tick() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

#[test]
fn an_edit_does_not_affect_a_query_for_existence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rb");
    std::fs::write(&path, "1").unwrap();
    let [mut presence, mut content] =
        [Question::Kind, Question::Content].map(|question| noted(&path, question));
    tick();
    std::fs::write(&path, "2").unwrap();
    assert!(!changes(&mut presence) && changes(&mut content));
    let mut rights = noted(&path, Question::Rights);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(changes(&mut rights) && !changes(&mut presence));
    std::fs::remove_file(&path).unwrap();
    assert!(changes(&mut presence));
}

#[test]
fn a_file_that_has_appeared_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rb");
    for question in [Question::Kind, Question::LinkStat, Question::Content] {
        let mut observed = noted(&path, question);
        assert!(!changes(&mut observed));
        std::fs::write(&path, "1").unwrap();
        assert_eq!(observed.first_change(now()), Some(path.as_os_str().as_bytes()));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_listed_folder_may_change_as_long_as_its_names_do_not() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.rb"), "1").unwrap();
    let mut observed = noted(folder.path(), Question::Names);
    tick();
    std::fs::write(folder.path().join("b"), "2").unwrap();
    std::fs::rename(folder.path().join("b"), folder.path().join("a.rb")).unwrap();
    assert!(!changes(&mut observed));
    std::fs::write(folder.path().join("b"), "2").unwrap();
    assert!(changes(&mut observed));
    std::fs::remove_file(folder.path().join("b")).unwrap();
    std::fs::remove_file(folder.path().join("a.rb")).unwrap();
    std::fs::create_dir(folder.path().join("a.rb")).unwrap();
    assert!(changes(&mut observed), "a name that is something else now");
}

#[test]
fn another_folder_with_the_same_names_is_a_change_if_the_boot_read_the_stat() {
    let above = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| above.path().join(name));
    for questions in [[Question::Stat, Question::Names], [Question::Names, Question::LinkStat]] {
        [&one, &other].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let mut notes = QueryLog::default();
        for question in questions {
            notes.note(one.as_os_str().as_bytes(), question, now());
        }
        let mut observed = notes.sealed();
        assert!(!changes(&mut observed));
        std::fs::remove_dir(&one).unwrap();
        std::fs::rename(&other, &one).unwrap();
        assert!(changes(&mut observed), "{questions:?}");
        std::fs::remove_dir(&one).unwrap();
    }
}

#[test]
fn a_link_that_leads_elsewhere_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    ["one", "two"].iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let mut observed = noted(&link.join("x"), Question::RealPath);
    assert!(!changes(&mut observed));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("two", &link).unwrap();
    assert!(changes(&mut observed));
}

#[test]
fn a_file_that_changed_a_moment_ago_counts_as_changed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().as_os_str().as_bytes();
    let mut notes = QueryLog::default();
    let stamp = look(path, true).unwrap().stamp;
    notes.note(path, Question::Content, stamp.ctime_ns + 1);
    assert!(changes(&mut notes.sealed()));
}

#[test]
fn a_touched_lock_file_is_unchanged_while_its_content_is() {
    let folder = tempfile::tempdir().unwrap();
    let [lock, other] = ["Gemfile.lock", "Gemfile"].map(|name| folder.path().join(name));
    let rewrite = |text: &str| {
        tick();
        [&lock, &other].iter().for_each(|path| std::fs::write(path, text).unwrap());
    };
    rewrite("GEM");
    tick();
    let mut observed = noted(&lock, Question::Content);
    let mut without = [noted(&other, Question::Content), noted(&lock, Question::Stat)];
    rewrite("GEM");
    assert!(!changes(&mut observed));
    assert!(without.iter_mut().all(changes), "only a lock file's content is compared");
    rewrite("PEM");
    assert!(changes(&mut observed), "as many bytes");
    rewrite("GEM");
    assert!(!changes(&mut observed));
    std::fs::set_permissions(&lock, PermissionsExt::from_mode(0o600)).unwrap();
    assert!(changes(&mut observed));
}

#[test]
fn files_that_the_boot_has_written_are_not_compared() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().as_os_str().as_bytes();
    let mut notes = QueryLog::default();
    notes.note(path, Question::Content, now());
    notes.note_written(path);
    assert!(notes.sealed().is_empty());
}

#[test]
fn the_type_of_an_entry_is_covered_by_the_names_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rb");
    std::fs::write(&path, "").unwrap();
    std::os::unix::fs::symlink("a.rb", folder.path().join("link")).unwrap();
    let mut notes = QueryLog::default();
    for (name, question) in [("a.rb", Question::Kind), ("", Question::Names)] {
        let path = folder.path().join(name).into_os_string().into_encoded_bytes();
        notes.note(path.strip_suffix(b"/").unwrap_or(&path), question, now());
    }
    let mut observed = notes.sealed();
    assert_eq!(observed.len(), 1);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(changes(&mut observed), "a folder in its place");
    let mut notes = QueryLog::default();
    notes.note(folder.path().as_os_str().as_bytes(), Question::Names, now());
    notes.note(folder.path().join("link").as_os_str().as_bytes(), Question::Kind, now());
    assert_eq!(notes.sealed().len(), 2, "a link may lead elsewhere");
}

#[test]
fn files_in_shared_memory_or_below_a_process_s_folder_are_compared() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = folder.path().join("a.rb");
    std::fs::write(&path, "1").unwrap();
    let through = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
    for noted_path in [&path, &through] {
        let mut observed = noted(noted_path, Question::Content);
        assert!(!changes(&mut observed));
        std::fs::write(&path, "two, or more").unwrap();
        assert!(changes(&mut observed), "{}", noted_path.display());
        std::fs::write(&path, "1").unwrap();
    }
}

#[test]
fn many_paths_below_a_missing_folder_are_one_query() {
    let folder = tempfile::tempdir().unwrap();
    let mut notes = QueryLog::default();
    for name in ["x/a", "x/b/c", "x"] {
        let path = folder.path().join(name);
        notes.note(path.as_os_str().as_bytes(), Question::Kind, now());
    }
    let mut observed = notes.sealed();
    assert_eq!(observed.len(), 1);
    std::fs::create_dir(folder.path().join("x")).unwrap();
    assert!(changes(&mut observed));
}

#[test]
fn the_first_of_many_changes_is_named_whichever_thread_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("{number:04}"));
    let mut notes = QueryLog::default();
    for number in 0..1200 {
        std::fs::write(path(number), "").unwrap();
        notes.note(path(number).as_os_str().as_bytes(), Question::Content, now());
    }
    let mut observed = notes.sealed();
    assert_eq!((observed.len(), observed.first_change(now())), (1200, None));
    for number in [1199, 900, 601, 300, 0] {
        std::fs::remove_file(path(number)).unwrap();
        let first = path(number);
        assert_eq!(observed.first_change(now()), Some(first.as_os_str().as_bytes()));
    }
}

#[test]
fn names_that_a_listed_folder_lacks_need_no_query_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("a.rb");
    let mut notes = QueryLog::default();
    notes.note(missing.as_os_str().as_bytes(), Question::Kind, now());
    notes.note(folder.path().as_os_str().as_bytes(), Question::Names, now());
    let mut observed = notes.sealed();
    assert_eq!(observed.len(), 1);
    std::fs::write(missing, "").unwrap();
    assert!(changes(&mut observed));
}
