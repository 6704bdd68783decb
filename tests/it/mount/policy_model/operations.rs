//! Runs one operation after another on a mount and on its model.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags,
};
use rustix::io::{self, Errno};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use thruway_sys::map::ReadOnlyMap;

use super::super::differential::Numbers;
use super::mapper::Mapper;
use super::rules::{USERS, User};
use super::tree::{Kind, Node, OperationResult, Place, Tree};

/// The target of all symbolic links.
pub(super) const NOWHERE: &str = "/nowhere at all";

const FOLDERS: [&str; 7] = ["", "d", "e", ".w", "d/e", "e/d", "d/.w"];
const NAMES: [&str; 8] = ["a", "s", ".h", "x.k", "b", "d", "e", ".w"];
/// The names from which the paths below a moved folder are combined.
const BELOW: [&str; 6] = ["a", "s", ".h", "x.k", "d", "e"];
/// The time after which a change gets a new stamp.
const SETTLED: Duration = Duration::from_millis(25);
/// The kinds of operations in a sequence about maps.
const OF_MAPS: [u64; 10] = [30, 30, 31, 32, 33, 33, 33, 33, 5, 20];
const SLOTS: u64 = 2;
const KINDS: u64 = 34;

/// An operation without its objects.
#[derive(Debug)]
pub(super) struct Step {
    kind: u64,
    user: User,
    place: Place,
    other: Place,
    slot: usize,
    byte: u8,
}

impl Step {
    /// Chooses an operation at random, mostly on an existing file.
    pub(super) fn random(numbers: &mut Numbers, tree: &Tree<'_>, is_of_maps: bool) -> Self {
        let all = FOLDERS.iter().flat_map(|folder| NAMES.iter().map(move |name| (*folder, *name)));
        let mut there: Vec<Place> = all.filter(|place| tree.has(*place)).collect();
        if is_of_maps && there.iter().any(|place| tree.rules.look_into(&tree.path(*place))) {
            there.retain(|place| tree.rules.look_into(&tree.path(*place)));
        }
        let place = |numbers: &mut Numbers, is_there: bool| match is_there && !there.is_empty() {
            true => numbers.of(&there),
            false => (numbers.of(&FOLDERS), numbers.of(&NAMES)),
        };
        let kind = if is_of_maps { numbers.of(&OF_MAPS) } else { numbers.below(KINDS) };
        let is_made = (15..=17).contains(&kind);
        let one_is = numbers.below(8) > if is_made { 6 } else { 0 };
        let other_is = numbers.below(3) == 0;
        Self {
            kind,
            user: numbers.of(&[USERS[0], USERS[1], USERS[1], USERS[2], USERS[2]]),
            place: place(numbers, one_is),
            other: place(numbers, other_is),
            slot: usize::try_from(numbers.below(SLOTS)).unwrap(),
            byte: numbers.of(b"S.xy"),
        }
    }

    /// Returns the data to write.
    fn data(&self) -> Vec<u8> {
        vec![self.byte; 1 + self.slot * 4]
    }
}

/// A file that is kept open.
struct Slot {
    file: OwnedFd,
    node: usize,
    opener: User,
    flags: OFlags,
}

pub(super) struct Sequence<'a> {
    pub(super) tree: Tree<'a>,
    /// A secret that a user has read without the right to.
    pub(super) betrayed: Option<u8>,
    root: &'a OwnedFd,
    target: &'a Path,
    slots: [Option<Slot>; SLOTS as usize],
    mapper: Option<&'a mut Mapper>,
    /// The mapped file, its place when it was mapped, and the user who mapped it.
    mapped: Option<(usize, Place, User)>,
}

/// Runs a function as this user, in this thread.
fn acting<T>(user: User, run: impl FnOnce() -> T) -> T {
    let groups: Vec<_> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let change = |uid: u32| {
        set_thread_res_gid(None, Gid::from_raw(uid), None).unwrap();
        set_thread_res_uid(None, Uid::from_raw(uid), None).unwrap();
    };
    set_thread_groups(&groups).unwrap();
    if user.uid != 0 {
        change(user.uid);
    }
    let done = run();
    if user.uid != 0 {
        set_thread_res_uid(None, Uid::ROOT, None).unwrap();
        change(0);
    }
    done
}

fn read_all(file: &OwnedFd) -> OperationResult {
    let mut buffer = [0; 64];
    let length = io::pread(file, &mut buffer, 0)?;
    Ok(buffer[..length].to_vec())
}

impl<'a> Sequence<'a> {
    pub(super) fn new(
        tree: Tree<'a>,
        root: &'a OwnedFd,
        target: &'a Path,
        mapper: Option<&'a mut Mapper>,
    ) -> Self {
        let slots = [const { None }; SLOTS as usize];
        Self { tree, betrayed: None, root, target, slots, mapper, mapped: None }
    }

    fn path(&self, place: Place) -> String {
        self.tree
            .path(place)
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
            .join("/")
    }

    fn open(&self, step: &Step, place: Place, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mode = Mode::from_raw_mode(0o666);
        acting(step.user, || fs::openat(self.root, self.path(place), flags | OFlags::CLOEXEC, mode))
    }

    /// Returns the result of the mount, and the expected result.
    pub(super) fn run(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        match step.kind {
            0..=4 => self.read(step),
            5..=8 => self.write(step),
            9 | 10 => self.keep(step),
            11..=14 => self.slot(step),
            15..=17 => self.make(step),
            18..=22 => self.rename(step),
            23 => self.link(step),
            24 => self.remove(step),
            25 => self.attributes(step),
            26 => self.look(step),
            27 => self.copy(step),
            28 => self.nameless(step),
            30 => self.map(step),
            31 | 32 => self.write_mapped(step),
            33 => {
                let place = self.mapped.map_or(step.place, |(_, place, _)| place);
                self.read(&Step { place, ..*step })
            }
            _ => self.list(step),
        }
    }

    fn check(&mut self, user: User, said: &OperationResult) {
        if let Ok(data) = said {
            self.betrayed = self.betrayed.or(self.tree.betrayed(user, data));
        }
    }

    fn read(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let said = self.open(step, step.place, OFlags::RDONLY).and_then(|file| {
            if fs::fstat(&file)?.st_mode & 0o170_000 == FileType::Directory.as_raw_mode() {
                return Ok(b"folder".to_vec());
            }
            if step.slot == 0 {
                return read_all(&file);
            }
            Ok(ReadOnlyMap::new(&File::from(file)).unwrap().to_vec())
        });
        let node = self.tree.open(step.user, step.place, (true, false), false);
        let expected = node.map(|node| match self.tree.nodes[node].is_folder() {
            true => b"folder".to_vec(),
            false => self.tree.data(node),
        });
        self.check(step.user, &said);
        (said, expected)
    }

    /// Writes all anew, or a part, by a name.
    fn write(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (is_cut, data) = (step.kind.is_multiple_of(2), step.data());
        let flags = if is_cut { OFlags::WRONLY | OFlags::TRUNC } else { OFlags::WRONLY };
        let said = self.open(step, step.place, flags).and_then(|file| {
            io::pwrite(&file, &data, 0)?;
            Ok(Vec::new())
        });
        let node = self.tree.open(step.user, step.place, (false, true), is_cut);
        let expected = node.map(|node| {
            self.patch(step.user, node, &data);
            Vec::new()
        });
        (said, expected)
    }

    fn patch(&mut self, user: User, node: usize, data: &[u8]) {
        let mut all = self.tree.data(node);
        let length = all.len().max(data.len());
        all.resize(length, 0);
        all[..data.len()].copy_from_slice(data);
        self.tree.set_data(user, node, all);
    }

    /// Opens a file and keeps it open.
    fn keep(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let flags = match step.byte {
            b'S' => OFlags::RDONLY,
            b'.' => OFlags::RDWR,
            b'x' => OFlags::WRONLY | OFlags::APPEND,
            _ => OFlags::PATH,
        };
        let opened = self.open(step, step.place, flags);
        let access =
            (!flags.contains(OFlags::WRONLY), flags.intersects(OFlags::WRONLY | OFlags::RDWR));
        let node = match flags == OFlags::PATH {
            true => self.tree.followed(step.user, step.place),
            false => self.tree.open(step.user, step.place, access, false),
        };
        let (said, expected) = (opened.as_ref().map(|_| Vec::new()), node.map(|_| Vec::new()));
        let both = (said.map_err(|errno| *errno), expected);
        if let (Ok(file), Ok(node)) = (opened, node)
            && !self.tree.nodes[node].is_folder()
        {
            self.slots[step.slot] = Some(Slot { file, node, opener: step.user, flags });
        }
        both
    }

    /// Uses a file that is kept open, as any user. The rights of its opener count.
    fn slot(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let Some(slot) = &self.slots[step.slot] else { return (Ok(Vec::new()), Ok(Vec::new())) };
        let (node, opener, flags) = (slot.node, slot.opener, slot.flags);
        let (is_path, writes) = (flags == OFlags::PATH, flags == OFlags::RDWR);
        match step.kind {
            11 => {
                let said = acting(step.user, || read_all(&slot.file));
                let reads = !is_path && !flags.contains(OFlags::WRONLY);
                let expected = if reads { Ok(self.tree.data(node)) } else { Err(Errno::BADF) };
                // The opener has passed the file on.
                self.check(opener, &said);
                (said, expected)
            }
            12 => {
                let said = acting(step.user, || match step.byte {
                    b'S' => fs::ftruncate(&slot.file, 2).map(|()| Vec::new()),
                    _ => io::pwrite(&slot.file, &[step.byte], 0).map(|_| Vec::new()),
                });
                if !writes {
                    // Appending writes elsewhere, and what is not open for writing says so by several errors.
                    return match flags.contains(OFlags::WRONLY) {
                        true => self.appended(step, opener, said, node),
                        false => (Ok(vec![u8::from(said.is_err())]), Ok(vec![1])),
                    };
                }
                let mut data = self.tree.data(node);
                data.resize(if step.byte == b'S' { 2 } else { data.len().max(1) }, 0);
                if step.byte != b'S' {
                    data[0] = step.byte;
                }
                self.tree.set_data(opener, node, data);
                (said, Ok(Vec::new()))
            }
            13 => self.reopen(step, node),
            _ => {
                self.slots[step.slot] = None;
                (Ok(Vec::new()), Ok(Vec::new()))
            }
        }
    }

    fn appended(
        &mut self,
        step: &Step,
        opener: User,
        said: OperationResult,
        node: usize,
    ) -> (OperationResult, OperationResult) {
        let mut data = self.tree.data(node);
        match step.byte {
            b'S' => data.resize(2, 0),
            byte => data.push(byte),
        }
        self.tree.set_data(opener, node, data);
        (said, Ok(Vec::new()))
    }

    /// Reopens the file that a descriptor names. No name is used, so the names of the file count.
    fn reopen(&mut self, step: &Step, node: usize) -> (OperationResult, OperationResult) {
        let Some(slot) = &self.slots[step.slot] else { return (Ok(Vec::new()), Ok(Vec::new())) };
        let path = format!("/proc/self/fd/{}", slot.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let said = acting(step.user, || read_all(&fs::open(path, flags, Mode::empty())?));
        self.check(step.user, &said);
        let Some(place) = self.name_of(0, &[], node) else {
            return (Ok(Vec::new()), Ok(Vec::new()));
        };
        if self.tree.nodes[node].is_crossed {
            // The mount may use the name that this thread used last, or all names, so only secrets are checked.
            return (Ok(Vec::new()), Ok(Vec::new()));
        }
        let place = (place.0.as_str(), place.1.as_str());
        let judged = self.tree.judge(step.user, place, (true, false), Some(node));
        (said, judged.map(|()| self.tree.data(node)))
    }

    /// Returns a name of the node: its folder, and the name in the folder.
    fn name_of(&self, folder: usize, path: &[&str], node: usize) -> Option<(String, String)> {
        let Kind::Folder(children) = &self.tree.nodes[folder].kind else { return None };
        children.iter().find_map(|(name, &child)| match child == node {
            true => Some((path.join("/"), name.clone())),
            false => self.name_of(child, &[path, &[name]].concat(), node),
        })
    }

    fn make(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (path, data) = (self.path(step.place), step.data());
        let said = match step.kind {
            15 => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                self.open(step, step.place, flags)
                    .and_then(|file| io::pwrite(file, &data, 0).map(drop))
            }
            16 => acting(step.user, || fs::mkdirat(self.root, path, Mode::from_raw_mode(0o777))),
            _ => acting(step.user, || fs::symlinkat(NOWHERE, self.root, path)),
        };
        let kind = match step.kind {
            15 => Kind::File(data),
            16 => Kind::Folder(Default::default()),
            _ => Kind::Link,
        };
        let made = self.tree.make(step.user, step.place, kind);
        (said.map(|()| Vec::new()), made.map(|_| Vec::new()))
    }

    fn rename(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let flags = match step.kind {
            18 => RenameFlags::EXCHANGE,
            19 => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        let (old, new) = (self.path(step.place), self.path(step.other));
        let said = acting(step.user, || {
            fs::renameat_with(self.root, old, self.root, new, flags).map(|()| Vec::new())
        });
        let expected = self.renamed(step, flags, said.is_ok());
        (said, expected)
    }

    /// Returns the expected result of a rename. The mount may refuse more than the rules demand, but not less, hence
    /// `was_done`.
    fn renamed(&mut self, step: &Step, flags: RenameFlags, was_done: bool) -> OperationResult {
        let (user, from, to) = (step.user, step.place, step.other);
        let (old, new) = (self.tree.find(user, from)?, self.tree.find(user, to)?);
        let node = old.node.ok_or(Errno::NOENT)?;
        let is_exchange = flags == RenameFlags::EXCHANGE;
        match new.node {
            Some(_) if flags == RenameFlags::NOREPLACE => return Err(Errno::EXIST),
            None if is_exchange => return Err(Errno::NOENT),
            _ => {}
        }
        let (old_path, new_path) = (self.path(from), self.path(to));
        if new_path.starts_with(&format!("{old_path}/")) {
            return Err(Errno::INVAL);
        }
        if new.node.is_some() && old_path.starts_with(&format!("{new_path}/")) {
            return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if new.node == Some(node) {
            return Ok(Vec::new());
        }
        let is_folder = self.tree.nodes[node].is_folder();
        let replaces_folder = new.node.map(|node| self.tree.nodes[node].is_folder());
        match (is_folder, replaces_folder) {
            (false, Some(true)) if !is_exchange => return Err(Errno::ISDIR),
            (true, Some(false)) if !is_exchange => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.tree.judge(user, from, (false, true), Some(node))?;
        self.tree.judge(user, to, (false, true), new.node)?;
        self.check_rules(
            step,
            is_folder || is_exchange && replaces_folder == Some(true),
            was_done,
            node,
        )?;
        self.tree.touch(user, node);
        if let (true, Some(other)) = (is_exchange, new.node) {
            self.tree.touch(user, other);
            self.tree.take(new.folder, to.1);
            self.tree.take(old.folder, from.1);
            self.tree.put(old.folder, from.1, other);
        } else {
            if let Some(other) = new.node
                && let Kind::Folder(children) = &self.tree.nodes[other].kind
                && !children.is_empty()
            {
                return Err(Errno::NOTEMPTY);
            }
            self.tree.take(new.folder, to.1);
            self.tree.take(old.folder, from.1);
        }
        self.tree.put(new.folder, to.1, node);
        Ok(Vec::new())
    }

    /// Checks whether other rules apply to the renamed tree at its new place.
    fn check_rules(
        &self,
        step: &Step,
        is_folder: bool,
        was_done: bool,
        node: usize,
    ) -> Result<(), Errno> {
        let rules = self.tree.rules;
        let (old, new) = (self.tree.path(step.place), self.tree.path(step.other));
        let is_same = match is_folder {
            false => rules.are_same(&old, &new),
            true => below().all(|below| {
                rules.are_same(&[&old[..], &below].concat(), &[&new[..], &below].concat())
            }),
        };
        let may_be_done = !is_folder
            && step.kind != 18
            && self.tree.nodes[node].names == 1
            && rules.is_stricter_for_others(step.user, &old, &new);
        if is_same || was_done && may_be_done { Ok(()) } else { Err(Errno::XDEV) }
    }

    fn link(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (old, new) = (self.path(step.place), self.path(step.other));
        let said =
            acting(step.user, || fs::linkat(self.root, old, self.root, new, AtFlags::empty()));
        (said.map(|()| Vec::new()), self.linked(step))
    }

    fn linked(&mut self, step: &Step) -> OperationResult {
        let (user, from, to) = (step.user, step.place, step.other);
        let node = self.tree.get(user, from)?;
        let new = self.tree.find(user, to)?;
        if new.node.is_some() {
            return Err(Errno::EXIST);
        }
        let one = &self.tree.nodes[node];
        let is_protected = self.tree.protects_links && user.uid != 0 && user.uid != one.owner;
        if one.is_folder() || is_protected && matches!(one.kind, Kind::Link) {
            return Err(Errno::PERM);
        }
        self.tree.judge(user, from, (false, true), Some(node))?;
        self.tree.judge(user, to, (false, true), None)?;
        if !self.tree.rules.are_same(&self.tree.path(from), &self.tree.path(to)) {
            return Err(Errno::XDEV);
        }
        self.tree.touch(user, node);
        self.tree.put(new.folder, to.1, node);
        Ok(Vec::new())
    }

    fn remove(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let is_folder = step.byte == b'S';
        let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let path = self.path(step.place);
        let said = acting(step.user, || fs::unlinkat(self.root, path, flags).map(|()| Vec::new()));
        (said, self.tree.remove(step.user, step.place, is_folder))
    }

    /// Permissions and extended attributes.
    fn attributes(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (user, path) = (step.user, self.path(step.place));
        let name = "user.note";
        let full = self.target.join(&path);
        let found = self.tree.followed(user, step.place);
        let is_folder = found.is_ok_and(|node| self.tree.nodes[node].is_folder());
        let mode = Mode::from_raw_mode(if is_folder { 0o777 } else { 0o666 });
        let said = acting(user, || match step.byte {
            b'S' => fs::chmodat(self.root, &path, mode, AtFlags::empty()).map(|()| Vec::new()),
            b'.' => fs::setxattr(&full, name, &[7], XattrFlags::empty()).map(|()| Vec::new()),
            _ => {
                let mut value = [0; 9];
                fs::getxattr(&full, name, &mut value[..]).map(|length| value[..length].to_vec())
            }
        });
        let access = if matches!(step.byte, b'S' | b'.') { (false, true) } else { (true, false) };
        let expected = found.and_then(|node| {
            let owner = self.tree.nodes[node].owner;
            if step.byte == b'S' && user.uid != 0 && user.uid != owner {
                return Err(Errno::PERM);
            }
            self.tree.judge(user, step.place, access, Some(node))?;
            match step.byte {
                b'S' => Ok(Vec::new()),
                b'.' => {
                    self.tree.nodes[node].attribute = Some(7);
                    Ok(Vec::new())
                }
                _ => self.tree.nodes[node].attribute.map(|value| vec![value]).ok_or(Errno::NODATA),
            }
        });
        (said, expected)
    }

    /// Returns the kind of a name, or the target of a symbolic link.
    fn look(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (user, path) = (step.user, self.path(step.place));
        let found = self.tree.get(user, step.place);
        if step.slot == 0 {
            let said = acting(user, || fs::readlinkat(self.root, &path, Vec::new()));
            let expected = found.and_then(|node| match self.tree.nodes[node].kind {
                Kind::Link => {
                    self.tree.judge(user, step.place, (true, false), None)?;
                    Ok(NOWHERE.as_bytes().to_vec())
                }
                _ => Err(Errno::INVAL),
            });
            return (said.map(std::ffi::CString::into_bytes), expected);
        }
        let stat = acting(user, || fs::statat(self.root, &path, AtFlags::SYMLINK_NOFOLLOW));
        let said = stat.map(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => b"folder".to_vec(),
            FileType::Symlink => b"link".to_vec(),
            _ => vec![u8::try_from(stat.st_size).unwrap(), u8::try_from(stat.st_nlink).unwrap()],
        });
        let expected = found.map(|node| match &self.tree.nodes[node].kind {
            Kind::Folder(_) => b"folder".to_vec(),
            Kind::Link => b"link".to_vec(),
            Kind::File(data) => {
                vec![data.len() as u8, self.tree.nodes[node].names as u8]
            }
        });
        (said, expected)
    }

    /// Copies from one file to another without reading, or by sharing blocks where the file system can.
    fn copy(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (user, clones) = (step.user, step.byte == b'S');
        let from = self.open(step, step.place, OFlags::RDONLY);
        let source = self.tree.open(user, step.place, (true, false), false);
        let (from, source) = match (from, source) {
            (Ok(from), Ok(source)) if !self.tree.nodes[source].is_folder() => (from, source),
            (from, source) => return (from.map(|_| Vec::new()), source.map(|_| Vec::new())),
        };
        let to = self.open(step, step.other, OFlags::WRONLY);
        let target = self.tree.open(user, step.other, (false, true), false);
        let (to, target) = match (to, target) {
            (Ok(to), Ok(target)) if target != source => (to, target),
            (to, target) => return (to.map(|_| Vec::new()), target.map(|_| Vec::new())),
        };
        if clones {
            let cloned = acting(user, || fs::ioctl_ficlone(&to, &from));
            return (Ok(vec![u8::from(cloned.is_ok())]), Ok(vec![0]));
        }
        let copied = acting(user, || fs::copy_file_range(&from, None, &to, None, 64));
        let data = self.tree.data(source);
        self.tree.touch(user, source);
        self.patch(user, target, &data);
        (copied.map(|length| vec![length as u8]), Ok(vec![data.len() as u8]))
    }

    /// Creates a file without a name, and then links it to a name.
    fn nameless(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (user, data, folder) = (step.user, step.data(), step.place.0);
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let made = self.open(step, (folder, ""), flags).and_then(|file| {
            io::pwrite(&file, &data, 0)?;
            Ok(file)
        });
        let judged = self.tree.find(user, (folder, "a"));
        let judged = judged.and_then(|_| self.tree.judge(user, (folder, ""), (false, true), None));
        let (file, ()) = match (made, judged) {
            (Ok(file), Ok(judged)) => (file, judged),
            (made, judged) => return (made.map(|_| Vec::new()), judged.map(|_| Vec::new())),
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let new = self.path(step.other);
        let said = acting(user, || fs::linkat(CWD, path, self.root, new, AtFlags::SYMLINK_FOLLOW));
        let expected = self.named(step, data, said.is_ok());
        (said.map(|()| Vec::new()), expected)
    }

    fn named(&mut self, step: &Step, data: Vec<u8>, was_done: bool) -> OperationResult {
        let (user, from, to) = (step.user, (step.place.0, ""), step.other);
        let new = self.tree.find(user, to)?;
        if new.node.is_some() {
            return Err(Errno::EXIST);
        }
        let rules = self.tree.rules;
        let (old_path, new_path) = (self.tree.path(from), self.tree.path(to));
        rules.judge(user, &old_path, (false, true), super::rules::facts(&data))?;
        rules.judge(user, &new_path, (false, true), None)?;
        let is_same = rules.are_same(&old_path, &new_path);
        if !(is_same || was_done && rules.is_stricter_for_others(user, &old_path, &new_path)) {
            return Err(Errno::XDEV);
        }
        let node = self.tree.add(Node::new(Kind::File(data), user.uid));
        self.tree.put(new.folder, to.1, node);
        Ok(Vec::new())
    }

    /// Maps a file for reading and writing, and closes the file.
    fn map(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let path = self.target.join(self.path(step.place));
        let Some(mapper) = &mut self.mapper else { return (Ok(Vec::new()), Ok(Vec::new())) };
        let found = self.tree.followed(step.user, step.place);
        if found.is_ok_and(|node| self.tree.data(node).is_empty()) {
            // An empty file, and anything but a file, cannot be mapped.
            return (Ok(Vec::new()), Ok(Vec::new()));
        }
        let said = mapper.map(step.user, &path);
        let node = self.tree.open(step.user, step.place, (true, true), false);
        self.mapped = node.ok().map(|node| (node, step.place, step.user));
        if step.slot == 0 && node.is_ok() {
            // From now on, writes to the page do not change times, and the content of the page is settled.
            let first = self.write_mapped(step);
            std::thread::sleep(SETTLED);
            return first;
        }
        (said.map(|()| Vec::new()), node.map(|_| Vec::new()))
    }

    /// Writes through the map. The times do not change if the map was written to before.
    fn write_mapped(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let (Some(mapper), Some((node, _, opener))) = (&mut self.mapper, self.mapped) else {
            return (Ok(Vec::new()), Ok(Vec::new()));
        };
        if self.tree.data(node).is_empty() {
            return (Ok(Vec::new()), Ok(Vec::new()));
        }
        let said = mapper.write(step.byte);
        self.patch(opener, node, &[step.byte]);
        (said.map(|()| Vec::new()), Ok(Vec::new()))
    }

    fn list(&mut self, step: &Step) -> (OperationResult, OperationResult) {
        let folder = step.place.0;
        let opened = self.open(step, (folder, ""), OFlags::RDONLY | OFlags::DIRECTORY);
        let said = opened.and_then(|folder| {
            let mut names = Vec::new();
            for entry in acting(step.user, || Dir::read_from(folder))? {
                names.push(entry?.file_name().to_str().unwrap().to_owned());
            }
            names.retain(|name| name != "." && name != "..");
            names.sort();
            Ok(names.join(" ").into_bytes())
        });
        (said, self.tree.list(step.user, folder))
    }
}

/// Returns all paths below a folder that matter to a pattern.
fn below() -> impl Iterator<Item = Vec<&'static str>> {
    let two = BELOW.iter().flat_map(|one| BELOW.iter().map(|other| vec![*one, *other]));
    [Vec::new()].into_iter().chain(BELOW.iter().map(|one| vec![*one])).chain(two)
}
