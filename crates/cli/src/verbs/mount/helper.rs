//! `mount.thruway`: what `mount -t thruway` starts, and so fstab and systemd's mount units.
//!
//! `mount.thruway SOURCE[:SOURCE…] TARGET [-sfnv] [-N NAMESPACE] [-o OPTION[,OPTION…]]` (mount(8),
//! "External helpers"). Each option becomes one of `thruway mount`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The names under which the binary is this helper: of the type that people write, and of the one that the
/// kernel shows.
const NAMES: [&str; 2] = ["mount.thruway", "mount.fuse.thruway"];

/// Options that are for mount(8) and fstab alone.
const FOR_OTHERS: [&str; 12] = [
    "defaults", "rw", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev",
    "nofail", "exec",
];

/// Whether these arguments, the program's name first, are the helper's.
pub(crate) fn is_called_by(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new);
    program.is_some_and(|program| NAMES.iter().any(|name| program.ends_with(name)))
}

/// What the helper is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// These arguments of `thruway`.
    Mount(Vec<OsString>),
    /// A mount shall be read-only: the kernel sees to that alone.
    Remount(Command),
}

/// What these arguments of the helper ask for.
///
/// # Errors
/// An option that is not known, or a place that is missing.
pub(crate) fn translate(arguments: &[OsString]) -> Result<Asked, String> {
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => {
                let text = rest.next().ok_or("-o needs options")?.to_str();
                options.extend(text.ok_or("the options are no text")?.split(','));
            }
            Some("-N" | "-t") => drop(rest.next()),
            Some("-f") => return Err("a dry run is not supported".into()),
            Some("-s" | "-n" | "-v") => {}
            _ => places.push(argument),
        }
    }
    let [sources, target] = places.as_slice() else {
        return Err(format!("{} takes a source and a target", NAMES[0]));
    };
    if options.contains(&"remount") {
        return remount(&options, sources, target).map(Asked::Remount);
    }
    let mut translated: Vec<OsString> = vec!["thruway".into(), "mount".into(), "--nonempty".into()];
    translate_options(&options, &mut translated)?;
    translated.push("--".into());
    translated.extend(split(sources));
    translated.push(OsString::from(target));
    Ok(Asked::Mount(translated))
}

/// mount(8), told not to ask us again.
fn remount(options: &[&str], sources: &OsStr, target: &OsStr) -> Result<Command, String> {
    if !options.contains(&"ro") {
        return Err(
            "a mount can be made read-only; unmount it, and mount it anew for the rest".into()
        );
    }
    // The kernel refuses to change anything else.
    let kept = ["remount", "ro", "nosuid", "nodev", "noexec"];
    let options: Vec<_> = kept.into_iter().filter(|option| options.contains(option)).collect();
    let mut mount = Command::new("mount");
    mount.arg("--internal-only").arg("-o").arg(options.join(",")).arg(sources).arg(target);
    Ok(mount)
}

/// fstab has one field for the source: several stand with colons between them.
fn split(sources: &OsStr) -> Vec<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let each = sources.as_bytes().split(|&byte| byte == b':');
    each.map(|source| OsString::from_vec(source.to_vec())).collect()
}

fn translate_options(options: &[&str], translated: &mut Vec<OsString>) -> Result<(), String> {
    // In fstab they hold unless the opposite is said, and mount(8) does not pass them on.
    for (held, unless) in [("--suid", "nosuid"), ("--dev", "nodev")] {
        if !options.contains(&unless) {
            translated.push(held.into());
        }
    }
    for &option in options.iter().filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            _ if FOR_OTHERS.contains(&option) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") || name == "comment" => {}
            ("suid" | "nosuid" | "dev" | "nodev", None) => {}
            ("ro", None) => translated.push("--read-only".into()),
            ("noexec", None) => translated.push("--no-exec".into()),
            ("frozen" | "allow_other", None) => {
                translated.push(format!("--{}", name.replace('_', "-")).into());
            }
            (
                "create" | "passthrough" | "transport" | "xattr" | "locks" | "entry_timeout"
                | "attribute_timeout" | "log" | "policy",
                Some(value),
            ) => {
                translated.push(format!("--{}={value}", name.replace('_', "-")).into());
            }
            _ => return Err(format!("no option {option}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = match translate(&arguments)? {
            Asked::Mount(words) => words,
            Asked::Remount(command) => {
                let arguments = command.get_args().map(OsString::from);
                [OsString::from("mount")].into_iter().chain(arguments).collect()
            }
        };
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn a_line_of_fstab_becomes_arguments() {
        assert_eq!(
            translated("/a:/b /merged -o rw,frozen,allow_other,entry_timeout=5,x-systemd.automount"),
            Ok("thruway mount --nonempty --suid --dev --frozen --allow-other --entry-timeout=5 -- /a /b /merged"
                .into())
        );
        assert_eq!(
            translated("/a /b -s -n -v -N 5"),
            Ok("thruway mount --nonempty --suid --dev -- /a /b".into())
        );
        assert_eq!(
            translated("/a /b -o rw,nosuid,nodev"),
            Ok("thruway mount --nonempty -- /a /b".into())
        );
    }

    #[test]
    fn a_mount_is_made_read_only_by_the_kernel_alone() {
        assert_eq!(
            translated("/a /b -o rw,nosuid,create=first,remount,ro"),
            Ok("mount --internal-only -o remount,ro,nosuid /a /b".into())
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(translated("/a /b -o sync"), Err("no option sync".into()));
        assert!(translated("/a /b -o remount,rw").is_err());
        assert!(translated("/a").is_err());
        assert!(translated("/a /b -o").is_err());
    }
}
