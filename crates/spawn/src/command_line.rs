//! Command lines of Windows: all arguments in a single text, quoted so that the program recovers each argument.
//!
//! Programs split the command line themselves, almost always by the rules of Microsoft's C runtime ("Parsing C
//! command-line arguments"). For a batch file, `cmd.exe` parses the line first, and even a quoted argument can start
//! another program (CVE-2024-24576). So the command line of a batch file has a fixed form, and arguments beyond that
//! form are refused.

use std::fmt;

/// The reason why arguments cannot be passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Nul,
    Newline,
    QuoteInPath,
    TooLong { units_max: usize },
}

/// The limit of `CreateProcessW` in UTF-16 units, including the NUL at the end.
const UNITS_MAX: usize = 32_767;

/// The limit of `cmd.exe` in UTF-16 units ("Command prompt line string limitation" in Microsoft's
/// documentation).
const BATCH_UNITS_MAX: usize = 8191;

/// The start of the command line: `/d` skips the registry's autorun commands, `/e:ON` enables the substring
/// below, and `/v:OFF` leaves `!` alone. `cmd.exe` removes the outer quotes around the text after `/c`.
const BATCH_PREFIX: &str = "cmd.exe /d /e:ON /v:OFF /c \"";

/// A per cent sign without a variable: an empty substring of the variable `cd`, which always exists, separates the
/// sign from the following text.
const PER_CENT: &str = "%%cd:~,%";

/// Builds a program's command line for Microsoft's C runtime.
pub(crate) fn of_program(name: &[u16], arguments: &[Vec<u16>]) -> Result<Vec<u16>, Refusal> {
    if name.contains(&QUOTE) {
        return Err(Refusal::QuoteInPath);
    }
    let mut line = vec![QUOTE];
    line.extend_from_slice(name);
    line.push(QUOTE);
    for argument in arguments {
        line.push(SPACE);
        push_argument(&mut line, argument);
    }
    finish(line, UNITS_MAX)
}

/// Builds the command line of `cmd.exe` for the batch file at the absolute path `script`.
pub(crate) fn of_batch_file(script: &[u16], arguments: &[Vec<u16>]) -> Result<Vec<u16>, Refusal> {
    if script.contains(&QUOTE) || script.last() == Some(&BACKSLASH) {
        return Err(Refusal::QuoteInPath);
    }
    let is_newline = |unit: &u16| matches!(*unit, CARRIAGE_RETURN | LINE_FEED);
    if arguments.iter().flatten().chain(script).any(is_newline) {
        return Err(Refusal::Newline);
    }
    let mut line: Vec<u16> = BATCH_PREFIX.encode_utf16().collect();
    push_batch_argument(&mut line, script, true);
    for argument in arguments {
        line.push(SPACE);
        push_batch_argument(&mut line, argument, needs_batch_quotes(argument));
    }
    line.push(QUOTE);
    finish(line, BATCH_UNITS_MAX)
}

const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const SPACE: u16 = b' ' as u16;
const CARRIAGE_RETURN: u16 = b'\r' as u16;
const LINE_FEED: u16 = b'\n' as u16;

fn finish(mut line: Vec<u16>, units_max: usize) -> Result<Vec<u16>, Refusal> {
    if line.contains(&0) {
        return Err(Refusal::Nul);
    }
    line.push(0);
    if line.len() > units_max { Err(Refusal::TooLong { units_max }) } else { Ok(line) }
}

/// Appends an argument. Doubles the backslashes before a quote, and adds a backslash to the quote.
fn push_argument(line: &mut Vec<u16>, argument: &[u16]) {
    let is_blank = |unit: &u16| matches!(*unit, SPACE | 0x09 | 0x0A | 0x0B);
    let quoted = argument.is_empty() || argument.iter().any(is_blank);
    if quoted {
        line.push(QUOTE);
    }
    let mut backslashes = 0;
    for unit in argument {
        if *unit == QUOTE {
            line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
        }
        backslashes = if *unit == BACKSLASH { backslashes + 1 } else { 0 };
        line.push(*unit);
    }
    if quoted {
        line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
        line.push(QUOTE);
    }
}

/// Whether `cmd.exe` needs quotes around an argument: an empty argument, a backslash at the end, or a character outside
/// of the harmless ones.
fn needs_batch_quotes(argument: &[u16]) -> bool {
    const HARMLESS: &[u8] = br"#$*+-./:?@\_";
    let is_harmless = |unit: &u16| match u8::try_from(*unit) {
        Ok(byte) if byte.is_ascii() => byte.is_ascii_alphanumeric() || HARMLESS.contains(&byte),
        // Not harmless: the control characters of Latin-1 and the no-break space.
        Ok(byte) => byte > 0xA0,
        Err(_) => true,
    };
    matches!(argument.last(), None | Some(&BACKSLASH)) || !argument.iter().all(is_harmless)
}

/// Appends an argument for `cmd.exe`. Both `cmd.exe` and the C runtime read a doubled quote as a quote inside quotes.
/// A per cent sign starts no variable.
fn push_batch_argument(line: &mut Vec<u16>, argument: &[u16], quoted: bool) {
    if quoted {
        line.push(QUOTE);
    }
    let mut backslashes = 0;
    for unit in argument {
        if *unit == QUOTE {
            line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
            line.push(QUOTE);
        }
        backslashes = if *unit == BACKSLASH { backslashes + 1 } else { 0 };
        if *unit == u16::from(b'%') {
            line.extend(PER_CENT.encode_utf16());
        } else {
            line.push(*unit);
        }
    }
    if quoted {
        line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
        line.push(QUOTE);
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul => formatter.write_str("a NUL in an argument"),
            Self::Newline => formatter
                .write_str("cmd.exe would cut an argument off at its line break (CVE-2024-24576)"),
            Self::QuoteInPath => {
                formatter.write_str("the path of a program cannot hold a quotation mark")
            }
            Self::TooLong { units_max } => {
                write!(formatter, "the command line is longer than {units_max} units")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn line(result: Result<Vec<u16>, Refusal>) -> String {
        let mut line = result.unwrap();
        assert_eq!(line.pop(), Some(0));
        String::from_utf16(&line).unwrap()
    }

    fn program(arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(|argument| wide(argument)).collect();
        line(of_program(&wide("a b"), &arguments))
    }

    fn batch(arguments: &[&str]) -> Result<Vec<u16>, Refusal> {
        let arguments: Vec<_> = arguments.iter().map(|argument| wide(argument)).collect();
        of_batch_file(&wide(r"C:\a b\x.bat"), &arguments)
    }

    #[test]
    fn a_program_gets_its_arguments_back() {
        for (argument, quoted) in [
            ("a", "a"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            (r"a\b", r"a\b"),
            (r"a b\", r#""a b\\""#),
            (r#"a"b"#, r#"a\"b"#),
            (r#"a\"b"#, r#"a\\\"b"#),
            (r#"a \\" b"#, r#""a \\\\\" b""#),
            ("%PATH%", "%PATH%"),
            ("a\tb", "\"a\tb\""),
            ("é😀", "é😀"),
        ] {
            assert_eq!(program(&[argument, "z"]), format!(r#""a b" {quoted} z"#), "{argument:?}");
        }
    }

    #[test]
    fn a_batch_files_arguments_are_fixed_for_cmd() {
        for (argument, quoted) in [
            ("a", "a"),
            ("a-b_c.d:e/f*?", "a-b_c.d:e/f*?"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            (r"a\b", r"a\b"),
            (r"a\", r#""a\\""#),
            ("a&calc", r#""a&calc""#),
            (r#"a"&calc"#, r#""a""&calc""#),
            (r#"a\"&calc"#, r#""a\\""&calc""#),
            ("%PATH%", r#""%%cd:~,%PATH%%cd:~,%""#),
            ("a|b<c>d^e", r#""a|b<c>d^e""#),
            ("(a)", r#""(a)""#),
            ("a=b;c,d", r#""a=b;c,d""#),
            ("!a!", r#""!a!""#),
            ("~'`[]{}", r#""~'`[]{}""#),
            ("a\u{85}b", "\"a\u{85}b\""),
            ("a\u{a0}b", "\"a\u{a0}b\""),
            ("a\tb", "\"a\tb\""),
            ("é😀", "é😀"),
        ] {
            let expected = format!(r#"cmd.exe /d /e:ON /v:OFF /c ""C:\a b\x.bat" {quoted} z""#);
            assert_eq!(line(batch(&[argument, "z"])), expected, "{argument:?}");
        }
    }

    #[test]
    fn a_per_cent_sign_in_the_path_of_a_batch_file_is_no_variable() {
        let path = line(of_batch_file(&wide(r"C:\%A%\x.bat"), &[]));
        assert_eq!(path, r#"cmd.exe /d /e:ON /v:OFF /c ""C:\%%cd:~,%A%%cd:~,%\x.bat"""#);
    }

    #[test]
    fn what_cmd_would_cut_off_is_refused() {
        assert_eq!(batch(&["a\nb"]), Err(Refusal::Newline));
        assert_eq!(batch(&["a\rb"]), Err(Refusal::Newline));
        assert_eq!(batch(&["a\0b"]), Err(Refusal::Nul));
        assert_eq!(batch(&[&"a".repeat(8192)]), Err(Refusal::TooLong { units_max: 8191 }));
        assert!(batch(&[&"a".repeat(8000)]).is_ok());
        assert_eq!(of_batch_file(&wide("x\".bat"), &[]), Err(Refusal::QuoteInPath));
    }

    #[test]
    fn a_program_is_refused_what_windows_cannot_pass() {
        let of = |argument: &str| of_program(&wide("x"), &[wide(argument)]);
        assert_eq!(of("\0"), Err(Refusal::Nul));
        assert_eq!(of(&"a".repeat(32_767)), Err(Refusal::TooLong { units_max: 32_767 }));
        assert!(of("a\nb").is_ok());
        assert_eq!(of_program(&wide("\""), &[]), Err(Refusal::QuoteInPath));
    }
}
