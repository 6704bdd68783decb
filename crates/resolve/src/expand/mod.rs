//! Lexical expansion: a name and the folder it is relative to become one absolute name.
//!
//! Nothing here touches the disk, reads the environment or knows the current folder: the caller
//! passes the base. Symbolic links are therefore not followed, and `..` takes away the component
//! before it, whatever that is on a disk.
//!
//! Reading order: `posix`, [`windows`] (the rules of `GetFullPathNameW`, with [`device`] for names
//! such as `nul`), then [`ruby`], whose rules for `File.expand_path` stand on top of both.

pub mod device;
mod form;
mod posix;
pub mod ruby;
pub mod unit;
pub mod windows;

pub use device::Devices;
pub use unit::Unit;

/// Whose rules a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavour {
    /// POSIX: `/` separates, every other byte but NUL is part of a name.
    Posix,
    /// Windows: `\` and `/` separate; drives, shares, devices, and dots and spaces that go away.
    Windows,
}

impl Flavour {
    /// The rules of the host that this was built for.
    pub const HOST: Self = if cfg!(windows) { Self::Windows } else { Self::Posix };

    /// Whether `byte` stands between components.
    #[must_use]
    pub fn separates(self, byte: u8) -> bool {
        byte == b'/' || (byte == b'\\' && self == Self::Windows)
    }
}

/// The absolute form of `name`, taken relative to `base` unless it is absolute itself.
///
/// `base` is expected to be absolute; if it is not, it is taken relative to the root: `/`, or `C:\`.
///
/// With [`Flavour::Posix`] the result has no empty, `.` or `..` component and no separator at its
/// end, except for the root itself.
///
/// With [`Flavour::Windows`] it is what [`windows::Place::full_path`] says, by the device rules of
/// Windows 11, with two exceptions. The empty name is the base. A name that begins with `\\?\` or
/// `\\.\` is left as it is, because to the system it is final already. Both are WTF-8.
#[must_use]
pub fn expand(flavour: Flavour, name: &[u8], base: &[u8]) -> Vec<u8> {
    match flavour {
        Flavour::Posix => posix::expand(name, base),
        Flavour::Windows => windows::expand(name, base),
    }
}
