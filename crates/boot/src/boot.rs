//! One process's boot: a pack, what is known of the disk, and what was learned.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};
use thruway_pack::{Builder, Entry, Error, Pack, PackFile, Stamp, Written, check_place};
use xxhash_rust::xxh3::xxh3_128;

use crate::code::{CodeFlags, Reason, Sighting, Warnings};
use crate::folders::{Folders, Probe, now_ns};
use crate::frozen;
use crate::kind;
use crate::learned::{self, Compiled, Learned};
use crate::load_path::{self, LoadPath, Resolution};
use crate::options::{Options, Trust};
use crate::path;
use crate::report::Counts;
use crate::rights;

/// How much of the pack's code stays in memory after it was loaded: a call for each feature would cost
/// more than a page that is read twice.
const LOADED_BYTES_MAX: usize = 256 << 10;

/// The whole of it. All methods may be called from any thread.
#[derive(Debug)]
pub struct Boot {
    /// How it is to go.
    pub options: Options,
    /// What happened, for the report.
    pub counts: Counts,
    identity: Vec<u8>,
    place: Option<PathBuf>,
    file: Option<&'static PackFile>,
    pack: Option<Pack<'static>>,
    /// Bytes of code that were loaded since their memory was given back.
    loaded_bytes: AtomicUsize,
    may_write: bool,
    /// What is not as a pack says that was to be frozen.
    thawed_by: Option<&'static [u8]>,
    /// The effective user.
    user: AtomicU32,
    /// Counts the events after which another process may have changed something.
    news: AtomicU64,
    folders: Mutex<Folders>,
    /// Something was changed while another thread had them.
    has_missed: AtomicBool,
    learned: Mutex<Learned>,
}

/// What `open` of a path finds.
#[derive(Debug, Clone, Copy)]
pub enum Look {
    /// A regular file that can be read.
    File(Sighting),
    /// Nothing.
    Missing,
    /// The disk has to be asked in full.
    Ask,
}

/// What is known of a file that is to be read.
#[derive(Debug, Clone, Copy)]
pub enum Known {
    /// What it says.
    Data(&'static [u8]),
    /// What it says cannot be kept.
    Unsuited,
    /// Nothing, and nothing may be learned.
    Unknown,
    /// Nothing yet; the file has that stamp now.
    News(Stamp),
}

impl Boot {
    /// Opens the pack, if there is a place for one. What kept it from being used is said in one line.
    pub fn start(
        options: Options,
        identity: &[u8],
        place: Option<PathBuf>,
    ) -> (Self, Option<String>) {
        let opened = place.as_deref().map(|place| PackFile::open_for(place, identity));
        let (file, note, may_write) = match opened {
            None => (None, None, false),
            Some(Ok(file)) => (Some(file.leak()), None, true),
            Some(Err(error)) if error.is_not_found() => {
                let place = error.path().display();
                let note = format!("nothing is frozen, since there is no pack at {place}");
                (None, options.is_frozen().then_some(note), true)
            }
            Some(Err(error)) => {
                let is_left_alone = error.is_other_identity() || error.is_untrusted();
                let may_write = !is_left_alone && check_place(error.path()).is_ok();
                let other = PackFile::open(error.path()).ok().filter(|_| error.is_other_identity());
                let other = other.and_then(|file| difference(file.pack().identity(), identity));
                let note = other.map_or(error.to_string(), |other| format!("{error}: {other}"));
                (None, Some(note), may_write)
            }
        };
        let pack = file.map(PackFile::pack);
        let thawed_by = pack.zip(place.as_deref()).filter(|_| options.trust == Trust::Frozen);
        let thawed_by = thawed_by.and_then(|(pack, place)| frozen::first_change(&pack, place));
        let is_frozen = options.is_frozen() && pack.is_some() && thawed_by.is_none();
        let boot = Self {
            counts: Counts::default(),
            identity: identity.to_vec(),
            place,
            file,
            pack,
            loaded_bytes: AtomicUsize::new(0),
            // Who asked for a frozen pack wants it to stay as it is.
            may_write: may_write && !options.is_frozen(),
            thawed_by,
            user: AtomicU32::new(rustix::process::geteuid().as_raw()),
            news: AtomicU64::new(0),
            folders: Mutex::new(Folders::new(pack, is_frozen)),
            has_missed: AtomicBool::new(false),
            learned: Mutex::default(),
            options: Options { trust: thawed(options.trust, is_frozen), ..options },
        };
        (boot, note)
    }

    /// The pack's place, if it has one.
    #[must_use]
    pub fn place(&self) -> Option<&Path> {
        self.place.as_deref()
    }

    /// The pack, if there is one.
    #[must_use]
    pub fn pack(&self) -> Option<Pack<'static>> {
        self.pack
    }

    /// Whether what Ruby compiles is kept for the next pack.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.may_write
    }

    /// This process was told something by another one, or has waited: what that one had changed before
    /// must be seen. May be called in a signal handler, and between `vfork` and `exec`.
    pub fn heard(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
    }

    /// What this process has been told so far: what was seen before counts while it stays the same.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
    }

    /// Something may have been made, moved, removed or edited by a process of ours: nothing that is known
    /// counts now, not even what a frozen pack says. May be called where [`heard`](Self::heard) may.
    pub fn distrust(&self) {
        self.has_missed.store(true, Ordering::SeqCst);
        self.heard();
    }

    /// This process has other rights than before.
    pub fn rights_changed(&self) {
        self.user.store(rustix::process::geteuid().as_raw(), Ordering::SeqCst);
        self.distrust();
    }

    /// Whether the pack is believed without asking the disk, but for what this process has changed.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.options.is_frozen() && self.folders().is_some_and(|folders| folders.is_frozen())
    }

    /// This process has written what is at `path`, or changed its rights. That matters to a frozen
    /// pack only: otherwise a file is looked at each time it is used.
    pub fn edited(&self, path: &[u8]) {
        if !self.is_frozen() {
            return;
        }
        let real = real(path);
        let has_other_names =
            fs::stat(&real).is_ok_and(|stat| stat.st_nlink > 1 && rights::is_regular(&stat));
        match self.folders() {
            Some(mut folders) if !has_other_names => {
                cleaned(path).iter().for_each(|path| folders.edited(path));
                folders.edited(real.as_os_str().as_bytes());
            }
            _ => self.distrust(),
        }
    }

    /// This process has made, moved or removed what is at `path`.
    pub fn changed(&self, path: &[u8]) {
        match (self.folders(), cleaned(path)) {
            (Some(mut folders), Some(path)) => folders.changed(&path),
            (Some(mut folders), None) => folders.changed_somewhere(),
            (None, _) => self.has_missed.store(true, Ordering::SeqCst),
        }
        self.edited(path);
    }

    /// The load path with these entries; `None` for one that is not a plain string.
    pub fn load_path<'a>(&self, entries: impl IntoIterator<Item = Option<&'a [u8]>>) -> LoadPath {
        match self.folders() {
            Some(mut folders) => LoadPath::new(&mut folders, entries),
            None => LoadPath::default(),
        }
    }

    /// The path of a feature. What is nowhere is looked for again with fresh eyes, so that a file that
    /// was made since is found.
    pub fn resolve(&self, load_path: &LoadPath, name: &[u8]) -> Resolution {
        let Some(mut folders) = self.folders() else { return Resolution::Unknown };
        let resolution = load_path.resolve(&mut folders, name);
        if resolution != Resolution::Nowhere || folders.is_frozen() {
            return resolution;
        }
        folders.afresh(|folders| load_path.resolve(folders, name))
    }

    /// Whether it is known where in the load path the feature is, or that it is nowhere.
    #[must_use]
    pub fn knows(&self, load_path: &LoadPath, name: &[u8]) -> bool {
        let Some(mut folders) = self.folders() else { return false };
        load_path.resolve(&mut folders, name) != Resolution::Unknown
    }

    /// Whether a gem's folder may hold a feature of that name; `false` is certain.
    #[must_use]
    pub fn may_hold(&self, folder: &[u8], name: &[u8]) -> bool {
        let Some(mut folders) = self.folders().filter(|_| path::is_clean(folder)) else {
            return true;
        };
        let base = folders.id(folder);
        load_path::may_hold(&mut folders, base, name)
    }

    /// What is at a path that Ruby is about to open for loading.
    #[must_use]
    pub fn look(&self, path: &[u8]) -> Look {
        if !path::is_clean(path) {
            return Look::Ask;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::FEATURE, path));
        if entry.is_none() && self.probe(path) == Probe::Absent {
            return Look::Missing;
        }
        match entry {
            None if self.is_frozen() => Look::Ask,
            Some(known) if self.is_frozen_at(path) && is_readable(&known) => {
                Look::File(Sighting { stamp: None, entry })
            }
            _ => self.look_on_disk(path, entry),
        }
    }

    /// The real path of a folder, or of a regular file that is no link; `None` where the disk has to
    /// be asked in full.
    #[must_use]
    pub fn real_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        if !path::is_clean(path) {
            return None;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::FEATURE, path));
        if entry.is_some() && self.is_frozen_at(path) {
            return self.real_path_below(path);
        }
        let mut folders = self.folders()?;
        let id = folders.id(path);
        folders.real_path(id).map(<[u8]>::to_vec)
    }

    /// The real path of something in a folder, which itself is no link.
    #[must_use]
    pub fn real_path_below(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (folder, name) = path::split(path)?;
        let mut folders = self.folders()?;
        let id = folders.id(folder);
        folders.real_path(id).map(|real| path::join(real, name))
    }

    /// The compiled code of a feature.
    ///
    /// # Errors
    /// Why it has to be compiled.
    pub fn code(
        &self,
        path: &[u8],
        sighting: &Sighting,
        now: Warnings,
    ) -> Result<&'static [u8], Reason> {
        let entry = sighting.entry.ok_or(Reason::NotPacked)?;
        let is_touched = !sighting.is_fresh();
        if is_touched && !self.has_same_digest(path, entry.stamp()) {
            return Err(Reason::Stale);
        }
        let flags = CodeFlags::from_bits(entry.flags());
        if !now.within(flags.silent) {
            return Err(Reason::MayWarn);
        }
        if !self.leads_to_the_same_file(path, flags) {
            return Err(Reason::Moved);
        }
        let code = entry.data().ok_or(Reason::Damaged)?;
        if let (true, Some(stamp)) = (is_touched, sighting.stamp) {
            lock(&self.learned).add_touched(path, stamp);
        }
        Ok(code)
    }

    /// Ruby has made its own form of that code. What it was made from needs no memory any more.
    pub fn loaded(&self, code: &[u8]) {
        let sum = self.loaded_bytes.fetch_add(code.len(), Ordering::Relaxed) + code.len();
        if let (Some(file), true) = (self.file, sum >= LOADED_BYTES_MAX) {
            self.loaded_bytes.store(0, Ordering::Relaxed);
            file.release_data();
        }
    }

    /// Keeps what Ruby compiled, if the file has not changed since Ruby began to read it at `read_ns`.
    pub fn learn(
        &self,
        path: &[u8],
        (before, read_ns): (Stamp, i64),
        silent: Warnings,
        code: Vec<u8>,
    ) {
        self.counts.stats.add(1);
        let stat = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
        let Some(stat) = stat.ok().filter(|stat| Stamp::of(stat) == before) else { return };
        let Some(real) = self.real_path_below(path) else { return };
        self.list_folder_of(path);
        let is_real = real == path;
        let has_plain_rights = !rights::has_access_list(path);
        let is_open = has_plain_rights && rights::is_open(&stat);
        let wants_digest = self.options.trust == Trust::Digest;
        let compiled = Compiled {
            path: path.to_vec(),
            stamp: before,
            read_ns,
            flags: CodeFlags { silent, is_real, has_plain_rights, is_open },
            real_path: (!is_real).then_some(real),
            code,
            digest: wants_digest.then(|| digest_of(path, before)).flatten(),
        };
        lock(&self.learned).add(compiled);
    }

    /// A frozen pack sees by its folder's time that a file was exchanged, if it knows its names.
    fn list_folder_of(&self, path: &[u8]) {
        if let (Some((folder, _)), Some(mut folders)) = (path::split(path), self.folders()) {
            let id = folders.id(folder);
            folders.names(id);
        }
    }

    /// The compiled code of a script with exactly that source.
    #[must_use]
    pub fn script(&self, path: &[u8], source: &[u8]) -> Option<&'static [u8]> {
        let data = self.pack?.find(kind::SCRIPT, path)?.data()?;
        let (digest, code) = data.split_first_chunk::<16>()?;
        (*digest == xxh3_128(source).to_le_bytes()).then_some(code)
    }

    /// Keeps the compiled code of a script with that source.
    pub fn learn_script(&self, path: &[u8], source: &[u8], code: &[u8]) {
        let digest = xxh3_128(source).to_le_bytes();
        lock(&self.learned).add_script(path, digest, code);
    }

    /// What the YAML file at a path says when it is read in a certain way.
    #[must_use]
    pub fn yaml(&self, path: &[u8], variant: &[u8]) -> Known {
        if !path::is_clean(path) {
            return Known::Unknown;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::YAML, &name(variant, path)));
        let stamp = if self.is_frozen_at(path) { None } else { self.stamp_of_target(path) };
        if !rights::may_read(path) {
            return Known::Unknown;
        }
        let data = entry.and_then(|entry| entry.data());
        match (entry, data, stamp) {
            (Some(entry), Some(data), stamp) if stamp.is_none_or(|now| now == entry.stamp()) => {
                if data.is_empty() {
                    Known::Unsuited
                } else {
                    Known::Data(data)
                }
            }
            (_, _, Some(stamp)) if self.may_write && !stamp.is_racy(now_ns()) => Known::News(stamp),
            _ => Known::Unknown,
        }
    }

    /// Keeps what a YAML file says, or that it cannot be kept, if the file still has that stamp.
    pub fn learn_yaml(&self, path: &[u8], variant: &[u8], stamp: Stamp, data: Option<Vec<u8>>) {
        if self.stamp_of_target(path) == Some(stamp) {
            let data = data.unwrap_or_default();
            lock(&self.learned).add_document(kind::YAML, name(variant, path), stamp, data);
        }
    }

    /// What a JSON text says when it is parsed in a certain way.
    #[must_use]
    pub fn json(&self, text: &[u8], variant: &[u8]) -> Option<&'static [u8]> {
        let entry = self.pack?.find(kind::JSON, &name(variant, &xxh3_128(text).to_le_bytes()))?;
        learned::split_at_nul(entry.data()?).map(|(_, document)| document)
    }

    /// Keeps what a JSON text says as long as the file at a path is as it is now, if that may be where
    /// the text came from: it is a regular file of that size. The file is not opened. One text for each
    /// file and way of parsing is kept.
    pub fn learn_json(&self, path: &[u8], text: &[u8], variant: &[u8], document: &[u8]) {
        let Some(path) = cleaned(path) else { return };
        let Some(stamp) = self.stamp_of_target(&path) else { return };
        if stamp.size == text.len() as u64 && !stamp.is_racy(now_ns()) {
            let digest = xxh3_128(text).to_le_bytes();
            lock(&self.learned).add_json(&path, variant, digest, stamp, document);
        }
    }

    /// The stamp of the regular file that a path leads to.
    fn stamp_of_target(&self, path: &[u8]) -> Option<Stamp> {
        self.counts.stats.add(1);
        let stat = fs::statat(CWD, path, AtFlags::empty()).ok()?;
        rights::is_regular(&stat).then(|| Stamp::of(&stat))
    }

    /// Writes the next pack, if there is anything new to put into it. It may be called again: what was
    /// learned since goes into the pack after that.
    ///
    /// # Errors
    /// As of [`thruway_pack::replace`].
    pub fn finish(&self) -> Result<Option<Written>, Error> {
        let Some(place) = self.place.as_deref().filter(|_| self.may_write) else { return Ok(None) };
        let Some(folders) = self.folders() else { return Ok(None) };
        let mut learned = lock(&self.learned);
        let has_news = !learned.has_been_written() && learned::has_news(&folders);
        if learned.is_empty() && !has_news {
            return Ok(None);
        }
        let mut builder = Builder::new(&self.identity);
        learned.put_into(&mut builder);
        learned::put_folders(&folders, &mut builder);
        // Another process may have replaced the pack since: what it learned is kept too.
        let newest = PackFile::open_for(place, &self.identity).ok();
        if let Some(pack) = newest.as_ref().map(PackFile::pack) {
            learned.keep(&pack, &mut builder);
        }
        let written = thruway_pack::replace(place, &builder, now_ns())?;
        if matches!(written, Written::Replaced { .. }) {
            learned.forget();
        }
        Ok(Some(written))
    }

    /// What happened, a line a fact.
    #[must_use]
    pub fn report(&self) -> String {
        let report = self.counts.report(self.folders().map_or(0, |folders| folders.lookups));
        match self.thawed_by.map(String::from_utf8_lossy) {
            Some(path) => format!("thruway: not frozen, since {path} has changed\n{report}"),
            None => report,
        }
    }

    fn look_on_disk(&self, path: &[u8], entry: Option<Entry<'static>>) -> Look {
        self.counts.stats.add(1);
        match fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if rights::is_regular(&stat) && self.may_read(path, &stat, entry.as_ref()) => {
                Look::File(Sighting { stamp: Some(Stamp::of(&stat)), entry })
            }
            _ => Look::Ask,
        }
    }

    /// Whether this process may read the file with that stat.
    fn may_read(&self, path: &[u8], stat: &Stat, entry: Option<&Entry<'_>>) -> bool {
        let user = self.user.load(Ordering::SeqCst);
        let flags = entry.map(|entry| CodeFlags::from_bits(entry.flags()));
        let is_certain = flags.is_some_and(|flags| flags.has_plain_rights);
        is_certain && rights::is_certain(stat, user) || rights::may_read(path)
    }

    /// Whether the pack is believed about what is at a path, without asking.
    fn is_frozen_at(&self, path: &[u8]) -> bool {
        self.options.is_frozen()
            && self.folders().is_some_and(|mut folders| folders.is_frozen_at(path))
    }

    fn probe(&self, path: &[u8]) -> Probe {
        self.folders().map_or(Probe::Unknown, |mut folders| folders.probe_path(path))
    }

    /// Whether the file has the content that the code with that stamp was compiled from. A pack may hold
    /// the digest of an older content: it counts only with its own stamp.
    fn has_same_digest(&self, path: &[u8], compiled: Stamp) -> bool {
        if self.options.trust != Trust::Digest {
            return false;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::DIGEST, path));
        let known = entry.filter(|entry| entry.stamp() == compiled).and_then(|entry| entry.data());
        known.is_some() && known == digest(path).as_ref().map(|digest| &digest[..])
    }

    /// Whether the path's real path is the one that the code was compiled with (`__dir__`, and what
    /// `require_relative` starts from).
    fn leads_to_the_same_file(&self, path: &[u8], flags: CodeFlags) -> bool {
        let Some(real) = self.real_path_below(path) else { return false };
        if flags.is_real {
            return real == path;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::ALIAS, path));
        entry.and_then(|entry| entry.data()) == Some(&real[..])
    }

    /// `None` while another thread has them: after a fork that thread may not exist any more.
    fn folders(&self) -> Option<MutexGuard<'_, Folders>> {
        let mut folders = match self.folders.try_lock() {
            Ok(folders) => folders,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if self.has_missed.swap(false, Ordering::SeqCst) {
            folders.changed_somewhere();
        }
        folders.mind(self.news());
        Some(folders)
    }
}

/// The path as a clean one, if there is a folder for it.
fn cleaned(path: &[u8]) -> Option<Vec<u8>> {
    let path = std::path::absolute(OsStr::from_bytes(path)).ok()?;
    if path::is_clean(path.as_os_str().as_bytes()) {
        return Some(path.into_os_string().into_vec());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is opened: only where the folder is counts"
    )]
    let folder = path.parent()?.canonicalize().ok()?;
    Some(path::join(folder.as_os_str().as_bytes(), path.file_name()?.as_bytes()))
}

/// The path without links, if there is anything.
fn real(path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing is opened: only which file was changed counts"
    )]
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Whether everybody may read the feature's file, or at least this process.
fn is_readable(feature: &Entry<'_>) -> bool {
    CodeFlags::from_bits(feature.flags()).is_open || rights::may_read(feature.name())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pack that cannot be believed as it stands is validated instead, by content where it can be.
fn thawed(trust: Trust, is_frozen: bool) -> Trust {
    match trust {
        Trust::Frozen | Trust::Image if !is_frozen => Trust::Digest,
        trust => trust,
    }
}

/// What first differs between two programs' identities: the Ruby, a compile option by its name, the locale
/// or the build.
fn difference(then: &[u8], now: &[u8]) -> Option<String> {
    const LINES: [&str; 4] = ["Ruby", "compile options", "locale", "build of libruby"];
    let [then, now] = [then, now].map(String::from_utf8_lossy);
    let mut lines = LINES.into_iter().zip(then.lines().zip(now.lines()));
    let (name, (then, now)) = lines.find(|(_, (then, now))| then != now)?;
    let options = then.split(", ").zip(now.split(", ")).find(|(then, now)| then != now);
    let (then, now) = options.filter(|_| name == LINES[1]).unwrap_or((then, now));
    Some(format!("its {name}: {then}, here: {now}"))
}

/// The name of a document: how it is read, and where it is.
fn name(variant: &[u8], path: &[u8]) -> Vec<u8> {
    [variant, path].join(&0)
}

/// The digest of the file with that stamp; `None` if it is another one by now, or changes meanwhile.
fn digest_of(path: &[u8], stamp: Stamp) -> Option<[u8; 16]> {
    let mut file = File::open(OsStr::from_bytes(path)).ok()?;
    let is_same = |file: &File| fs::fstat(file).is_ok_and(|now| Stamp::of(&now) == stamp);
    let mut content = Vec::new();
    let has_same = is_same(&file) && file.read_to_end(&mut content).is_ok() && is_same(&file);
    has_same.then(|| xxh3_128(&content).to_le_bytes())
}

/// 128 bits of XXH3 of the file's content.
fn digest(path: &[u8]) -> Option<[u8; 16]> {
    read(path).map(|content| xxh3_128(&content).to_le_bytes())
}

/// The content of a regular file. Anything else is not read: a FIFO would never end.
#[must_use]
pub fn read(path: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = File::from(fs::open(path, flags, Mode::empty()).ok()?);
    let mut content = Vec::new();
    let is_regular = file.metadata().ok()?.is_file();
    (is_regular && file.read_to_end(&mut content).is_ok()).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_file_with_that_stamp_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old").unwrap();
        let path = file.path().as_os_str().as_bytes();
        let stamp = Stamp::of(&fs::stat(file.path()).unwrap());
        assert_eq!(digest_of(path, stamp), digest(path));
        std::fs::write(file.path(), "newer").unwrap();
        assert_eq!(digest_of(path, stamp), None);
    }

    #[test]
    fn what_this_process_is_told_makes_it_look_again() {
        let folder = tempfile::tempdir().unwrap();
        let (boot, _) = Boot::start(Options::default(), b"", None);
        let name = folder.path().as_os_str().as_bytes().to_vec();
        let load_path = boot.load_path([Some(&name[..])]);
        std::fs::write(folder.path().join("there.rb"), "").unwrap();
        assert!(boot.knows(&load_path, b"there"));
        std::fs::rename(folder.path().join("there.rb"), folder.path().join("moved.rb")).unwrap();
        let found = |name: &[u8]| matches!(boot.resolve(&load_path, name), Resolution::Found(_));
        assert!(found(b"there"), "nobody has said anything");
        boot.heard();
        assert!(!found(b"there") && found(b"moved"));
    }

    #[test]
    fn what_differs_between_two_programs_is_named() {
        let one = b"ruby 3.1\n{:a=>true, :frozen_string_literal=>false}\nUTF-8\nbuild 1";
        assert_eq!(difference(one, one), None);
        for (from, to, said) in [
            ("3.1", "3.1 +YJIT", "its Ruby: ruby 3.1, here: ruby 3.1 +YJIT"),
            (
                "=>false",
                "=>true",
                ":frozen_string_literal=>false}, here: :frozen_string_literal=>true}",
            ),
            ("UTF-8", "US-ASCII", "its locale: UTF-8, here: US-ASCII"),
            ("build 1", "build 2", "its build of libruby: build 1, here: build 2"),
        ] {
            let other = String::from_utf8_lossy(one).replace(from, to);
            let difference = difference(one, other.as_bytes()).unwrap();
            assert!(difference.ends_with(said), "{difference}");
        }
    }

    #[test]
    fn a_change_while_another_thread_has_the_folders_is_minded_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late.rb");
        let (boot, _) = Boot::start(Options::default(), b"", None);
        let probe = || {
            let mut folders = boot.folders().unwrap();
            let id = folders.id(folder.path().as_os_str().as_bytes());
            folders.probe(id, b"late.rb")
        };
        assert_eq!(probe(), Probe::Absent);
        std::fs::write(&path, "").unwrap();
        assert_eq!(probe(), Probe::Absent, "nobody has said anything");
        let theirs = boot.folders();
        boot.changed(path.as_os_str().as_bytes());
        drop(theirs);
        assert_eq!(probe(), Probe::File);
    }
}
