//! Writes programs that a test starts.
//!
//! A separate process writes the files. If this process had a file open for writing, every process that another test
//! starts at the same moment would inherit the descriptor, and the kernel refuses to run a file that is open for
//! writing (`ETXTBSY`).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file with the mode 0755.
pub fn write_program(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut sh = sh.spawn().expect("sh starts");
    let mut stdin = sh.stdin.take().expect("a pipe");
    stdin.write_all(text.as_ref()).expect("sh reads");
    drop(stdin);
    assert!(sh.wait().expect("sh ends").success(), "{} is not written", path.display());
}

/// Copies an executable file with its mode.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let status = Command::new("cp").arg("-p").arg(from).arg(to).status().expect("cp starts");
    assert!(status.success(), "{} is not copied", from.display());
}
