//! Compares expansion and folding with the system's own results, for random names; and searches with those of shells,
//! languages and the C library (`peers`).
//!
//! `THRUWAY_CASES` sets the number of cases (`cargo x fuzz` sets a million), `THRUWAY_SEED` the seed.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod peers;

use thruway_testing::{Random, setting};

#[cfg(unix)]
use thruway_resolve::expand::{Flavour, expand};

/// The number of cases in CI.
const CASES: u64 = 20_000;

/// Returns one to seven of `tokens`, concatenated.
fn name(random: &mut Random, tokens: &[&str]) -> String {
    (0..=random.below(7)).map(|_| tokens[random.below(tokens.len())]).collect()
}

/// Returns the components that the standard library sees, with `..` resolved lexically.
#[cfg(unix)]
fn by_std(name: &str, base: &str) -> std::path::PathBuf {
    use std::path::{Component, Path, PathBuf};
    let mut expanded = PathBuf::from("/");
    for component in Path::new("/").join(base).join(name).components() {
        match component {
            Component::ParentDir => _ = expanded.pop(),
            Component::Normal(component) => expanded.push(component),
            _ => {}
        }
    }
    expanded
}

#[cfg(unix)]
#[test]
fn names_on_posix_expand_as_the_standard_library_sees_them() {
    use std::os::unix::ffi::OsStrExt;
    const TOKENS: [&str; 16] =
        ["/", "/", "//", ".", "..", "...", "a", "b.c", " ", "~", "\\", "C:", ".a", "a.", "é", "\n"];
    let mut random = Random::from_environment();
    for _ in 0..setting("THRUWAY_CASES", CASES) {
        let (name, base) = (name(&mut random, &TOKENS), name(&mut random, &TOKENS));
        let ours = expand(Flavour::Posix, name.as_bytes(), base.as_bytes());
        let theirs = by_std(&name, &base);
        assert_eq!(ours, theirs.as_os_str().as_bytes(), "{name:?} in {base:?}");
    }
}

#[cfg(windows)]
mod windows {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::process::Command;

    use thruway_resolve::expand::Devices;
    use thruway_resolve::expand::windows::Place;
    use thruway_resolve::fold::fold;
    use thruway_resolve::{native, wtf8};

    const TOKENS: [&str; 36] = [
        "C:", "c:", "Z:", "D:", "é:", "\\", "\\", "/", "\\\\", "..", ".", "...", "foo", "foo.",
        "bar ", "a", "NUL", "nul.txt", "con", "COM1", "LPT9", "~", "~1", " ", "?", "*", ":",
        ":$DATA", "//?/", "\\\\.\\", "srv", "b.c", "x. ", "CONIN$", "é", "😀",
    ];

    /// Whether Wine 8 differs from Windows; docs/reference/names.md has the sources.
    fn error_of_wine(name: &str) -> Option<&'static str> {
        let is_separator = |character: char| matches!(character, '\\' | '/');
        let mut inner: Vec<_> = name.split(is_separator).collect();
        inner.pop();
        if inner.iter().any(|component| component.len() > 2 && component.ends_with("..")) {
            return Some("one of several dots at the end of an inner component is taken away");
        }
        let is_share = name.starts_with(is_separator)
            && name[1..].starts_with(is_separator)
            && !matches!(name.as_bytes(), [_, _, b'?' | b'.', b'\\' | b'/', ..]);
        let mut parts = name.get(2..).unwrap_or_default().split(is_separator);
        let (host, share) = (parts.next(), parts.next());
        let is_doubled = parts.next() == Some("") && parts.next().is_some();
        let odd = |part: Option<&str>| matches!(part, Some("" | "." | ".."));
        if is_share && (odd(host) || odd(share) || is_doubled) {
            return Some(
                "doubled separators behind a host or a share are kept, dots are names there",
            );
        }
        None
    }

    /// Whether Wine took a name for a name of the host, which it does if the name begins with a slash and the
    /// folder before its last component exists. Only the drive then differs: it is that of the host's root.
    fn is_of_host(name: &str, ours: Option<&[u8]>, theirs: Option<&[u8]>) -> bool {
        let (Some([_, ours @ ..]), Some([b'Z', theirs @ ..])) = (ours, theirs) else {
            return false;
        };
        name.starts_with('/') && ours == theirs
    }

    /// Returns the result of `GetFullPathNameW`. The standard library calls it except for an empty name and
    /// one that begins with `\\?\`, which is therefore spelled `//?/` here.
    fn by_windows(name: &str) -> Option<Vec<u8>> {
        let full = std::path::absolute(name).ok()?;
        let full = native::bytes(full.as_os_str()).into_owned();
        (!full.is_empty()).then_some(full)
    }

    /// The process that compares has a working directory on `Z:`, set by the variable `=Z:`, and its current
    /// folder has a name like a file's.
    #[test]
    fn names_on_windows_expand_as_the_system_expands_them() {
        if std::env::var_os("THRUWAY_COMPARES").is_some() {
            return compare();
        }
        let folder = tempfile::tempdir().unwrap();
        let current = folder.path().join("foo.com");
        std::fs::create_dir(&current).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "windows::names_on_windows_expand_as_the_system_expands_them"])
            .arg("--nocapture")
            .env("THRUWAY_COMPARES", "1")
            .env("=Z:", r"Z:\usr\share")
            .current_dir(current)
            .status();
        assert!(status.unwrap().success());
    }

    fn compare() {
        let current = std::env::current_dir().expect("a current folder");
        let current = native::bytes(current.as_os_str()).into_owned();
        let (wide, zed) = (wtf8::to_wide(&current), wtf8::to_wide(br"Z:\usr\share"));
        let place =
            Place { base: &current, drive_bases: &[br"Z:\usr\share"], devices: Devices::Windows10 };
        let wide_place = Place { base: &wide, drive_bases: &[&zed], devices: Devices::Windows10 };
        let (mut random, mut compared) = (Random::from_environment(), 0);
        let (mut excepted, mut of_host) = (BTreeMap::new(), 0_u64);
        while compared < setting("THRUWAY_CASES", CASES) {
            let name = name(&mut random, &TOKENS).replacen(r"\\?\", "//?/", 1);
            if let Some(reason) = error_of_wine(&name) {
                *excepted.entry(reason).or_insert(0_u64) += 1;
                continue;
            }
            let ours = place.full_path(name.as_bytes());
            let theirs = by_windows(&name);
            if is_of_host(&name, ours.as_deref(), theirs.as_deref()) {
                of_host += 1;
            } else {
                assert_eq!(show(ours.as_deref()), show(theirs.as_deref()), "{name:?}");
            }
            let ours_wide = wide_place
                .full_path(&wtf8::to_wide(name.as_bytes()))
                .map(|units| wtf8::from_wide(&units));
            assert_eq!(ours, ours_wide, "{name:?}");
            compared += 1;
        }
        let report = format!(
            "{compared} names, 0 differences ({of_host} but for the host's drive); excepted: {excepted:?}\n"
        );
        std::io::stdout().write_all(report.as_bytes()).expect("stdout");
        assert!(excepted.values().sum::<u64>() < compared, "most names are compared");
    }

    fn show(path: Option<&[u8]>) -> Option<String> {
        path.map(|path| String::from_utf8_lossy(path).into_owned())
    }

    /// The standard library compares names of variables as the system compares names of files: by
    /// `CompareStringOrdinal`, which uses the same table.
    fn same_to_windows(one: char, other: char) -> bool {
        let mut command = Command::new("none");
        command.env(String::from(one), "").env(String::from(other), "");
        command.get_envs().count() == 1
    }

    #[test]
    fn characters_are_folded_as_the_system_folds_them() {
        let mut different = Vec::new();
        for one in (0x80..=0xFFFF).filter_map(char::from_u32) {
            for other in one.to_uppercase().chain(one.to_lowercase()).filter(|other| *other != one)
            {
                let folded = |character: char| fold(character.to_string().as_bytes()).into_owned();
                if (folded(one) == folded(other)) != same_to_windows(one, other) {
                    different.push(format!("{one}{other} U+{:04X}", u32::from(one)));
                }
            }
        }
        assert_eq!(different, Vec::<String>::new());
    }
}
