//! Holds the table of mergerfs's options in the docs: the helper does what each row says.

use std::collections::BTreeSet;
use std::ffi::OsString;

use thruway_mount::MountRights;

use super::helper::{HelperRequest, translate};

const PAGE: &str = "docs/explanation/mount_peers.md";

/// The options of mergerfs 2.33.5 and 2.42 that may stand in fstab, with dashes for underscores: those that they show
/// as `user.mergerfs.*` or accept without effect, but for `pid` and `version`.
const OPTIONS: &str = "allow-idmap allow-other async-read atomic-o-trunc attr-timeout auto-cache big-writes branches
    branches-mount-timeout branches-mount-timeout-fail cache.attr cache.entry cache.files cache.files.process-names
    cache.negative-entry cache.open cache.readdir cache.statfs cache.symlinks cache.writeback category.action
    category.create category.search config debug defaults direct-io direct-io-allow-mmap dropcacheonclose
    export-support flush-on-close follow-symlinks fsname func.access func.chmod func.chown func.create func.getattr
    func.getxattr func.link func.listxattr func.mkdir func.mknod func.open func.readdir func.readlink func.removexattr
    func.rename func.rmdir func.setxattr func.symlink func.truncate func.unlink func.utimens fuse-msg-size gid
    gid-cache.expire-timeout gid-cache.remove-timeout handle-killpriv handle-killpriv-v2 hard-remove ignorepponrename
    inodecalc kernel-cache kernel-permissions-check lazy-umount-mountpoint link-cow link-exdev log.file log.metrics
    minfreespace mount mountpoint moveonenospc negative-timeout never-forget-nodes nfsopenhack no-splice-move
    no-splice-read no-splice-write noforget nonempty nullrw parallel-direct-writes passthrough.io
    passthrough.max-stack-depth pin-threads posix-acl process-thread-count process-thread-queue-depth proxy-ioprio
    read-thread-count readahead readdirplus remember remember-nodes rename-exdev scheduling-priority
    security-capability splice-move splice-read splice-write srcmounts statfs statfs-ignore symlinkify
    symlinkify-timeout sync-read threads uid umask use-ino xattr";

/// A row of the tables whose first column is an option.
struct Row {
    option: String,
    here: String,
}

fn rows() -> Vec<Row> {
    let path = format!("{}/../../{PAGE}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap();
    let tables = page.split("| option of mergerfs | here | tested |\n").skip(1);
    let lines = tables.flat_map(|table| table.lines().skip(1).take_while(|l| l.starts_with('|')));
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        Row { option: cells[1].trim_matches('`').into(), here: cells[2].into() }
    };
    lines.map(row).collect()
}

/// Returns the arguments of `thruway mount` that the option becomes, or the refusal.
fn translated(option: &str) -> Result<String, String> {
    let line = format!("/a /b -o nosuid,nodev,{option}");
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let HelperRequest::Mount(words) = translate(&words, MountRights { suid: true, dev: true })?
    else {
        return Err("not a mount".into());
    };
    let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let [_, _, _, arguments @ .., "--", "/a", "/b"] = words.as_slice() else {
        return Err(words.join(" "));
    };
    Ok(arguments
        .iter()
        .map(|argument| argument.trim_start_matches("--"))
        .collect::<Vec<_>>()
        .join(" "))
}

/// Returns the first part of a cell, which a test can compare; an explanation may follow.
fn expected(here: &str) -> Result<String, String> {
    if let Some(refusal) = here.strip_prefix("no: ") {
        return Err(refusal.replace('`', ""));
    }
    let is_needless = here.starts_with("always so");
    Ok(if is_needless { String::new() } else { here.split('`').nth(1).unwrap_or("?").into() })
}

#[test]
fn each_row_is_what_the_helper_does() {
    let wrong = |row: &Row| {
        let prefix = format!("option {}: ", row.option);
        let refusal = |error: String| error.strip_prefix(&prefix).unwrap_or(&error).to_owned();
        let found = translated(&row.option).map_err(refusal);
        (found != expected(&row.here)).then(|| format!("{}: {found:?}", row.option))
    };
    let wrong: Vec<_> = rows().iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "rows that differ from the helper:\n{}", wrong.join("\n"));
}

#[test]
fn each_option_of_mergerfs_has_a_row() {
    let rows: BTreeSet<_> = rows()
        .iter()
        .flat_map(|row| row.option.split(',').map(str::to_owned).collect::<Vec<_>>())
        .map(|option| option.split('=').next().unwrap_or_default().replace('_', "-"))
        .collect();
    let missing: Vec<_> = OPTIONS.split_whitespace().filter(|name| !rows.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
