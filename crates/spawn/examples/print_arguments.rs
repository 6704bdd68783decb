//! Prints its arguments, one a line, so that one sees what a program gets.
#![forbid(unsafe_code)]

use std::io::Write;

fn main() -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    std::env::args_os().skip(1).try_for_each(|argument| writeln!(stdout, "{argument:?}"))
}
