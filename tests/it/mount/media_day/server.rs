//! The programs of a media server: a torrent client, an importer, and a user who tidies up.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::super::differential::Numbers;
use super::super::fixture::Mounted;
use super::super::submounts::Disks;
use super::model::{DISKS, FileId, FileState, Model, PIECE_BYTES, Time, parent};
use super::placement::{Policy, Space};
use super::scanner::Scanner;

pub(super) const INCOMPLETE: &str = "downloads/incomplete";
const COMPLETE: &str = "downloads/complete";
pub(super) const LIBRARY: &str = "library";
const MODES: [u32; 3] = [0o644, 0o640, 0o600];
/// Small files, such as descriptions.
const SMALL_BYTES: u64 = 4096;
/// A file date, by which an importer replaces the time of the download.
const AIRED_SECONDS: u64 = 1_500_000_000;

/// A download. It has one folder.
#[derive(Debug)]
pub(super) struct Torrent {
    number: u64,
    files: Vec<TorrentFile>,
    is_complete: bool,
}

#[derive(Debug)]
struct TorrentFile {
    id: FileId,
    /// Open for as long as the download takes, and while the file is seeded.
    open: Option<File>,
    /// Pieces in the order in which they will arrive.
    missing: Vec<u64>,
}

/// How often each thing happened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) downloads: u64,
    pub(super) imports: u64,
    pub(super) refusals: u64,
    pub(super) moves_when_full: u64,
    pub(super) moves: u64,
    pub(super) outages: u64,
    pub(super) scans: u64,
}

pub(super) struct MediaServer {
    pub(super) mounted: Mounted,
    pub(super) disks: Disks,
    pub(super) numbers: Numbers,
    /// The options of the mount.
    pub(super) arguments: Vec<String>,
    pub(super) seed: u64,
    /// The number of the present step.
    pub(super) at: u64,
    pub(super) model: Model,
    pub(super) policy: Policy,
    pub(super) free_min: u64,
    pub(super) moves_when_full: bool,
    pub(super) torrents: Vec<Torrent>,
    pub(super) scanner: Scanner,
    pub(super) counts: Counts,
    /// The last steps, for the message of a failure.
    pub(super) history: VecDeque<String>,
    pub(super) next: u64,
}

impl MediaServer {
    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.mounted.target(name)
    }

    /// The mount point of a disk.
    pub(super) fn place(&self, disk: usize) -> PathBuf {
        self.mounted.path(super::SOURCES[disk])
    }

    /// A second mount of the disk, at which it can always be read.
    pub(super) fn aside(&self, disk: usize) -> PathBuf {
        self.mounted.path(&format!("of {}", super::SOURCES[disk]))
    }

    pub(super) fn note(&mut self, step: String) {
        if self.history.len() >= 16 {
            self.history.pop_front();
        }
        let step = format!("{}: {step}", self.at);
        self.history.push_back(step);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.numbers.below(limit as u64)).unwrap()
    }

    pub(super) fn choose<T: Clone>(&mut self, all: impl IntoIterator<Item = T>) -> Option<T> {
        let all: Vec<_> = all.into_iter().collect();
        let at = self.below(all.len().max(1));
        all.get(at).cloned()
    }

    pub(super) fn free(&self, disk: usize) -> u64 {
        let space = rustix::fs::statvfs(self.aside(disk)).unwrap();
        space.f_bavail * space.f_frsize
    }

    fn space(&self) -> [u64; DISKS] {
        std::array::from_fn(|disk| self.free(disk))
    }

    /// The space of the disks during an operation that began with the space `before`.
    fn space_since(&self, before: [u64; DISKS]) -> Space {
        let now = self.space();
        std::array::from_fn(|disk| (before[disk].min(now[disk]), before[disk].max(now[disk])))
    }

    /// Finds the disk on which a new name was made, and checks that the policy allows that disk.
    fn check_placed(&self, name: &str, groups: &[Vec<usize>], space: &Space) -> usize {
        let is_new = |&disk: &usize| {
            let known = &self.model.disks[disk];
            let is_known = known.names.contains_key(name) || known.folders.contains(name);
            !is_known && self.aside(disk).join(name).symlink_metadata().is_ok()
        };
        let on: Vec<usize> = (0..DISKS).filter(is_new).collect();
        assert_eq!(on.len(), 1, "{name} is on the disks {on:?}");
        let is_right = self.policy.allows(groups, space, self.free_min, on[0]);
        assert!(is_right, "{name} is on disk {}: {groups:?} {space:?}", on[0]);
        on[0]
    }

    fn check_refused(
        &mut self,
        name: &str,
        error: &io::Error,
        groups: &[Vec<usize>],
        space: &Space,
    ) {
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{name}: {error}");
        let may_refuse = self.policy.may_refuse(groups, space, self.free_min);
        assert!(may_refuse, "{name}: {error}, {groups:?} {space:?}");
        self.counts.refusals += 1;
    }

    /// Makes a folder and those above it, as far as they are missing. Returns whether the folder exists then.
    pub(super) fn make_folder(&mut self, path: &str) -> bool {
        if self.model.shows_folder(path) {
            return true;
        }
        if !self.make_folder(parent(path)) {
            return false;
        }
        let (groups, before) = (self.policy.groups(&self.model, parent(path)), self.space());
        let made = fs::create_dir(self.target(path));
        let space = self.space_since(before);
        match made {
            Ok(()) => {
                let disk = self.check_placed(path, &groups, &space);
                self.model.disks[disk].add_folders(path);
                true
            }
            Err(error) => {
                self.check_refused(path, &error, &groups, &space);
                false
            }
        }
    }

    /// Creates an empty file in a folder that exists.
    fn create(&mut self, name: &str) -> Option<(File, FileId)> {
        let (groups, before) = (self.policy.groups(&self.model, parent(name)), self.space());
        let mode = self.numbers.of(&MODES);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(mode);
        let opened = options.open(self.target(name));
        let space = self.space_since(before);
        match opened {
            Ok(file) => {
                let disk = self.check_placed(name, &groups, &space);
                let id = self.number();
                self.model.disks[disk].add_folders(parent(name));
                self.model.disks[disk].names.insert(name.to_owned(), id);
                self.model.files.insert(id, FileState { number: id, mode, ..FileState::default() });
                Some((file, id))
            }
            Err(error) => {
                self.check_refused(name, &error, &groups, &space);
                None
            }
        }
    }

    /// Notes that a write may have moved the file to another disk.
    fn follow_move(&mut self, id: FileId, space: &Space) {
        let Some((disk, names)) = self.model.places(id) else { return };
        let has_it = |disk: usize| self.aside(disk).join(&names[0]).symlink_metadata().is_ok();
        if has_it(disk) {
            return;
        }
        assert!(self.moves_when_full && names.len() == 1, "{names:?} left disk {disk}");
        let is_known = |other: usize| self.model.disks[other].names.contains_key(&names[0]);
        let on: Vec<usize> = (0..DISKS).filter(|&it| has_it(it) && !is_known(it)).collect();
        assert_eq!(on.len(), 1, "{names:?} moved to the disks {on:?}");
        let mut others =
            self.model.present().into_iter().filter(|&other| other != disk && other != on[0]);
        let has_most = others.all(|other| space[on[0]].1 >= space[other].0);
        assert!(has_most && !self.model.disks[on[0]].is_away, "{names:?}, {on:?} of {space:?}");
        self.model.move_file(id, on[0]);
        self.counts.moves_when_full += 1;
    }

    /// Checks that a write may be refused because the file's disk is full, and no other one can take the file.
    fn check_full(&mut self, id: FileId, length: u64, error: &io::Error, space: &Space) {
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "file {id}: {error}");
        self.counts.refusals += 1;
        let Some((disk, names)) = self.model.places(id) else { return };
        assert!(space[disk].0 < length + SMALL_BYTES, "{names:?} has room: {space:?}");
        if !self.moves_when_full || names.len() > 1 || self.model.disks[disk].is_away {
            return;
        }
        let stat = fs::metadata(self.aside(disk).join(&names[0])).unwrap();
        let needed = stat.blocks() * 512 + length + self.free_min;
        let has_name = |other: usize| self.model.disks[other].names.contains_key(&names[0]);
        let mut others =
            self.model.present().into_iter().filter(|&other| other != disk && !has_name(other));
        assert!(others.all(|other| space[other].0 <= needed), "{names:?} can move: {space:?}");
    }

    /// Writes a piece. Returns whether there was room.
    fn write_piece(&mut self, open: &File, id: FileId, at: u64, length: usize) -> bool {
        let before = self.space();
        let bytes = FileState::piece(id, at);
        let offset = at * PIECE_BYTES as u64;
        let written = open.write_all_at(&bytes[..length], offset);
        let space = self.space_since(before);
        match &written {
            Ok(()) => {
                let state = self.model.files.get_mut(&id).unwrap();
                state.written.insert(at);
                state.torn.remove(&at);
                state.length = state.length.max(offset + length as u64);
            }
            Err(error) => {
                self.check_full(id, length as u64, error, &space);
                let state = self.model.files.get_mut(&id).unwrap();
                state.torn.insert(at);
                state.length = open.metadata().unwrap().len();
            }
        }
        self.follow_move(id, &space);
        written.is_ok()
    }

    /// Begins a download of some files, with or without preallocation.
    pub(super) fn start_torrent(&mut self) {
        let number = self.number();
        let folder = format!("{INCOMPLETE}/torrent {number}");
        self.note(format!("start {folder}"));
        if !self.make_folder(&folder) {
            return;
        }
        let mut torrent = Torrent { number, files: Vec::new(), is_complete: false };
        for at in 0..=self.numbers.below(3) {
            let Some((open, id)) = self.create(&format!("{folder}/file {at}")) else { break };
            let pieces = 1 + self.numbers.below(8);
            self.preallocate(&open, id, pieces * PIECE_BYTES as u64);
            let mut missing: Vec<u64> = (0..pieces).collect();
            for at in (1..missing.len()).rev() {
                let other = self.below(at + 1);
                missing.swap(at, other);
            }
            torrent.files.push(TorrentFile { id, open: Some(open), missing });
        }
        self.counts.downloads += 1;
        self.torrents.push(torrent);
    }

    fn preallocate(&mut self, open: &File, id: FileId, length: u64) {
        let before = self.space();
        let done = match self.numbers.below(3) {
            0 => return,
            1 => open.set_len(length),
            _ => rustix::fs::fallocate(open, FallocateFlags::empty(), 0, length)
                .map_err(io::Error::from),
        };
        let space = self.space_since(before);
        if let Err(error) = &done {
            self.check_full(id, length, error, &space);
        }
        self.follow_move(id, &space);
        self.model.files.get_mut(&id).unwrap().length = open.metadata().unwrap().len();
    }

    /// Takes a torrent that is being downloaded, or one that is complete.
    fn take_torrent(&mut self, is_complete: bool) -> Option<Torrent> {
        let all =
            (0..self.torrents.len()).filter(|&at| self.torrents[at].is_complete == is_complete);
        let at = self.choose(all.collect::<Vec<_>>())?;
        Some(self.torrents.swap_remove(at))
    }

    /// Receives some pieces, checks some, and completes the torrent with its last one.
    pub(super) fn progress(&mut self) {
        let Some(mut torrent) = self.take_torrent(false) else { return self.start_torrent() };
        self.note(format!("progress of torrent {}", torrent.number));
        for _ in 0..=self.numbers.below(8) {
            let unfinished = torrent.files.iter_mut().find(|file| !file.missing.is_empty());
            let Some(file) = unfinished else { break };
            let Some(open) = &file.open else { break };
            let at = file.missing[file.missing.len() - 1];
            if !self.write_piece(open, file.id, at, PIECE_BYTES) {
                break;
            }
            file.missing.pop();
            if self.numbers.below(3) == 0 {
                self.check_piece(file);
            }
        }
        match torrent.files.iter().all(|file| file.missing.is_empty()) {
            true => self.complete(torrent),
            false => self.torrents.push(torrent),
        }
    }

    /// Checks a piece by the open file, and by a name if there is one.
    fn check_piece(&mut self, file: &TorrentFile) {
        let state = self.model.files[&file.id].clone();
        let Some(at) = self.choose(state.written.iter().copied()) else { return };
        let offset = at * PIECE_BYTES as u64;
        let check = |open: &File, by: &str| {
            let length = (state.length - offset).min(PIECE_BYTES as u64);
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            open.read_exact_at(&mut bytes, offset).unwrap_or_else(|error| panic!("{by}: {error}"));
            assert!(state.has_piece(at, &bytes), "piece {at} of file {} by {by}", file.id);
        };
        if let Some(open) = &file.open {
            check(open, "the open file");
        }
        if self.numbers.below(2) == 0
            && let Some(name) = self.shown_name(file.id)
        {
            check(&File::open(self.target(&name)).unwrap(), &name);
        }
    }

    /// A name of the view that leads to this file.
    fn shown_name(&self, id: FileId) -> Option<String> {
        let names = self.model.places(id)?.1;
        names.into_iter().find(|name| self.model.shown(name).is_some_and(|(_, shown)| shown == id))
    }

    /// Closes the files of a torrent, and moves its folder to the complete ones. Some are opened again to be seeded.
    fn complete(&mut self, mut torrent: Torrent) {
        for file in &mut torrent.files {
            self.close(file);
        }
        let from = format!("{INCOMPLETE}/torrent {}", torrent.number);
        let to = format!("{COMPLETE}/torrent {}", torrent.number);
        if !self.model.shows_folder(&from) || !self.make_folder(COMPLETE) {
            // Its disk is away, or there is no room for a folder.
            return;
        }
        self.rename_folder(&from, &to);
        for file in &mut torrent.files {
            if self.numbers.below(2) == 0
                && let Some(name) = self.shown_name(file.id)
            {
                file.open = Some(File::open(self.target(&name)).unwrap());
            }
        }
        torrent.is_complete = true;
        self.torrents.push(torrent);
    }

    /// Renames a folder. After a disk went or came, the rename is the first to look the folders up.
    fn rename_folder(&mut self, from: &str, to: &str) {
        fs::rename(self.target(from), self.target(to)).unwrap();
        self.model.rename_tree(from, to);
    }

    /// Closes a file, after which its times stay.
    fn close(&mut self, file: &mut TorrentFile) {
        file.open = None;
        let stored = self.stored(file.id);
        let state = self.model.files.get_mut(&file.id).unwrap();
        state.modified = state.modified.or_else(|| stored.map(|stat| modified(&stat)));
    }

    /// The attributes that a file has on its disk.
    fn stored(&self, id: FileId) -> Option<fs::Metadata> {
        let (disk, names) = self.model.places(id)?;
        Some(fs::symlink_metadata(self.aside(disk).join(&names[0])).unwrap())
    }

    /// Reads pieces of a torrent that is complete, by its open files too.
    pub(super) fn seed(&mut self) {
        let Some(torrent) = self.take_torrent(true) else { return };
        self.note(format!("seed torrent {}", torrent.number));
        torrent.files.iter().for_each(|file| self.check_piece(file));
        self.torrents.push(torrent);
    }

    /// Links the files of a torrent into the library, whose folder may be on other disks.
    pub(super) fn import(&mut self) {
        let Some(torrent) = self.take_torrent(true) else { return };
        let folder = format!(
            "{LIBRARY}/Show {}/Season {}",
            self.numbers.below(4),
            1 + self.numbers.below(2)
        );
        self.note(format!("import torrent {} into {folder}", torrent.number));
        for file in &torrent.files {
            let Some(from) = self.shown_name(file.id) else { continue };
            if !self.make_folder(&folder) {
                break;
            }
            let to = format!("{folder}/Episode {}.mkv", self.number());
            fs::hard_link(self.target(&from), self.target(&to)).unwrap();
            let (disk, _) = self.model.places(file.id).unwrap();
            self.model.disks[disk].add_folders(&folder);
            self.model.disks[disk].names.insert(to.clone(), file.id);
            self.check_linked(file.id, &[&from, &to]);
            if self.numbers.below(2) == 0 {
                self.date(file.id, &to);
            }
            self.counts.imports += 1;
        }
        if self.model.shows_folder(&folder) {
            self.describe(&format!("{folder}/season.nfo"));
        }
        self.torrents.push(torrent);
    }

    fn check_linked(&self, id: FileId, names: &[&String]) {
        let links = self.model.places(id).map_or(0, |(_, names)| names.len());
        let stats = names.iter().map(|name| fs::symlink_metadata(self.target(name)).unwrap());
        let mut seen: Vec<_> = stats.map(|stat| (stat.ino(), stat.nlink())).collect();
        assert!(seen.iter().all(|(_, count)| *count == links as u64), "{names:?}: {seen:?}");
        seen.dedup();
        assert_eq!(seen.len(), 1, "{names:?}");
    }

    /// Sets the time of modification, as an importer does.
    fn date(&mut self, id: FileId, name: &str) {
        let seconds = AIRED_SECONDS + self.numbers.below(100_000_000);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        // Its owner's right is enough.
        File::open(self.target(name)).unwrap().set_modified(time).unwrap();
        self.model.files.get_mut(&id).unwrap().modified = Some((seconds.try_into().unwrap(), 0));
    }

    /// Writes a small file beside the one that it replaces.
    fn describe(&mut self, name: &str) {
        let beside = format!("{name}.new{}", self.number());
        let Some((open, id)) = self.create(&beside) else { return };
        let length = 1 + self.below(2 * PIECE_BYTES / 3);
        let is_written = self.write_piece(&open, id, 0, length);
        let mut file = TorrentFile { id, open: Some(open), missing: Vec::new() };
        self.close(&mut file);
        if !is_written {
            return self.remove(&beside);
        }
        fs::rename(self.target(&beside), self.target(name)).unwrap();
        self.model.rename_file(&beside, name);
    }

    fn remove(&mut self, name: &str) {
        fs::remove_file(self.target(name)).unwrap();
        self.model.remove_file(name);
    }

    /// Writes the description of a show again.
    pub(super) fn refresh(&mut self) {
        let folder = format!("{LIBRARY}/Show {}", self.numbers.below(4));
        self.note(format!("refresh {folder}"));
        if self.make_folder(&folder) {
            self.describe(&format!("{folder}/tvshow.nfo"));
        }
    }

    /// Replaces an episode by another one of better quality.
    pub(super) fn upgrade(&mut self) {
        let library = self.model.names_below(LIBRARY);
        let old = self.choose(library.into_iter().filter(|name| name.ends_with(".mkv")));
        let (Some(old), Some(torrent)) = (old, self.take_torrent(true)) else { return };
        self.note(format!("upgrade {old} from torrent {}", torrent.number));
        let new = torrent.files.first().and_then(|file| self.shown_name(file.id));
        if let Some(from) = new {
            let id = torrent.files[0].id;
            let beside = format!("{old}.{}", self.number());
            fs::hard_link(self.target(&from), self.target(&beside)).unwrap();
            let (disk, _) = self.model.places(id).unwrap();
            self.model.disks[disk].add_folders(parent(&beside));
            self.model.disks[disk].names.insert(beside.clone(), id);
            fs::rename(self.target(&beside), self.target(&old)).unwrap();
            // A rename of one name to another one of the same file does nothing (rename(2)).
            match self.model.disks[disk].names.get(&old) == Some(&id) {
                true => self.remove(&beside),
                false => self.model.rename_file(&beside, &old),
            }
        }
        self.torrents.push(torrent);
    }

    /// Removes a torrent with its files. Those in the library stay.
    pub(super) fn remove_torrent(&mut self) {
        let is_complete = self.numbers.below(4) > 0;
        let Some(torrent) = self.take_torrent(is_complete) else { return self.remove_orphan() };
        self.note(format!("remove torrent {}", torrent.number));
        let above = if is_complete { COMPLETE } else { INCOMPLETE };
        let folder = format!("{above}/torrent {}", torrent.number);
        let is_closed_first = self.numbers.below(2) == 0;
        let mut files = torrent.files;
        if is_closed_first {
            files.iter_mut().for_each(|file| self.close(file));
        }
        self.remove_tree(&folder);
        // A removed file can be read as long as it is open.
        files.iter().filter(|file| file.open.is_some()).for_each(|file| self.check_piece(file));
        files.iter_mut().for_each(|file| self.close(file));
    }

    /// Removes the folder of a download that the torrent client does not know any more, because it was on a disk that
    /// was away.
    fn remove_orphan(&mut self) {
        let folders = [INCOMPLETE, COMPLETE].map(|above| self.model.folders_below(above));
        let is_known = |folder: &String| {
            let number =
                |torrent: &Torrent| folder.ends_with(&format!("torrent {}", torrent.number));
            self.torrents.iter().any(number)
        };
        let orphans = folders.into_iter().flatten().filter(|folder| !is_known(folder));
        let Some(folder) = self.choose(orphans.collect::<Vec<_>>()) else { return };
        self.note(format!("remove {folder}"));
        self.remove_tree(&folder);
    }

    fn remove_tree(&mut self, folder: &str) {
        if self.model.shows_folder(folder) {
            fs::remove_dir_all(self.target(folder)).unwrap();
            self.model.remove_tree(folder);
        }
    }

    /// Removes an episode, a season or a show, or renames a show.
    pub(super) fn tidy_up(&mut self) {
        let is_below_library = |path: &String| parent(path) == LIBRARY;
        match self.numbers.below(6) {
            0 => {
                let folders = self.model.folders_below(LIBRARY);
                let Some(folder) = self.choose(folders) else { return };
                self.note(format!("remove {folder}"));
                self.remove_tree(&folder);
            }
            1 => {
                let shows = self.model.folders_below(LIBRARY).into_iter().filter(is_below_library);
                let Some(from) = self.choose(shows.collect::<Vec<_>>()) else { return };
                let to = format!("{LIBRARY}/Renamed {}", self.number());
                self.note(format!("rename {from} to {to}"));
                self.rename_folder(&from, &to);
            }
            _ => {
                let names = self.model.names_below(LIBRARY);
                let Some(name) = self.choose(names) else { return };
                self.note(format!("remove {name}"));
                self.remove(&name);
            }
        }
    }

    /// Ends the torrent client. It starts again with the torrents that it finds.
    pub(super) fn close_torrents(&mut self) {
        let mut torrents = std::mem::take(&mut self.torrents);
        for file in torrents.iter_mut().flat_map(|torrent| &mut torrent.files) {
            self.close(file);
        }
        self.torrents = torrents;
    }

    pub(super) fn open_torrents(&mut self) {
        let mut torrents = std::mem::take(&mut self.torrents);
        for torrent in &mut torrents {
            for file in &mut torrent.files {
                let Some(name) = self.shown_name(file.id) else { continue };
                let is_written = !torrent.is_complete;
                let open = File::options().read(true).write(is_written).open(self.target(&name));
                file.open = Some(open.unwrap());
                if is_written {
                    self.model.files.get_mut(&file.id).unwrap().modified = None;
                }
            }
        }
        self.torrents = torrents;
    }

    /// Whether a torrent has the file open, or will write to it once the file's disk is back. A content of another
    /// program, with pieces of the torrent among it, would be one that the model does not know.
    pub(super) fn is_used(&self, id: FileId) -> bool {
        let files_used = |torrent: &Torrent| {
            let mut files = torrent.files.iter();
            files.any(|file| file.id == id && (file.open.is_some() || !torrent.is_complete))
        };
        self.torrents.iter().any(files_used)
    }

    /// The files that are open for writing.
    pub(super) fn written_files(&self) -> Vec<FileId> {
        let torrents = self.torrents.iter().filter(|torrent| !torrent.is_complete);
        let files = torrents.flat_map(|torrent| &torrent.files);
        files.filter(|file| file.open.is_some()).map(|file| file.id).collect()
    }
}

pub(super) fn modified(stat: &fs::Metadata) -> Time {
    (stat.mtime(), stat.mtime_nsec())
}
