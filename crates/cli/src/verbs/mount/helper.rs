//! `mount.thruway`: the helper that `mount -t thruway` starts, and therefore fstab and systemd's mount units.
//!
//! `mount.thruway SOURCE[:SOURCE…] TARGET [-sfnv] [-N NAMESPACE] [-o OPTION[,OPTION…]]` (mount(8), "External helpers").
//! Each option becomes an option of `thruway mount`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use thruway_mount::MountRights;

use super::foreign_words::{self, CreatePolicies, ForeignWord};

/// The names under which the binary acts as this helper: for the type that users write, and for the type that the
/// kernel shows.
const NAMES: [&str; 2] = ["mount.thruway", "mount.fuse.thruway"];

/// Options that concern only mount(8) and fstab, or that are the default. `suid` and `dev` are on unless `nosuid` and
/// `nodev` are given.
const FOR_OTHERS: [&str; 20] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "exec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "async",
    "atime",
    "diratime",
    "default_permissions",
];

/// Options with values that are ignored here. The kernel shows some of them for a mount, and mount(8) passes them on
/// when the mount is changed.
const VALUES_FOR_OTHERS: [&str; 5] = ["comment", "user", "uhelper", "user_id", "group_id"];

/// Options that the kernel alone handles when a mount becomes read-only or writable.
const KERNELS: [&str; 7] =
    ["nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "strictatime"];

/// Options of `thruway mount` that map owners or modes.
const OWNER_OPTIONS: [&str; 8] = [
    "map-user",
    "map-group",
    "force-user",
    "force-group",
    "create-user",
    "create-group",
    "mode",
    "create-mode",
];

/// Whether the program's name, the first argument, is the helper's.
pub(crate) fn is_called_by(arguments: &[OsString]) -> bool {
    let program = arguments.first().map(Path::new);
    program.is_some_and(|program| NAMES.iter().any(|name| program.ends_with(name)))
}

/// The request from mount(8) to the helper.
#[derive(Debug)]
pub(crate) enum HelperRequest {
    /// Mounts with these arguments of `thruway`.
    Mount(Vec<OsString>),
    /// Changes an existing mount.
    Remount(Remount),
    /// Does nothing.
    Nothing,
}

/// The changes that are possible while a mount is in use.
#[derive(Debug)]
pub(crate) struct Remount {
    sources: OsString,
    pub(crate) target: PathBuf,
    /// The options for the kernel.
    options: String,
    /// The policy to read again.
    pub(crate) policy: Option<PathBuf>,
}

impl Remount {
    /// Returns the command that makes the mount read-only or writable: mount(8), without a further call of this helper.
    pub(crate) fn command(&self) -> Command {
        let mut mount = Command::new("mount");
        mount.args(["--internal-only", "-o", &self.options]).arg(&self.sources).arg(&self.target);
        mount
    }
}

/// The arguments of a helper.
#[derive(Debug, Default)]
struct Words<'a> {
    places: Vec<&'a OsStr>,
    options: Vec<&'a str>,
    /// Whether the arguments are only checked.
    is_dry: bool,
    /// Whether unknown options are ignored.
    is_sloppy: bool,
}

/// Parses the helper's arguments, for a process with these rights.
///
/// # Errors
/// An option is not known, or a place is missing.
pub(crate) fn translate(
    arguments: &[OsString],
    rights: MountRights,
) -> Result<HelperRequest, String> {
    let words = Words::of(arguments)?;
    let [sources, target] = words.places.as_slice() else {
        return Err(format!("{} takes a source and a target", NAMES[0]));
    };
    let mut translated: Vec<OsString> = vec!["thruway".into(), "mount".into(), "--nonempty".into()];
    words.translate_options(&mut translated, rights)?;
    if words.is_dry {
        return Ok(HelperRequest::Nothing);
    }
    if words.options.contains(&"remount") {
        return Ok(HelperRequest::Remount(words.remount(sources, target)));
    }
    translated.push("--".into());
    translated.extend(split(sources));
    translated.push(OsString::from(target));
    Ok(HelperRequest::Mount(translated))
}

impl<'a> Words<'a> {
    fn of(arguments: &'a [OsString]) -> Result<Self, String> {
        let mut words = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.to_str() {
                Some("-o") => {
                    let text = rest.next().ok_or("-o needs options")?.to_str();
                    let options = text.ok_or("the options are not valid text")?.split(',');
                    words.options.extend(options.filter(|option| !option.is_empty()));
                }
                Some("-N" | "-t") => drop(rest.next()),
                Some("-f") => words.is_dry = true,
                Some("-s") => words.is_sloppy = true,
                Some("-n" | "-v") => {}
                _ => words.places.push(argument),
            }
        }
        Ok(words)
    }

    fn remount(&self, sources: &OsStr, target: &OsStr) -> Remount {
        let is_frozen = self.options.contains(&"frozen");
        let access = if is_frozen || self.options.contains(&"ro") { "ro" } else { "rw" };
        let kept = KERNELS.into_iter().filter(|option| self.options.contains(option));
        let options: Vec<_> = ["remount", access].into_iter().chain(kept).collect();
        let policy = self.options.iter().find_map(|option| option.strip_prefix("policy="));
        Remount {
            sources: sources.into(),
            target: target.into(),
            options: options.join(","),
            policy: policy.map(PathBuf::from),
        }
    }

    fn translate_options(
        &self,
        translated: &mut Vec<OsString>,
        rights: MountRights,
    ) -> Result<(), String> {
        let mut words = Vec::new();
        self.translate_each(&mut words)?;
        // In fstab `suid` and `dev` are the default, and mount(8) does not pass them on. Mapped owners exclude them. So
        // does a lack of rights, as with other file systems.
        let options = [("--suid", "nosuid", rights.suid), ("--dev", "nodev", rights.dev)];
        for (held, unless, is_possible) in options {
            let is_wanted = is_possible && !self.options.contains(&unless);
            if is_wanted && !words.iter().any(is_about_owners) {
                translated.push(held.into());
            }
        }
        translated.append(&mut words);
        Ok(())
    }

    fn translate_each(&self, translated: &mut Vec<OsString>) -> Result<(), String> {
        translated.extend(self.access_times().map(|when| format!("--atime={when}").into()));
        let mut policies = CreatePolicies::default();
        for option in &self.options {
            if let Some(word) = translate_option(option) {
                translated.extend(word);
                continue;
            }
            let (name, value) = split_value(option);
            if policies.record(name, value) {
                continue;
            }
            match foreign_words::translate(name, value) {
                Some(ForeignWord::Arguments(words)) => translated.extend(words),
                Some(ForeignWord::Needless) => {}
                Some(ForeignWord::Refused(instead)) => {
                    return Err(format!("option {option}: {instead}"));
                }
                None if self.is_sloppy => {}
                None => return Err(format!("unknown option {option}")),
            }
        }
        translated.extend(policies.argument()?);
        Ok(())
    }

    fn access_times(&self) -> Option<&'static str> {
        [
            ("noatime", "never"),
            ("nodiratime", "files"),
            ("strictatime", "always"),
            ("relatime", "relative"),
        ]
        .into_iter()
        .find_map(|(option, when)| self.options.contains(&option).then_some(when))
    }
}

/// Whether the argument maps owners or modes.
fn is_about_owners(argument: &OsString) -> bool {
    let text = argument.to_string_lossy();
    let name = text.trim_start_matches("--").split('=').next().unwrap_or_default();
    OWNER_OPTIONS.contains(&name)
}

fn split_value(option: &str) -> (&str, Option<&str>) {
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    }
}

/// Translates an option into an argument of `thruway mount`, if the option needs one. `None` means "not known".
fn translate_option(option: &str) -> Option<Option<OsString>> {
    let (name, value) = split_value(option);
    Some(match (name, value) {
        _ if name.starts_with("x-") || name.starts_with("X-") => None,
        ("remount", None) => None,
        (_, Some(_)) if VALUES_FOR_OTHERS.contains(&name) => None,
        (_, None) if FOR_OTHERS.contains(&name) || KERNELS.contains(&name) && name != "noexec" => {
            None
        }
        ("ro", None) => Some("--read-only".into()),
        ("noexec", None) => Some("--no-exec".into()),
        ("xattr", Some(value)) => Some(format!("--xattr={}", foreign_words::xattr(value)?).into()),
        ("frozen" | "allow_other" | "require_mount_point", None) => {
            Some(format!("--{}", name.replace('_', "-")).into())
        }
        (
            "create" | "passthrough" | "transport" | "locks" | "changes" | "entry_timeout"
            | "attribute_timeout" | "log" | "policy" | "free_min" | "on_full" | "make_folders"
            | "missing" | "missing_timeout" | "require_marker" | "sources" | "map_user"
            | "map_group" | "force_user" | "force_group" | "create_user" | "create_group" | "mode"
            | "create_mode" | "fixed_changes" | "follow_symlinks" | "upper",
            Some(value),
        ) => Some(format!("--{}={value}", name.replace('_', "-")).into()),
        _ => return None,
    })
}

/// Splits the single field that fstab has for the source: colons separate several sources.
fn split(sources: &OsStr) -> Vec<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let each = sources.as_bytes().split(|&byte| byte == b':');
    each.map(|source| OsString::from_vec(source.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        translated_with(line, MountRights { suid: true, dev: true })
    }

    fn translated_with(line: &str, rights: MountRights) -> Result<String, String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words: Vec<OsString> = match translate(&arguments, rights)? {
            HelperRequest::Mount(words) => words,
            HelperRequest::Remount(remount) => {
                let mut words = vec![OsString::from("mount")];
                words.extend(remount.command().get_args().map(OsString::from));
                words.extend(remount.policy.map(|path| format!("and {}", path.display()).into()));
                words
            }
            HelperRequest::Nothing => vec!["nothing".into()],
        };
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    fn assert_translated(line: &str, expected: &str) {
        assert_eq!(translated(line), Ok(expected.into()), "{line}");
    }

    #[test]
    fn a_line_of_fstab_becomes_arguments() {
        assert_translated(
            "/a:/b /merged -o rw,frozen,allow_other,entry_timeout=5,x-systemd.automount",
            "thruway mount --nonempty --suid --dev --frozen --allow-other --entry-timeout=5 -- /a /b /merged",
        );
        assert_translated("/a /b -s -n -v -N 5", "thruway mount --nonempty --suid --dev -- /a /b");
        assert_translated("/a /b -o rw,nosuid,nodev", "thruway mount --nonempty -- /a /b");
        assert_translated(
            "/a /b -o defaults,user=jo,noexec,nosuid,nodev,_netdev,nofail,comment=x,X-mount.mkdir,ro",
            "thruway mount --nonempty --no-exec --read-only -- /a /b",
        );
    }

    #[test]
    fn set_user_id_and_devices_are_asked_for_where_they_are_possible() {
        let with = |suid, dev| translated_with("/a /b", MountRights { suid, dev }).unwrap();
        assert_eq!(with(true, true), "thruway mount --nonempty --suid --dev -- /a /b");
        assert_eq!(with(true, false), "thruway mount --nonempty --suid -- /a /b");
        assert_eq!(with(false, false), "thruway mount --nonempty -- /a /b");
    }

    #[test]
    fn access_times_are_as_the_strictest_option_says() {
        let with = |when: &str| format!("thruway mount --nonempty --atime={when} -- /a /b");
        assert_translated("/a /b -o nosuid,nodev,noatime,nodiratime", &with("never"));
        assert_translated("/a /b -o nosuid,nodev,nodiratime", &with("files"));
        assert_translated("/a /b -o nosuid,nodev,relatime", &with("relative"));
        assert_translated("/a /b -o nosuid,nodev,strictatime", &with("always"));
    }

    #[test]
    fn a_mount_is_made_read_only_or_writable_by_the_kernel_and_its_policy_is_read_again() {
        assert_translated(
            "/a /b -o rw,nosuid,user_id=0,group_id=0,default_permissions,allow_other,remount,ro",
            "mount --internal-only -o remount,ro,nosuid /a /b",
        );
        assert_translated(
            "/a /b -o remount,policy=/p.toml,noatime",
            "mount --internal-only -o remount,rw,noatime /a /b and /p.toml",
        );
        assert_translated("/a /b -o remount,frozen", "mount --internal-only -o remount,ro /a /b");
    }

    #[test]
    fn a_line_of_mergerfs_becomes_one_of_ours() {
        assert_translated(
            "/mnt/disk*:/mnt/old=NC,50G /all -o category.create=mfs,minfreespace=2G,moveonenospc=true,\
             cache.files=off,func.getattr=newest,xattr=passthrough,fsname=pool",
            "thruway mount --nonempty --suid --dev --free-min=2G --on-full=move --xattr=on --create=most-free \
             -- /mnt/disk* /mnt/old=NC,50G /all",
        );
        assert_translated(
            "/a /b -o nosuid,nodev,follow-symlinks=regular,follow_symlinks=never",
            "thruway mount --nonempty --follow-symlinks=regular --follow-symlinks=never -- /a /b",
        );
        assert_translated(
            "/a:/b /c -o nosuid,nodev,missing=wait,missing_timeout=5,require_mount_point",
            "thruway mount --nonempty --missing=wait --missing-timeout=5 --require-mount-point -- /a /b /c",
        );
        assert_translated(
            "/a /b -o map=jo/media:@staff/@users,perms=0644:a+D,create-for-user=5,uid-offset=7,nodev",
            "thruway mount --nonempty --map-user=jo:media --map-group=staff:users --mode=0644:a+D --create-user=5 \
             --map-user=0:7:4294967288 -- /a /b",
        );
        assert_translated(
            "/a /b -o force_user=jo,force_group=5,create_mode=g+w,fixed_changes=ignore,umask=027",
            "thruway mount --nonempty --force-user=jo --force-group=5 --create-mode=g+w --fixed-changes=ignore \
             --mode=0750 -- /a /b",
        );
        let refused = translated("/a:/b /c -s -o category.search=newest").unwrap_err();
        assert!(
            refused.starts_with("option category.search=newest: the first source"),
            "{refused}"
        );
    }

    #[test]
    fn a_dry_run_does_nothing() {
        assert_translated("/a /b -f -o frozen", "nothing");
        assert_eq!(translated("/a /b -f -o sync"), Err("unknown option sync".into()));
    }

    #[test]
    fn what_is_not_known_is_refused_unless_it_may_be_passed_over() {
        assert_eq!(translated("/a /b -o sync"), Err("unknown option sync".into()));
        assert_eq!(translated("/a /b -o noatime=5"), Err("unknown option noatime=5".into()));
        assert_translated("/a /b -s -o sync", "thruway mount --nonempty --suid --dev -- /a /b");
        assert!(translated("/a").is_err());
        assert!(translated("/a /b -o").is_err());
    }
}
