//! Names are absolute, whatever they were relative to.

use std::process::Command;

use super::{BACKENDS, Place, events, has, trace};

/// Returns the names that contain `mark` and that a Python program looks up, each once. The program starts in a fresh
/// folder `place`. The names omit the path above the folder.
fn names(program: &str) -> Vec<Vec<String>> {
    let all = BACKENDS.iter().map(|backend| {
        let place = Place::new();
        place.file("place/sub/deep/file", "");
        place.file("place/other/file", "");
        let root = place.path().canonicalize_for_test();
        let recording = place.path().join("recording");
        let mut python = Command::new("python3");
        python.current_dir(place.path().join("place")).args(["-S", "-c", program]);
        let options = ["--backend", backend, "-o", recording.to_str().expect("text")];
        trace(&options, &mut python);
        let mut names = Vec::new();
        for event in events(&recording) {
            for name in
                ["name", "second"].map(|key| event[key].as_str().unwrap_or_default().to_owned())
            {
                if name.contains("mark") && names.last() != Some(&name) {
                    names.push(name.replacen(&root, "", 1));
                }
            }
        }
        names
    });
    all.collect()
}

/// The path of the place without links, as the kernel and Python show it.
trait CanonicalForTest {
    fn canonicalize_for_test(&self) -> String;
}

impl CanonicalForTest for std::path::Path {
    fn canonicalize_for_test(&self) -> String {
        let output = Command::new("realpath").arg(self).output().expect("realpath starts");
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }
}

fn assert_names(program: &str, expected: &[&str]) {
    if has("python3") {
        for names in names(&format!("import os\n{}\n{program}", include_str!("ask.py"))) {
            assert_eq!(names, expected);
        }
    }
}

#[test]
fn relative_to_the_current_folder() {
    assert_names(
        "ask('mark'); os.chdir('sub'); ask('mark'); os.chdir('..'); ask('./mark'); ask('/mark')",
        &["/place/mark", "/place/sub/mark", "/place/mark", "/mark"],
    );
}

#[test]
fn relative_to_a_descriptor() {
    assert_names(
        "fd = os.open('sub', os.O_RDONLY); ask('mark', fd); ask('/mark', fd); os.close(fd)\n\
         fd = os.open('other', os.O_RDONLY); ask('deep/../mark', fd)",
        &["/place/sub/mark", "/mark", "/place/other/deep/../mark"],
    );
}

#[test]
fn relative_to_a_duplicate() {
    assert_names(
        "import fcntl; fd = os.open('sub', os.O_RDONLY)\n\
         ask('mark1', os.dup(fd)); os.dup2(fd, 40); ask('mark2', 40)\n\
         ask('mark3', fcntl.fcntl(fd, fcntl.F_DUPFD, 50)); ask('mark4', fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 60))",
        &["/place/sub/mark1", "/place/sub/mark2", "/place/sub/mark3", "/place/sub/mark4"],
    );
}

#[test]
fn after_fchdir() {
    assert_names(
        "fd = os.open('sub', os.O_RDONLY); os.fchdir(fd); ask('mark'); os.chdir('deep'); ask('mark')",
        &["/place/sub/mark", "/place/sub/deep/mark"],
    );
}

#[test]
fn in_a_child_that_moves_alone() {
    assert_names(
        "fd = os.open('sub', os.O_RDONLY)\n\
         child = os.fork()\n\
         if child == 0: os.chdir('other'); ask('mark-child'); ask('mark-fd', fd); os._exit(0)\n\
         os.waitpid(child, 0); ask('mark-parent')",
        &["/place/other/mark-child", "/place/sub/mark-fd", "/place/mark-parent"],
    );
}

#[test]
fn in_threads_that_move_together() {
    assert_names(
        "import threading\n\
         def move(): os.chdir('sub'); ask('mark-thread')\n\
         thread = threading.Thread(target=move); thread.start(); thread.join(); ask('mark-main')",
        &["/place/sub/mark-thread", "/place/sub/mark-main"],
    );
}

#[test]
fn in_a_program_that_was_started() {
    assert_names(
        "os.chdir('sub'); os.execv('/bin/sh', ['sh', '-c', 'test -e mark; cd deep; test -e mark'])",
        &["/place/sub/mark", "/place/sub/deep/mark"],
    );
}

#[test]
fn two_names_of_one_call() {
    assert_names(
        "one = os.open('sub', os.O_RDONLY); two = os.open('other', os.O_RDONLY)\n\
         try: os.rename('mark1', 'mark2', src_dir_fd=one, dst_dir_fd=two)\n\
         except OSError: pass",
        &["/place/sub/mark1", "/place/other/mark2"],
    );
}

#[test]
fn that_are_no_text_keep_their_bytes() {
    if !has("python3") {
        return;
    }
    let place = Place::new();
    let recording = place.path().join("recording");
    let mut python = Command::new("python3");
    python.args(["-S", "-c", "import os; os.path.exists(b'/mark/\\xff')"]);
    trace(&["-o", recording.to_str().expect("text")], &mut python);
    let hexadecimal = |event: &serde_json::Value| event["name"]["hex"].as_str().map(str::to_owned);
    let kept: Vec<_> = events(&recording).iter().filter_map(hexadecimal).collect();
    assert_eq!(kept, ["2f6d61726b2fff"]);
}
