//! Maps from the kernel's numbers for inodes.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

/// A map by the number of an inode. The numbers are ours, so nobody can choose them to collide.
pub(crate) type IdMap<T> = MixedMap<u64, T>;

/// A map by something that begins with such a number.
pub(crate) type MixedMap<K, T> = HashMap<K, T, BuildHasherDefault<Mixer>>;

/// Spreads numbers that count upwards.
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
