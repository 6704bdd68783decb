//! Prints its arguments, one per line, to show the command line as a program receives it.
#![forbid(unsafe_code)]

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    std::env::args_os().skip(1).try_for_each(|argument| writeln!(stdout, "{argument:?}"))
}
