//! The boot of one process: a pack, a cache of the disk's state, and entries for the next pack.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use thruway_pack::printable;
use thruway_pack::{Builder, Error, Pack, PackFile, Stamp, WriteOutcome, check_place, now_ns};
use xxhash_rust::xxh3::xxh3_128;

use crate::cache_path;
use crate::code::{CodeFlags, Reason, Warnings};
use crate::disk;
use crate::files::{Files, FoundFile, cleaned};
use crate::frozen;
use crate::heap::HeapSize;
use crate::json;
use crate::kind;
use crate::learned_entries::{self, CompiledFeature, LearnedEntries};
use crate::options::{Options, Trust};
use crate::path;
use crate::report::Counts;
use crate::rights;

/// The amount of loaded code, in bytes, after which the pack's pages are released. A system call per feature
/// would cost more than reading a page again.
const LOADED_BYTES_MAX: usize = 256 << 10;

/// The boot of one process. All methods may be called from any thread.
#[derive(Debug)]
pub struct Boot {
    /// The options of the boot.
    pub options: Options,
    /// Counters for the report.
    pub counts: Counts,
    /// The cached state of the disk.
    pub files: Files,
    identity: Vec<u8>,
    pack_path: Option<PathBuf>,
    file: Option<&'static PackFile>,
    pack: Option<Pack<'static>>,
    /// Bytes of code loaded since the pack's pages were last released.
    loaded_bytes: AtomicUsize,
    may_write: bool,
    /// The first path that differs from a pack that was to be trusted without checks.
    change_since_pack: Option<&'static [u8]>,
    learned: Mutex<LearnedEntries>,
    /// The digests of all JSON texts in the pack, built on first use.
    json_digests: OnceLock<HashSet<[u8; 16]>>,
}

/// The pack's answer about a document.
#[derive(Debug, Clone, Copy)]
pub enum CachedDocument {
    /// The content of the document.
    Hit(&'static [u8]),
    /// The content is known to be uncacheable.
    Uncacheable,
    /// There is no answer, and none may be learned.
    Unavailable,
    /// There is no answer yet; the file has this stamp.
    Miss(Stamp),
}

impl Boot {
    /// Opens the pack, if a path is given. If the pack cannot be used, also returns the reason in one line.
    pub fn start(
        options: Options,
        identity: &[u8],
        pack_path: Option<PathBuf>,
    ) -> (Self, Option<String>) {
        let (file, note, may_write) = match pack_path.as_deref() {
            None => (None, None, false),
            Some(path) => opened(path, identity, options.is_frozen()),
        };
        let pack = file.map(PackFile::pack);
        // In portable mode this process cannot see its own changes, so a frozen pack cannot be trusted.
        let may_freeze = options.is_frozen() && !options.portable;
        let change_since_pack =
            pack.zip(pack_path.as_deref()).filter(|_| options.trust == Trust::Frozen);
        let change_since_pack = change_since_pack.filter(|_| may_freeze);
        let change_since_pack =
            change_since_pack.and_then(|(pack, path)| frozen::first_change(&pack, path));
        let is_frozen = may_freeze && pack.is_some() && change_since_pack.is_none();
        let files = Files::new(pack, is_frozen, !options.portable);
        #[cfg(windows)]
        let files = match file {
            Some(file) if !file.is_by_this_user() => files.of_another_user(),
            _ => files,
        };
        let boot = Self {
            counts: Counts::default(),
            files,
            identity: identity.to_vec(),
            pack_path,
            file,
            pack,
            loaded_bytes: AtomicUsize::new(0),
            // A frozen pack is never rewritten.
            may_write: may_write && !options.is_frozen() && !options.read_only,
            change_since_pack,
            learned: Mutex::default(),
            json_digests: OnceLock::new(),
            options: Options { trust: checked_trust(options.trust, is_frozen), ..options },
        };
        (boot, note)
    }

    /// The path of the pack, whether it exists or not.
    #[must_use]
    pub fn pack_path(&self) -> Option<&Path> {
        self.pack_path.as_deref()
    }

    /// The pack, if one was opened.
    #[must_use]
    pub fn pack(&self) -> Option<Pack<'static>> {
        self.pack
    }

    /// Whether newly compiled code is kept for the next pack.
    #[must_use]
    pub fn is_learning(&self) -> bool {
        self.may_write
    }

    /// Returns the compiled code of a feature.
    ///
    /// # Errors
    /// The reason why Ruby has to compile the feature.
    pub fn code(
        &self,
        path: &[u8],
        file: &FoundFile,
        now: Warnings,
    ) -> Result<&'static [u8], Reason> {
        let entry = file.entry.ok_or(Reason::NotPacked)?;
        let is_touched = !file.is_fresh();
        if is_touched && !self.has_same_digest(path, entry.stamp()) {
            return Err(Reason::Stale);
        }
        let flags = CodeFlags::from_bits(entry.flags());
        if !now.within(flags.silent) {
            return Err(Reason::MayWarn);
        }
        if !self.leads_to_the_same_file(path, file, flags) {
            return Err(Reason::Moved);
        }
        let code = entry.data().ok_or(Reason::Damaged)?;
        if let (true, Some(stamp)) = (is_touched, file.stamp) {
            lock(&self.learned).add_touched(path, stamp);
        }
        Ok(code)
    }

    /// Records that Ruby has built its own form of the code, or that an entry was used otherwise. Pages of the pack are
    /// released after every `LOADED_BYTES_MAX`.
    pub fn loaded(&self, code: &[u8]) {
        let sum = self.loaded_bytes.fetch_add(code.len(), Ordering::Relaxed) + code.len();
        if let (Some(file), true) = (self.file, sum >= LOADED_BYTES_MAX) {
            self.loaded_bytes.store(0, Ordering::Relaxed);
            file.release_data();
        }
    }

    /// Keeps code that Ruby has compiled, provided that the file has not changed since Ruby started to read
    /// it at `read_ns`.
    pub fn learn(
        &self,
        path: &[u8],
        (before, read_ns): (Stamp, i64),
        silent: Warnings,
        code: Vec<u8>,
    ) {
        self.files.stats.add(1);
        let status = disk::status(path);
        let Some(status) = status.ok().filter(|now| disk::stamp(now) == before) else { return };
        let Some(real) = self.files.real_path_below(path, false) else { return };
        self.files.list_folder_of(path);
        let is_real = real == path;
        let has_plain_rights = !rights::has_access_list(path);
        let is_open = has_plain_rights && rights::is_open(&status);
        let wants_digest = self.options.trust == Trust::Digest;
        let compiled = CompiledFeature {
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

    /// Returns the compiled code of a script with exactly this source.
    #[must_use]
    pub fn script(&self, path: &[u8], source: &[u8]) -> Option<&'static [u8]> {
        let data = self.pack?.find(kind::SCRIPT, path)?.data()?;
        let (digest, code) = data.split_first_chunk::<16>()?;
        (*digest == xxh3_128(source).to_le_bytes()).then_some(code)
    }

    /// Keeps the compiled code of a script.
    pub fn learn_script(&self, path: &[u8], source: &[u8], code: &[u8]) {
        let digest = xxh3_128(source).to_le_bytes();
        lock(&self.learned).add_script(path, digest, code);
    }

    /// Returns the content of a YAML file, parsed with the options of `variant`.
    #[must_use]
    pub fn yaml(&self, path: &[u8], variant: &[u8]) -> CachedDocument {
        self.document(kind::YAML, path, variant)
    }

    /// Returns the content of a time zone's file, read in the way of `variant`: a [zone](crate::zone).
    #[must_use]
    pub fn zone(&self, path: &[u8], variant: &[u8]) -> CachedDocument {
        self.document(kind::ZONE, path, variant)
    }

    fn document(&self, kind: u32, path: &[u8], variant: &[u8]) -> CachedDocument {
        if !path::is_clean(path) {
            return CachedDocument::Unavailable;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind, &name(variant, path)));
        let is_frozen = self.files.is_frozen_at(path);
        let stamp = if is_frozen { None } else { self.files.stamp_of_target(path) };
        // The stamp is also `None` if a folder has replaced the file.
        let is_gone = stamp.is_none() && !is_frozen;
        if is_gone || !rights::may_read(path) {
            return CachedDocument::Unavailable;
        }
        let data = entry.and_then(|entry| entry.data());
        match (entry, data, stamp) {
            (Some(entry), Some(data), stamp) if stamp.is_none_or(|now| now == entry.stamp()) => {
                if data.is_empty() {
                    CachedDocument::Uncacheable
                } else {
                    CachedDocument::Hit(data)
                }
            }
            (_, _, Some(stamp)) if self.may_write && !stamp.is_racy(now_ns()) => {
                CachedDocument::Miss(stamp)
            }
            _ => CachedDocument::Unavailable,
        }
    }

    /// Keeps the content of a YAML file, or the fact that it is uncacheable, provided that the file still has
    /// the given stamp.
    pub fn learn_yaml(&self, path: &[u8], variant: &[u8], stamp: Stamp, data: Option<Vec<u8>>) {
        self.learn_document(kind::YAML, path, variant, stamp, data);
    }

    /// Keeps the content of a time zone's file, or the fact that it is uncacheable, provided that the file
    /// still has the given stamp.
    pub fn learn_zone(&self, path: &[u8], variant: &[u8], stamp: Stamp, data: Option<Vec<u8>>) {
        self.learn_document(kind::ZONE, path, variant, stamp, data);
    }

    fn learn_document(
        &self,
        kind: u32,
        path: &[u8],
        variant: &[u8],
        stamp: Stamp,
        data: Option<Vec<u8>>,
    ) {
        if self.files.stamp_of_target(path) == Some(stamp) {
            let data = data.unwrap_or_default();
            lock(&self.learned).add_document(kind, name(variant, path), stamp, data);
        }
    }

    /// Whether the pack may hold the content of a JSON text. `false` is exact; `true` may be wrong.
    #[must_use]
    pub fn knows_json(&self, text: &[u8]) -> bool {
        let Some(pack) = self.pack else { return false };
        let digests = self.json_digests.get_or_init(|| learned_entries::json_digests(&pack));
        !digests.is_empty() && digests.contains(&xxh3_128(text).to_le_bytes())
    }

    /// Returns the stored result of parsing a JSON text with the options of `variant`, if the pack has it.
    #[must_use]
    pub fn json(&self, text: &[u8], variant: &[u8]) -> Option<&'static [u8]> {
        let entry = self.pack?.find(kind::JSON, &name(variant, &xxh3_128(text).to_le_bytes()))?;
        learned_entries::split_at_nul(entry.data()?).map(|(_, document)| document)
    }

    /// Keeps the content of a JSON text until the file at `path` changes. The text is assumed to come from
    /// that file only if the file is regular and has the same size; the file is not opened. One text is kept
    /// for each file and variant. A text that may repeat a key is not kept: JSON warns of the key, or raises.
    pub fn learn_json(&self, path: &[u8], text: &[u8], variant: &[u8], document: &[u8]) {
        let Some(path) = cleaned(path).filter(|_| !json::may_repeat_key(text, document)) else {
            return;
        };
        let Some(stamp) = self.files.stamp_of_target(&path) else { return };
        if stamp.size == text.len() as u64 && !stamp.is_racy(now_ns()) {
            let digest = xxh3_128(text).to_le_bytes();
            lock(&self.learned).add_json(&path, variant, digest, stamp, document);
        }
    }

    /// Returns the size of the heap at the end of an earlier boot of the command.
    #[must_use]
    pub fn heap_size(&self, command: &[u8]) -> Option<HeapSize> {
        HeapSize::decode(self.pack?.find(kind::HEAP, command)?.data()?)
    }

    /// Keeps the size of the heap at the end of the command's boot, unless the pack has a size that suffices. A
    /// boot that has compiled code needs more than one that finds all code in the pack, and is not measured.
    pub fn learn_heap_size(&self, command: &[u8], slots: &[u64]) {
        let (loaded, compiled) = (self.counts.from_pack.value(), self.counts.compiled.value());
        let is_from_pack = compiled <= loaded / 16;
        let Some(size) = HeapSize::of_boot(slots, loaded).filter(|_| is_from_pack) else { return };
        let known = self.heap_size(command);
        if self.may_write && known.is_none_or(|known| size.has_outgrown(&known)) {
            lock(&self.learned).add_heap(command, &size);
        }
    }

    /// Writes the next pack if there are new entries. May be called again: entries learned since then go into
    /// the following pack.
    ///
    /// # Errors
    /// See [`thruway_pack::replace`].
    pub fn finish(&self) -> Result<Option<WriteOutcome>, Error> {
        let Some(path) = self.pack_path.as_deref().filter(|_| self.may_write) else {
            return Ok(None);
        };
        let Some(folders) = self.files.folders() else { return Ok(None) };
        let mut learned = lock(&self.learned);
        let has_new_folders =
            !learned.has_been_written() && learned_entries::has_new_folders(&folders);
        if learned.is_empty() && !has_new_folders {
            return Ok(None);
        }
        let mut builder = Builder::new(&self.identity);
        learned.put_into(&mut builder);
        learned_entries::put_folders(&folders, &mut builder);
        // Another process may have replaced the pack in the meantime; its entries are kept too.
        let newest = PackFile::open_for(path, &self.identity).ok();
        // The new pack is this user's, and would tell of another one which files may be read.
        #[cfg(windows)]
        let newest = newest.filter(PackFile::is_by_this_user);
        if let Some(pack) = newest.as_ref().map(PackFile::pack) {
            learned.keep(&pack, &mut builder);
        }
        let written = thruway_pack::replace(path, &builder, now_ns())?;
        if matches!(written, WriteOutcome::Replaced { .. }) {
            learned.forget();
            cache_path::remove_oldest_beside(path);
        }
        Ok(Some(written))
    }

    /// Returns the report, one fact per line.
    #[must_use]
    pub fn report(&self) -> String {
        let report = self.counts.report(self.files.stats.value(), self.files.folder_lookups());
        let report = self.limits() + &report;
        match self.change_since_pack.map(printable::bytes) {
            Some(path) => format!("thruway: not frozen, since {path} has changed\n{report}"),
            None => report,
        }
    }

    /// Whether calls of libruby are answered while it searches for a feature.
    #[must_use]
    pub fn answers_search(&self) -> bool {
        !self.options.portable
    }

    /// Returns lines on what this mode or system cannot do; empty if there is nothing to say.
    fn limits(&self) -> String {
        let mut text = String::new();
        let is_portable = self.options.portable;
        if is_portable {
            text.push_str("thruway: in the portable mode: libruby's own calls are not answered\n");
        }
        if is_portable && self.options.trust == Trust::Digest && !self.may_write {
            text.push_str(
                "thruway: not frozen: portable mode cannot see what the program changes\n",
            );
        }
        if self.options.gc_after_mb.is_some() && (is_portable || cfg!(windows)) {
            let place = if is_portable { "portable mode" } else { "the boot on Windows" };
            let line =
                format!("thruway: --gc-after has no effect: {place} cannot count allocations\n");
            text.push_str(&line);
        }
        text
    }

    /// Whether the file's content equals the source from which the pack's code was compiled. `compiled` is the
    /// stamp of that source. The pack may hold the digest of an older content, whose stamp differs.
    fn has_same_digest(&self, path: &[u8], compiled: Stamp) -> bool {
        if self.options.trust != Trust::Digest {
            return false;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::DIGEST, path));
        let known = entry.filter(|entry| entry.stamp() == compiled).and_then(|entry| entry.data());
        known.is_some() && known == digest(path).as_ref().map(|digest| &digest[..])
    }

    /// Whether the code was compiled under the same real path. `__dir__` and `require_relative` depend on it.
    fn leads_to_the_same_file(&self, path: &[u8], file: &FoundFile, flags: CodeFlags) -> bool {
        let real = self.files.real_path_below(path, file.is_searched);
        let Some(real) = real else { return false };
        if flags.is_real {
            return real == path;
        }
        let entry = self.pack.and_then(|pack| pack.find(kind::ALIAS, path));
        entry.and_then(|entry| entry.data()) == Some(&real[..])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the pack at a path. Returns the pack, the reason why it is not used, and whether a new pack may
/// replace it.
fn opened(
    path: &Path,
    identity: &[u8],
    wants_frozen: bool,
) -> (Option<&'static PackFile>, Option<String>, bool) {
    match PackFile::open_for(path, identity) {
        Ok(file) => (Some(file.leak()), None, true),
        Err(error) if error.is_not_found() => {
            let path = printable::path(error.path());
            let note = format!("nothing is frozen, since there is no pack at {path}");
            (None, wants_frozen.then_some(note), true)
        }
        Err(error) => {
            let is_left_alone = error.is_other_identity() || error.is_untrusted();
            let may_write = !is_left_alone && check_place(error.path()).is_ok();
            let other = PackFile::open(error.path()).ok().filter(|_| error.is_other_identity());
            let other = other.and_then(|file| difference(file.pack().identity(), identity));
            let note = other.map_or(error.to_string(), |other| format!("{error}: {other}"));
            (None, Some(note), may_write)
        }
    }
}

/// Falls back from a mode without checks to the comparison of digests if the pack does not equal the disk.
fn checked_trust(trust: Trust, is_frozen: bool) -> Trust {
    match trust {
        Trust::Frozen | Trust::Image if !is_frozen => Trust::Digest,
        trust => trust,
    }
}

/// Describes the first difference between the identity in a pack and that of this process: the version of
/// Ruby, a compile option, the locale or the build of libruby.
fn difference(then: &[u8], now: &[u8]) -> Option<String> {
    const LINES: [&str; 4] = ["Ruby", "compile options", "locale", "build of libruby"];
    let [then, now] = [then, now].map(String::from_utf8_lossy);
    let mut lines = LINES.into_iter().zip(then.lines().zip(now.lines()));
    let (name, (then, now)) = lines.find(|(_, (then, now))| then != now)?;
    let options = then.split(", ").zip(now.split(", ")).find(|(then, now)| then != now);
    let (then, now) = options.filter(|_| name == LINES[1]).unwrap_or((then, now));
    Some(format!("its {name}: {then}, here: {now}"))
}

/// Returns the name of a document: the variant, a NUL and the path.
fn name(variant: &[u8], path: &[u8]) -> Vec<u8> {
    [variant, path].join(&0)
}

/// Returns the digest of a file; `None` if its stamp differs, or changes while the file is read.
fn digest_of(path: &[u8], stamp: Stamp) -> Option<[u8; 16]> {
    let mut file = File::open(disk::native_path(path)).ok()?;
    let is_same =
        |file: &File| disk::status_of_file(file).is_some_and(|now| disk::stamp(&now) == stamp);
    let mut content = Vec::new();
    let has_same = is_same(&file) && file.read_to_end(&mut content).is_ok() && is_same(&file);
    has_same.then(|| xxh3_128(&content).to_le_bytes())
}

/// Returns the 128-bit XXH3 digest of a file's content.
fn digest(path: &[u8]) -> Option<[u8; 16]> {
    read(path).map(|content| xxh3_128(&content).to_le_bytes())
}

/// Reads a regular file; `None` for any other kind. Reading a FIFO might never end.
#[must_use]
pub fn read(path: &[u8]) -> Option<Vec<u8>> {
    let mut file = disk::open(path)?;
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
        let path = &disk::path_bytes(file.path());
        let stamp = disk::stamp(&disk::status(path).unwrap());
        assert_eq!(digest_of(path, stamp), digest(path));
        std::fs::write(file.path(), "newer").unwrap();
        assert_eq!(digest_of(path, stamp), None);
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
}
