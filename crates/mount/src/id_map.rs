//! Hash maps whose keys are inode ids.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

/// A map by inode id. Users cannot choose colliding ids, since this process assigns them.
pub(crate) type IdMap<T> = MixedMap<u64, T>;

/// A map by a key that starts with an inode id.
pub(crate) type MixedMap<K, T> = HashMap<K, T, BuildHasherDefault<Mixer>>;

/// A hasher for ids, which are mostly consecutive.
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
