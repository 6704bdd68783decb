//! Lexical expansion: a name and the folder that it is relative to become one absolute name.
//!
//! Nothing here touches the disk, reads the environment or knows the working directory: the caller passes the
//! base. Symbolic links are therefore not followed, and `..` removes the component before it, whatever that
//! is on disk.
//!
//! Reading order: `posix`, [`windows`] (the rules of `GetFullPathNameW`, with [`device`] for names such as
//! `nul`), then [`ruby`], whose rules for `File.expand_path` build on both.

pub mod device;
mod form;
mod posix;
pub mod ruby;
pub mod unit;
pub mod windows;

pub use device::Devices;
pub use unit::Unit;

/// The system whose rules a name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavour {
    /// POSIX: `/` separates components, and every other byte but NUL is part of a name.
    Posix,
    /// Windows: `\` and `/` separate components. There are drives, shares and devices, and trailing dots and
    /// spaces are stripped.
    Windows,
}

impl Flavour {
    /// The rules of the host for which this crate was built.
    pub const HOST: Self = if cfg!(windows) { Self::Windows } else { Self::Posix };

    /// Whether `byte` separates components.
    #[must_use]
    pub fn separates(self, byte: u8) -> bool {
        byte == b'/' || (byte == b'\\' && self == Self::Windows)
    }
}

/// Returns the absolute form of `name`, relative to `base` unless it is absolute itself.
///
/// `base` should be absolute; otherwise it is taken relative to the root: `/`, or `C:\`.
///
/// With [`Flavour::Posix`] the result has no empty, `.` or `..` component and no trailing separator, except
/// for the root itself.
///
/// With [`Flavour::Windows`] the result is that of [`windows::Place::full_path`] with the device rules of
/// Windows 11, with two exceptions: the empty name is the base, and a name that begins with `\\?\` or `\\.\`
/// stays unchanged, because the system uses it as it is. Both `name` and `base` are WTF-8.
#[must_use]
pub fn expand(flavour: Flavour, name: &[u8], base: &[u8]) -> Vec<u8> {
    match flavour {
        Flavour::Posix => posix::expand(name, base),
        Flavour::Windows => windows::expand(name, base),
    }
}
