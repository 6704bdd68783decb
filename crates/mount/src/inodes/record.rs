//! The record of an inode in the shared table: thirteen words.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use thruway_sys::handle::{BYTES_MAX, FileHandle};

use super::flags::{CHECKED, Flags, LIVE, YOUNG};
use super::inode::{Identity, Inode, InodeId};

/// The number of words in a record.
pub(crate) const WORDS: usize = 13;

/// Incarnation (32 bits), volume (16), type (4), flags (12).
const STATE: usize = 0;
const NUMBER: usize = 1;
const BIRTH: usize = 2;
const LOOKUPS: usize = 3;
const PARENT: usize = 4;
/// Idle flag (1 bit), opens (31), backing id (32).
const BACKING: usize = 5;
/// Type of the handle (32 bits), branch (16), length of the handle plus one (8; zero for no handle).
const HANDLE: usize = 6;
const HANDLE_BYTES: usize = 7;
/// The fingerprint of the attributes that the kernel received last.
const CACHED_FINGERPRINT: usize = 11;
/// The time up to which all changes are known to come through the mount.
const OWN_CHANGES_UNTIL: usize = 12;

const IDLE: u32 = 1 << 31;

/// The backing file of an inode, and the number of its opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BackingState {
    /// The kernel's id; zero for no backing file, negative for daemon I/O.
    pub(crate) id: i32,
    pub(crate) opens: u32,
    /// Whether the file is in the list of idle backing files.
    pub(crate) is_idle: bool,
}

/// A view of a record's words.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Record<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// Fills the record. The last store makes the record live.
    pub(super) fn write(
        &self,
        identity: &Identity,
        incarnation: u32,
        parent: InodeId,
        branch: u16,
        handle: Option<&FileHandle>,
    ) {
        self.words[NUMBER].store(identity.number, Relaxed);
        self.words[BIRTH].store(identity.birth, Relaxed);
        self.words[LOOKUPS].store(1, Relaxed);
        self.words[PARENT].store(parent.0, Relaxed);
        self.words[BACKING].store(0, Relaxed);
        self.words[CACHED_FINGERPRINT].store(0, Relaxed);
        self.words[OWN_CHANGES_UNTIL].store(0, Relaxed);
        self.write_handle(branch, handle);
        let young = if identity.young { YOUNG } else { 0 };
        let state = u64::from(incarnation) << 32
            | u64::from(identity.volume) << 16
            | u64::from(identity.kind & 0xf) << 12
            | young
            | LIVE;
        self.words[STATE].store(state, Release);
    }

    /// Makes another file the inode's. Lookups and opens stay.
    pub(super) fn replace_file(
        &self,
        identity: &Identity,
        branch: u16,
        handle: Option<&FileHandle>,
    ) {
        self.write_handle(branch, handle);
        self.words[NUMBER].store(identity.number, Relaxed);
        self.words[BIRTH].store(identity.birth, Relaxed);
        self.words[CACHED_FINGERPRINT].store(0, Relaxed);
        let kept = self.state() & !(0xffff << 16 | 0xf << 12 | YOUNG | super::flags::DETACHED);
        let young = if identity.young { YOUNG } else { 0 };
        let volume = u64::from(identity.volume) << 16;
        let kind = u64::from(identity.kind & 0xf) << 12;
        self.words[STATE].store(kept | volume | kind | young | CHECKED, Release);
    }

    fn write_handle(&self, branch: u16, handle: Option<&FileHandle>) {
        let branch = u64::from(branch) << 16;
        let Some((kind, bytes)) = handle.map(FileHandle::parts) else {
            self.words[HANDLE].store(branch, Relaxed);
            return;
        };
        let length = u64::try_from(bytes.len() + 1).unwrap_or(0);
        let kind = u64::from(kind.cast_unsigned()) << 32;
        self.words[HANDLE].store(kind | branch | length, Relaxed);
        for (word, chunk) in
            self.words[HANDLE_BYTES..CACHED_FINGERPRINT].iter().zip(bytes.chunks(8))
        {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(value), Relaxed);
        }
    }

    /// Returns the inode, if the record still holds the inode with this id.
    pub(super) fn read(&self, id: InodeId) -> Option<Inode> {
        let state = self.state();
        if state & LIVE == 0 || state >> 32 != id.incarnation() {
            return None;
        }
        Some(Inode {
            id,
            identity: self.identity(),
            parent: InodeId(self.words[PARENT].load(Relaxed)),
            branch: self.branch(),
            handle: self.handle(),
            checked: state & CHECKED != 0,
        })
    }

    pub(super) fn id(&self, slot: u32) -> InodeId {
        InodeId(self.state() >> 32 << 32 | u64::from(slot))
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields of the word")]
    pub(super) fn identity(&self) -> Identity {
        let state = self.state();
        Identity {
            volume: (state >> 16) as u16,
            number: self.words[NUMBER].load(Relaxed),
            birth: self.words[BIRTH].load(Relaxed),
            kind: (state >> 12) as u8 & 0xf,
            young: state & YOUNG != 0,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a field of the word")]
    fn branch(&self) -> u16 {
        (self.words[HANDLE].load(Relaxed) >> 16) as u16
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields of the word")]
    fn handle(&self) -> Option<FileHandle> {
        let word = self.words[HANDLE].load(Relaxed);
        let length = usize::from(word as u8).checked_sub(1)?;
        let mut bytes = [0; BYTES_MAX];
        for (chunk, word) in bytes.chunks_mut(8).zip(&self.words[HANDLE_BYTES..CACHED_FINGERPRINT])
        {
            chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        FileHandle::from_parts((word >> 32) as i32, bytes.get(..length)?)
    }

    /// Whether volume and number are equal.
    pub(super) fn has_number(&self, identity: &Identity) -> bool {
        let own = self.identity();
        own.number == identity.number && own.volume == identity.volume
    }

    /// Whether all properties that `statx` reports are equal.
    pub(super) fn has_identity(&self, identity: &Identity) -> bool {
        let own = self.identity();
        self.has_number(identity) && own.birth == identity.birth && own.kind == identity.kind
    }

    /// Whether identity and handle are those of the same file.
    pub(super) fn is_same(&self, identity: &Identity, handle: Option<&FileHandle>) -> bool {
        self.has_identity(identity) && self.handle().as_ref() == handle
    }

    /// Whether two files may have this identity, so that the handle has to be compared.
    pub(super) fn needs_handle(&self) -> bool {
        self.state() & YOUNG != 0 && self.words[HANDLE].load(Relaxed) & 0xff != 0
    }

    pub(super) fn cached_fingerprint(&self) -> u64 {
        self.words[CACHED_FINGERPRINT].load(Relaxed)
    }

    pub(super) fn set_cached_fingerprint(&self, fingerprint: u64) {
        self.words[CACHED_FINGERPRINT].store(fingerprint, Relaxed);
    }

    pub(super) fn own_changes_until(&self) -> u64 {
        self.words[OWN_CHANGES_UNTIL].load(Relaxed)
    }

    pub(super) fn set_own_changes_until(&self, until: u64) {
        self.words[OWN_CHANGES_UNTIL].store(until, Relaxed);
    }

    pub(super) fn clear(&self) {
        self.words[STATE].store(0, Release);
    }

    pub(super) fn add_lookup(&self) {
        self.words[LOOKUPS].fetch_add(1, Relaxed);
    }

    /// Subtracts lookups, and returns the number that remain.
    pub(super) fn take_lookups(&self, lookups: u64) -> u64 {
        let remaining = self.words[LOOKUPS].load(Relaxed).saturating_sub(lookups);
        self.words[LOOKUPS].store(remaining, Relaxed);
        remaining
    }

    #[expect(clippy::cast_possible_truncation, reason = "fields of the word")]
    pub(super) fn backing(&self) -> BackingState {
        let word = self.words[BACKING].load(Relaxed);
        BackingState {
            id: word as i32,
            opens: (word >> 32) as u32 & !IDLE,
            is_idle: (word >> 32) as u32 & IDLE != 0,
        }
    }

    pub(super) fn set_backing(&self, backing: BackingState) {
        let idle = if backing.is_idle { IDLE } else { 0 };
        let word = u64::from(backing.opens | idle) << 32 | u64::from(backing.id.cast_unsigned());
        self.words[BACKING].store(word, Relaxed);
    }

    pub(super) fn flags(&self) -> Flags<'a> {
        Flags::new(&self.words[STATE])
    }

    fn state(&self) -> u64 {
        self.words[STATE].load(Acquire)
    }
}
