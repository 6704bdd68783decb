//! Splits a command's words into those that its boot may depend on, which become part of the key, and the
//! rest, which only the child receives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns the words that must be equal for two commands to share a template.
///
/// The program is always included. `bundle exec` and `ruby` wrap another program, whose words are examined in
/// turn. For `rails` the subcommand counts, for `rake` the tasks. Options that choose an environment count at
/// any position, and so does `NAME=VALUE`, which a task of `rails` or `rake` gets as an environment variable.
#[must_use]
pub fn fixed_words<'a>(words: &[&'a OsStr]) -> Vec<&'a OsStr> {
    let Some((program, rest)) = words.split_first() else { return Vec::new() };
    let mut fixed = vec![*program];
    match name(program) {
        b"bundle" | b"bundler" if rest.first().is_some_and(|word| *word == "exec") => {
            fixed.push(rest[0]);
            fixed.extend(fixed_words(&rest[1..]));
        }
        b"ruby" => match script(rest) {
            Some(place) => {
                fixed.extend(&rest[..place]);
                fixed.extend(fixed_words(&rest[place..]));
            }
            None => fixed.extend(rest),
        },
        b"rails" => {
            fixed.extend(rest.first().filter(|word| !is_option(word)));
            fixed.extend(environment_options(rest));
            fixed.extend(variables(rest));
        }
        b"rake" => fixed.extend(rest.iter().filter(|word| !is_option(word)).map(|word| task(word))),
        _ => {}
    }
    fixed
}

/// Returns the word that names the script which Ruby runs; `None` if the program is itself the script or is
/// not Ruby.
#[must_use]
pub fn script_word<'a>(words: &[&'a OsStr]) -> Option<&'a OsStr> {
    let (program, rest) = words.split_first()?;
    (name(program) == b"ruby").then(|| script(rest).map(|place| rest[place]))?
}

fn name(program: &OsStr) -> &[u8] {
    Path::new(program).file_name().unwrap_or(program).as_bytes()
}

/// Ruby's options whose value is the next word.
const WITH_VALUE: [&[u8]; 14] = [
    b"-I",
    b"-r",
    b"-C",
    b"-X",
    b"-E",
    b"--backtrace-limit",
    b"--crash-report",
    b"--disable",
    b"--dump",
    b"--enable",
    b"--encoding",
    b"--external-encoding",
    b"--internal-encoding",
    b"--parser",
];

/// Returns the index of the script among Ruby's words; `None` without a script, or if the words leave it
/// open.
fn script(words: &[&OsStr]) -> Option<usize> {
    let mut place = 0;
    while let Some(word) = words.get(place) {
        match word.as_bytes() {
            word if WITH_VALUE.contains(&word) => place += 2,
            b"--" => return (place + 1 < words.len()).then_some(place + 1),
            word if word.starts_with(b"-e") || word == b"-" => return None,
            word if word.starts_with(b"-") => place += 1,
            _ => return Some(place),
        }
    }
    None
}

/// Returns `-e NAME`, `-eNAME`, `--environment NAME` and `--environment=NAME`.
fn environment_options<'a>(words: &[&'a OsStr]) -> Vec<&'a OsStr> {
    let mut options = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let bytes = word.as_bytes();
        if matches!(bytes, b"-e" | b"--environment") {
            options.extend(&words[place..words.len().min(place + 2)]);
        } else if bytes.starts_with(b"-e") || bytes.starts_with(b"--environment=") {
            options.push(*word);
        }
    }
    options
}

/// Returns the words `NAME=VALUE` of a task. The arguments of `runner` are code.
fn variables<'a>(words: &[&'a OsStr]) -> Vec<&'a OsStr> {
    match words.split_first() {
        Some((subcommand, rest)) if *subcommand != "runner" && *subcommand != "r" => {
            rest.iter().copied().filter(|word| is_variable(word)).collect()
        }
        _ => Vec::new(),
    }
}

fn is_variable(word: &OsStr) -> bool {
    let name = word.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.len() < word.len() && !name.is_empty() && name.iter().all(is_name)
}

fn is_option(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-")
}

/// Returns a rake task without its arguments. `NAME=VALUE` is kept whole, because rake sets it as an
/// environment variable.
fn task(word: &OsStr) -> &OsStr {
    let bytes = word.as_bytes();
    let name = bytes.split(|byte| *byte == b'[').next().unwrap_or(bytes);
    if name.contains(&b'=') { word } else { OsStr::from_bytes(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_a_boot_may_depend_on_are_fixed() {
        for (command, fixed) in [
            ("bin/rails runner 0", "bin/rails runner"),
            ("bin/rails runner -e test 0", "bin/rails runner -e test"),
            ("bin/rails test -etest a --environment=b", "bin/rails test -etest --environment=b"),
            ("bin/rails --version", "bin/rails"),
            ("bin/rails db:migrate VERSION=3 a.b=c =d", "bin/rails db:migrate VERSION=3"),
            ("bin/rails runner a=1", "bin/rails runner"),
            ("bin/rake -T", "bin/rake"),
            ("bin/rake RAILS_ENV=test db:x[1] A=b[2] -t", "bin/rake RAILS_ENV=test db:x A=b[2]"),
            ("bundle exec rspec spec/a_spec.rb", "bundle exec rspec"),
            ("bundle exec rails c", "bundle exec rails c"),
            ("bundle install", "bundle"),
            ("ruby -Ilib -I test -w a.rb b", "ruby -Ilib -I test -w a.rb"),
            ("ruby bin/rails runner 0", "ruby bin/rails runner"),
            ("ruby -W a.rb b", "ruby -W a.rb"),
            ("ruby --disable gems a.rb b", "ruby --disable gems a.rb"),
            ("ruby --encoding utf-8 -X lib a.rb b", "ruby --encoding utf-8 -X lib a.rb"),
            ("ruby -e 0 a", "ruby -e 0 a"),
            ("rspec a b", "rspec"),
        ] {
            let words: Vec<_> = command.split(' ').map(OsStr::new).collect();
            let expected: Vec<_> = fixed.split(' ').map(OsStr::new).collect();
            assert_eq!(fixed_words(&words), expected, "{command}");
        }
    }
}
