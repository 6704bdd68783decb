//! The kernel's structures, field by field, in the machine's own byte order.
//!
//! The kernel lays the fields of a structure out without padding between them. So they are read one after the other,
//! without alignment and without unsafe code.

mod attributes;
mod connection;
mod constants;
mod files;
mod names;

pub use attributes::*;
pub use connection::*;
pub use constants::*;
pub use files::*;
pub use names::*;

/// A value with a fixed size on the wire.
pub trait Wire: Sized {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Takes the value from the front of `bytes`; `None` if there are too few.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
    /// Appends the value.
    fn put(&self, bytes: &mut Vec<u8>);
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            const SIZE: usize = size_of::<$type>();

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (first, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_ne_bytes(*first))
            }

            #[inline]
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

number!(u16, u32, u64, i32, i64);

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    const SIZE: usize = T::SIZE * N;

    #[inline]
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for value in &mut all {
            *value = T::take(bytes)?;
        }
        Some(all)
    }

    #[inline]
    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(bytes));
    }
}

/// Declares structures with the kernel's fields in the kernel's order.
macro_rules! structures {
    ($($(#[$about:meta])* $name:ident { $($(#[$field_about:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_about])* pub $field: $type,)* }

        impl Wire for $name {
            const SIZE: usize = 0 $(+ <$type as Wire>::SIZE)*;

            #[inline]
            fn take(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: <$type as Wire>::take(bytes)?,)* })
            }

            #[inline]
            fn put(&self, bytes: &mut Vec<u8>) {
                $(self.$field.put(bytes);)*
            }
        }
    )*};
}

use structures;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_kernel() {
        let sizes = [
            (InHeader::SIZE, 40),
            (OutHeader::SIZE, 16),
            (Attributes::SIZE, 88),
            (EntryOut::SIZE, 128),
            (AttributesOut::SIZE, 104),
            (StatxOut::SIZE, 288),
            (StatxIn::SIZE, 24),
            (SetAttrIn::SIZE, 88),
            (OpenOut::SIZE, 16),
            (ReadIn::SIZE, 40),
            (WriteIn::SIZE, 40),
            (StatFsOut::SIZE, 80),
            (SetXattrIn::SIZE, 16),
            (LockIn::SIZE, 48),
            (InitOut::SIZE, 64),
            (FAllocateIn::SIZE, 32),
            (IoctlIn::SIZE, 32),
            (IoctlOut::SIZE, 16),
            (CopyFileRangeIn::SIZE, 56),
            (DirEntry::SIZE, 24),
            (InvalidateInode::SIZE, 24),
            (InvalidateEntry::SIZE, 16),
            (Deleted::SIZE, 24),
        ];
        for (size, kernel) in sizes {
            assert_eq!(size, kernel);
        }
    }

    #[test]
    fn a_written_value_is_read_back() {
        let lock = FileLock { start: 1, end: u64::MAX, kind: 2, pid: 3 };
        let sent = LockIn { handle: 9, owner: 8, lock, flags: 1, padding: 0 };
        let mut bytes = Vec::new();
        sent.put(&mut bytes);
        assert_eq!(LockIn::take(&mut bytes.as_slice()), Some(sent));
        assert_eq!(LockIn::take(&mut &bytes[..LockIn::SIZE - 1]), None);
    }
}
