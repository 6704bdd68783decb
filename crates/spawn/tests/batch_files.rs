//! Random arguments reach a batch file as they are, and none of them starts another program (CVE-2024-24576).
//! `cargo x prove batch-files` tries a million; a test tries a thousand.
#![cfg(windows)]

use std::fs;
use std::path::{Path, PathBuf};

use thruway_spawn::Command;
use thruway_testing::{Random, setting};

/// Pieces of arguments: what `cmd.exe` and the C runtime obey, harmless letters, and `m`, which is a batch file that
/// leaves a mark.
const PIECES: [&str; 40] = [
    "\"", "\"", "\"\"", "\\", "\\", "\\\\", "\\\"", "&", "&m&", "&&m", "|", "|m", "||m ", "<", ">",
    ">m.txt ", "^", "^^", "^\"", "^&m", "(", ")", "!", "!m!", " ", "  ", "\t", ",", ";", "=", "'",
    "`", "@", "m", "a", "é", "😀", "\u{a0}", "\u{85}", "~",
];
/// Pieces with a per cent sign. Inside a batch file, Wine's `cmd.exe` expands what `%*` has brought once more, which
/// Windows does not. So these arguments cannot be handed on there; the batch file only ends.
const PER_CENT_PIECES: [&str; 10] =
    ["%", "%%", "%PATHEXT%", "%CMDCMDLINE:~-1%", "%1", "%*", "%~1", "%0", "%cd%", "%=::%"];
/// The number of names in the folder of the batch files.
const NAMES: usize = 4;
/// The most pieces of an argument, and the most units of the arguments of one start, as escaped at worst.
const PIECES_MAX: usize = 9;
const UNITS_MAX: usize = 7000;

/// Returns the path of the example that prints its arguments, which cargo builds with the tests.
fn print_arguments() -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a path");
    let profile = tests.parent().and_then(Path::parent).expect("it lies in deps");
    profile.join("examples/print_arguments.exe")
}

/// A folder with a batch file that hands its arguments on, and one that leaves a mark. `cmd.exe` finds the latter,
/// because the folder is the current one.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::copy(print_arguments(), path("print.exe")).expect("a program");
        fs::write(path("on.cmd"), "@\"%~dp0print.exe\" %*\r\n").expect("a file");
        fs::write(path("end.cmd"), "@exit /b 0\r\n").expect("a file");
        fs::write(path("m.bat"), "@echo x>\"%~dp0mark\"\r\n").expect("a file");
        Self(folder)
    }

    /// Starts a batch file, and returns what it printed.
    fn start(&self, file: &str, arguments: &[String]) -> String {
        let command = Command::new(self.0.path().join(file)).args(arguments);
        let output = command.current_dir(self.0.path()).output();
        let output = output.unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        String::from_utf8(output.stdout).expect("it writes text").replace('\r', "")
    }

    /// The names in the folder. A mark, or a file made by a redirection, is one more.
    fn names(&self) -> usize {
        fs::read_dir(self.0.path()).expect("it is there").count()
    }
}

fn argument(random: &mut Random, pieces: &[&str]) -> String {
    let count = random.below(PIECES_MAX + 1);
    (0..count).map(|_| pieces[random.below(pieces.len())]).collect()
}

/// Returns as many arguments as fit one command line, at most `most`.
fn arguments(random: &mut Random, pieces: &[&str], most: u64) -> Vec<String> {
    let (mut all, mut units) = (Vec::new(), 0);
    while units < UNITS_MAX && (all.len() as u64) < most {
        let argument = argument(random, pieces);
        // A per cent sign takes eight units, a quote or a backslash two; quotes and a space stand around.
        let cost = |unit: u16| if unit == u16::from(b'%') { 8 } else { 2 };
        units += argument.encode_utf16().map(cost).sum::<usize>() + 3;
        if units < UNITS_MAX {
            all.push(argument);
        }
    }
    all
}

/// Fails with the first argument that breaks the batch file when it is passed alone.
fn fail(arguments: &[String], printed: &str) -> ! {
    for argument in arguments {
        let place = Place::new();
        let alone = place.start("on.cmd", std::slice::from_ref(argument));
        let is_well = alone == format!("{argument:?}\n") && place.names() == NAMES;
        assert!(is_well, "{argument:?}: {alone} ({} names)", place.names());
    }
    panic!("only together: {arguments:?}: {printed}");
}

#[test]
fn random_arguments_reach_a_batch_file_as_they_are() {
    let place = Place::new();
    let mut random = Random::from_environment();
    let mut left = setting("THRUWAY_CASES", 1000);
    while left > 0 {
        let arguments = arguments(&mut random, &PIECES, left);
        let expected: String = arguments.iter().map(|argument| format!("{argument:?}\n")).collect();
        let printed = place.start("on.cmd", &arguments);
        if printed != expected || place.names() != NAMES {
            fail(&arguments, &printed);
        }
        left -= arguments.len() as u64;
    }
}

#[test]
fn random_arguments_with_variables_start_no_other_program() {
    let place = Place::new();
    let mut random = Random::from_environment();
    let pieces = [&PIECES[..], &PER_CENT_PIECES, &PER_CENT_PIECES].concat();
    let mut left = (setting("THRUWAY_CASES", 1000) / 10).max(1000);
    while left > 0 {
        let arguments = arguments(&mut random, &pieces, left);
        place.start("end.cmd", &arguments);
        assert_eq!(place.names(), NAMES, "{arguments:?}");
        left -= arguments.len() as u64;
    }
}
