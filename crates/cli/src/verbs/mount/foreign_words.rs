//! Translates options of mergerfs and bindfs in fstab into options of `thruway mount`, or into advice.

use std::ffi::OsString;

/// The translation of an option of another program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForeignWord {
    /// The option equals these arguments of `thruway mount`.
    Arguments(Vec<OsString>),
    /// The option requests the behaviour that a mount of Thruway always has, or tunes a part that such a mount lacks.
    Needless,
    /// The option is not supported or has another name. The text is the advice.
    Refused(String),
}

/// The create policies of mergerfs, and their equivalents here.
const POLICIES: [(&str, &str); 19] = [
    ("ff", "first"),
    ("mfs", "most-free"),
    ("lfs", "least-free"),
    ("lus", "least-used"),
    ("lup", "least-filled"),
    ("rand", "random"),
    ("pfrd", "random-by-free"),
    ("epff", "parent-first"),
    ("epmfs", "parent-most-free"),
    ("eplfs", "parent-least-free"),
    ("eplus", "parent-least-used"),
    ("eprand", "parent-random"),
    ("eppfrd", "parent-random-by-free"),
    ("mspmfs", "near-most-free"),
    ("msplfs", "near-least-free"),
    ("msplus", "near-least-used"),
    ("msppfrd", "near-random-by-free"),
    ("erofs", "none"),
    ("mspff", "near-first"),
];

/// Options that have no effect here, whatever their value. Names have dashes, in place of which mergerfs also accepts
/// underscores.
const NEEDLESS: [&str; 62] = [
    "async-read",
    "atomic-o-trunc",
    "attr-timeout",
    "auto-cache",
    "auto-unmount",
    "big-writes",
    "cache.attr",
    "cache.entry",
    "cache.files",
    "cache.files.process-names",
    "cache.negative-entry",
    "cache.open",
    "cache.readdir",
    "cache.statfs",
    "cache.symlinks",
    "cache.writeback",
    "direct-io",
    "direct-io-allow-mmap",
    "dropcacheonclose",
    "export-support",
    "flush-on-close",
    "fsname",
    "func.readdir",
    "fuse-msg-size",
    "gid-cache.expire-timeout",
    "gid-cache.remove-timeout",
    "handle-killpriv",
    "handle-killpriv-v2",
    "hard-remove",
    "inodecalc",
    "kernel-cache",
    "kernel-permissions-check",
    "lazy-umount-mountpoint",
    "log.metrics",
    "max-readahead",
    "multithreaded",
    "negative-timeout",
    "no-splice-move",
    "no-splice-read",
    "no-splice-write",
    "nonempty",
    "parallel-direct-writes",
    "passthrough.max-stack-depth",
    "pin-threads",
    "posix-acl",
    "process-thread-count",
    "process-thread-queue-depth",
    "proxy-ioprio",
    "read-thread-count",
    "readahead",
    "readdir",
    "readdirplus",
    "scheduling-priority",
    "security-capability",
    "splice-move",
    "splice-read",
    "splice-write",
    "statfs-ignore",
    "symlinkify-timeout",
    "sync-read",
    "threads",
    "use-ino",
];

/// Options that with these values request the behaviour of every mount of Thruway.
const ALREADY_SO: [(&str, &[&str]); 15] = [
    ("allow-idmap", &["false"]),
    ("branches-mount-timeout", &["0"]),
    ("branches-mount-timeout-fail", &["true", "false"]),
    ("category.action", &["all", "epall"]),
    ("category.search", &["ff"]),
    ("func.getattr", &["newest", "combined"]),
    ("link-exdev", &["passthrough"]),
    ("debug", &["false"]),
    ("link-cow", &["false"]),
    ("never-forget-nodes", &["false"]),
    ("nfsopenhack", &["off"]),
    ("nullrw", &["false"]),
    ("rename-exdev", &["passthrough"]),
    ("statfs", &["base"]),
    ("symlinkify", &["false"]),
];

/// The functions of the category `action`.
const ACTIONS: [&str; 10] = [
    "func.chmod",
    "func.chown",
    "func.link",
    "func.removexattr",
    "func.rename",
    "func.rmdir",
    "func.setxattr",
    "func.truncate",
    "func.unlink",
    "func.utimens",
];

/// The functions of the category `create`.
const CREATES: [&str; 4] = ["func.create", "func.mkdir", "func.mknod", "func.symlink"];

/// Options that are refused, and their substitutes. The first match applies.
const REFUSED: [(&[&str], &str); 26] = [
    (
        &[
            "category.search",
            "func.access",
            "func.getattr",
            "func.getxattr",
            "func.listxattr",
            "func.open",
            "func.readlink",
        ],
        "the first source that has a name wins, and folders have the newest times: order the sources",
    ),
    (
        &["category.action", "func."],
        "a change is made in every source that has the name; new files go where create= says",
    ),
    (&["branches-mount-timeout"], "missing=wait,missing_timeout=SECONDS,require_mount_point"),
    (&["branches", "srcmounts"], "name the sources in the first field of fstab"),
    (&["mount", "mountpoint"], "name the target in the second field of fstab"),
    (&["config"], "write the options into the line of fstab"),
    (&["log.file"], "log=FILE has the messages of the daemon, but no requests"),
    (&["debug"], "thruway mount status counts the requests of each kind"),
    (&["allow-idmap"], "map_user=SOURCE:SHOWN, map_group=SOURCE:SHOWN"),
    (
        &["never-forget-nodes", "noforget", "nfsopenhack", "remember", "remember-nodes"],
        "handles of files that the kernel has forgotten are stale: export the sources",
    ),
    (&["statfs"], "df shows the sum of all file systems (statfs=base)"),
    (
        &["follow-symlinks"],
        "the kernel shows a folder at one place only; follow_symlinks=regular follows links to files",
    ),
    (
        &["resolve-symlinks"],
        "follow_symlinks=regular, which follows links to files below the sources",
    ),
    (
        &["rename-exdev", "link-exdev"],
        "a rename or link makes the folder on the file's disk instead (make_folders=on)",
    ),
    (&["allow-root"], "allow_other"),
    (&["delete-deny", "rename-deny"], "a policy with the verdict read-only"),
    (
        &["mirror", "mirror-only"],
        "the kernel shows all users the same owners: force_user=USER shows one user",
    ),
    (&["create-as-mounter"], "create_user=USER,create_group=GROUP"),
    (
        &["chown-ignore", "chgrp-ignore", "chmod-ignore"],
        "fixed_changes=ignore ignores changes that force_user=, force_group= and mode= fix",
    ),
    (&["chown-deny", "chgrp-deny", "chmod-deny"], "a policy with the verdict read-only"),
    (&["chmod-filter", "chmod-allow-x"], "create_mode= changes the modes of new files"),
    (&["realistic-permissions"], "mode= changes the modes that are shown"),
    (
        &["link-cow"],
        "a write to one name of a file is a write to all; upper=DIR copies the file first",
    ),
    (&["symlinkify"], "data is moved by the kernel without links (passthrough=on)"),
    (&["nullrw"], "a mount always moves the data"),
    (
        &[
            "hide-hard-links",
            "block-devices-as-files",
            "enable-lock-forwarding",
            "disable-lock-forwarding",
            "ctime-from-mtime",
            "enable-ioctl",
        ],
        "there is nothing of the kind; for locks: locks=shared",
    ),
];

/// Translates an option of mergerfs or bindfs. Returns `None` for any other option.
pub(super) fn translate(name: &str, value: Option<&str>) -> Option<ForeignWord> {
    use ForeignWord::{Needless, Refused};
    let name = &*name.replace('_', "-");
    let is_so = |(known, values): &(&str, &[&str])| {
        *known == name && value.is_some_and(|value| values.contains(&value))
    };
    if NEEDLESS.contains(&name) || ALREADY_SO.iter().any(is_so) {
        return Some(Needless);
    }
    let is_on = !matches!(value, Some("false" | "0" | "off" | "no" | "none"));
    let argument = |text: String| Some(ForeignWord::Arguments(vec![text.into()]));
    if let Some(word) = value.and_then(|value| owners(name, value)) {
        return Some(word);
    }
    match (name, value) {
        (
            "func.getattr" | "func.getxattr" | "func.listxattr" | "func.open" | "func.readlink"
            | "func.access",
            Some("ff"),
        )
        | (
            "no-allow-other" | "create-as-user" | "chown-normal" | "chgrp-normal" | "chmod-normal",
            None,
        ) => return Some(Needless),
        ("minfreespace", Some(bytes)) => return argument(format!("--free-min={bytes}")),
        ("moveonenospc", _) => {
            return argument(format!("--on-full={}", if is_on { "move" } else { "fail" }));
        }
        ("ignorepponrename", _) => {
            return argument(format!("--make-folders={}", if is_on { "on" } else { "off" }));
        }
        ("follow-symlinks", Some("never" | "regular")) => {
            return argument(format!("--follow-symlinks={}", value.unwrap_or_default()));
        }
        ("passthrough.io", Some("off")) => return argument("--passthrough=off".into()),
        ("passthrough.io", Some("ro" | "wo" | "rw")) => return argument("--passthrough=on".into()),
        ("xattr-none", None) => return argument("--xattr=off".into()),
        _ => {}
    }
    if ACTIONS.contains(&name) && matches!(value, Some("all" | "epall")) {
        return Some(Needless);
    }
    // A name that ends in a dot or a dash matches every option with this beginning.
    let matches =
        |known: &&str| *known == name || known.ends_with(['.', '-']) && name.starts_with(*known);
    let refused = REFUSED.iter().find(|(names, _)| names.iter().any(matches))?;
    Some(Refused(refused.1.into()))
}

/// Translates an option of bindfs or libfuse about owners and modes.
fn owners(name: &str, value: &str) -> Option<ForeignWord> {
    let ours = match name {
        "force-user" | "uid" => "force-user",
        "force-group" | "gid" => "force-group",
        "create-for-user" => "create-user",
        "create-for-group" => "create-group",
        "perms" => "mode",
        "create-with-perms" => "create-mode",
        "map" => return Some(owner_map(value)),
        "umask" => return Some(umask(value)),
        "uid-offset" => return Some(offset("map-user", value)),
        "gid-offset" => return Some(offset("map-group", value)),
        _ => return None,
    };
    Some(ForeignWord::Arguments(vec![format!("--{ours}={value}").into()]))
}

/// Translates pairs of owners such as `jo/media:@staff/@users`.
fn owner_map(value: &str) -> ForeignWord {
    let argument = |pair: &str| {
        let (ours, pair) = match pair.strip_prefix('@') {
            Some(pair) => ("map-group", pair),
            None => ("map-user", pair),
        };
        let (source, shown) = pair.split_once('/')?;
        let shown = if ours == "map-group" { shown.strip_prefix('@')? } else { shown };
        Some(format!("--{ours}={source}:{shown}").into())
    };
    let arguments: Option<_> = value.split(':').map(argument).collect();
    let example = "a map is USER/USER or @GROUP/@GROUP, with colons between pairs";
    arguments.map_or_else(|| ForeignWord::Refused(example.into()), ForeignWord::Arguments)
}

/// Translates libfuse's `umask`, which replaces all permissions.
fn umask(value: &str) -> ForeignWord {
    match u32::from_str_radix(value, 8) {
        Ok(mask) if mask <= 0o777 => {
            ForeignWord::Arguments(vec![format!("--mode={:04o}", 0o777 & !mask).into()])
        }
        _ => ForeignWord::Refused("a umask is an octal number such as 022".into()),
    }
}

/// Translates an offset that is added to all users or groups.
fn offset(ours: &str, value: &str) -> ForeignWord {
    match value.parse::<u32>() {
        Ok(0) => ForeignWord::Needless,
        Ok(offset) => {
            let argument = format!("--{ours}=0:{offset}:{}", u32::MAX - offset);
            ForeignWord::Arguments(vec![argument.into()])
        }
        Err(_) => ForeignWord::Refused("map_user=SOURCE:SHOWN:COUNT, map_group= for groups".into()),
    }
}

/// The create policies of mergerfs's functions, of which the last option for each counts. A mount of Thruway has one
/// policy for all of them.
#[derive(Debug, Default)]
pub(super) struct CreatePolicies<'a> {
    policies: [Option<&'a str>; CREATES.len()],
}

impl<'a> CreatePolicies<'a> {
    /// Records an option about new files. Returns `false` for any other option.
    pub(super) fn record(&mut self, name: &str, value: Option<&'a str>) -> bool {
        let Some(policy) = value else { return false };
        if name == "category.create" {
            self.policies = [Some(policy); CREATES.len()];
            return true;
        }
        let function = CREATES.iter().position(|known| *known == name);
        function.inspect(|&function| self.policies[function] = Some(policy)).is_some()
    }

    /// Returns the argument `--create` with the meaning of the recorded policies; `None` if no policy was recorded.
    ///
    /// # Errors
    /// No argument has that meaning, or the functions have different policies. The text is the advice.
    pub(super) fn argument(&self) -> Result<Option<OsString>, String> {
        let mut given = self.policies.iter().flatten();
        let Some(policy) = given.next() else { return Ok(None) };
        if let Some(other) = given.find(|other| *other != policy) {
            return Err(format!(
                "policies {policy} and {other}: files, folders, links and devices are made where one create= says"
            ));
        }
        let ours = match *policy {
            "all" => return Err(no_policy(policy, "create=first")),
            "epall" => return Err(no_policy(policy, "create=parent-first")),
            "newest" => return Err(no_policy(policy, "create=near-first")),
            policy => POLICIES.iter().find(|(theirs, _)| *theirs == policy),
        };
        let (_, ours) = ours.ok_or_else(|| no_policy(policy, "create=, thruway help mount"))?;
        Ok(Some(format!("--create={ours}").into()))
    }
}

fn no_policy(policy: &str, instead: &str) -> String {
    format!("there is no policy {policy}, as a new file is made in one source: {instead}")
}

/// Translates a value of `xattr`.
pub(super) fn xattr(value: &str) -> Option<&'static str> {
    match value {
        "on" | "passthrough" => Some("on"),
        "off" | "nosys" | "noattr" => Some("off"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_mergerfs_become_ours() {
        let argument = |text: &str| Some(ForeignWord::Arguments(vec![text.into()]));
        for (theirs, ours) in POLICIES {
            let mut policies = CreatePolicies::default();
            assert!(policies.record("category.create", Some(theirs)));
            assert_eq!(policies.argument(), Ok(Some(format!("--create={ours}").into())));
        }
        assert_eq!(translate("minfreespace", Some("50G")), argument("--free-min=50G"));
        assert_eq!(translate("moveonenospc", Some("true")), argument("--on-full=move"));
        assert_eq!(translate("moveonenospc", Some("pfrd")), argument("--on-full=move"));
        assert_eq!(translate("moveonenospc", Some("false")), argument("--on-full=fail"));
        assert_eq!(translate("ignorepponrename", Some("false")), argument("--make-folders=off"));
        assert_eq!(translate("cache.files", Some("off")), Some(ForeignWord::Needless));
        assert_eq!(translate("sync", None), None);
    }

    #[test]
    fn the_last_policy_of_each_function_counts_and_all_have_to_agree() {
        let argument = |options: &[(&'static str, &'static str)]| {
            let mut policies = CreatePolicies::default();
            for (name, policy) in options {
                assert!(policies.record(name, Some(policy)));
            }
            policies.argument()
        };
        let most_free = Ok(Some("--create=most-free".into()));
        assert_eq!(argument(&[("func.mkdir", "ff"), ("category.create", "mfs")]), most_free);
        assert_eq!(argument(&[("category.create", "ff"), ("category.create", "mfs")]), most_free);
        assert_eq!(argument(&[("func.create", "mfs"), ("func.symlink", "mfs")]), most_free);
        let refused = argument(&[("category.create", "mfs"), ("func.mkdir", "ff")]).unwrap_err();
        assert!(refused.starts_with("policies mfs and ff: "), "{refused}");
        assert_eq!(argument(&[]), Ok(None));
        let mut policies = CreatePolicies::default();
        assert!(
            !policies.record("func.unlink", Some("ff")) && !policies.record("func.mkdir", None)
        );
    }

    #[test]
    fn what_would_change_the_meaning_is_refused_with_what_replaces_it() {
        for (name, value) in [
            ("category.search", Some("newest")),
            ("func.rename", Some("ff")),
            ("follow-symlinks", Some("all")),
            ("symlinkify", Some("true")),
            ("nullrw", Some("true")),
            ("mirror", Some("jo")),
            ("map", Some("a/b:c")),
            ("map", Some("@a/b")),
            ("umask", Some("rw")),
            ("uid-offset", Some("-5")),
            ("chown-ignore", None),
            ("statfs", Some("full")),
            ("branches-mount-timeout", Some("30")),
        ] {
            assert!(matches!(translate(name, value), Some(ForeignWord::Refused(_))), "{name}");
        }
    }
}
