//! The operations of requests.

use std::ffi::CStr;

use crate::wire::{
    AccessIn, CopyFileRangeIn, CreateIn, FAllocateIn, FSyncIn, FlushIn, ForgetOne, GetAttrIn,
    InitIn, InterruptIn, IoctlIn, LSeekIn, LockIn, MkDirIn, MkNodIn, OpenIn, ReadIn, ReleaseIn,
    SetAttrIn, SetXattrIn, StatxIn, Wire, WriteIn,
};

/// The bit in an `ioctl`'s number that marks calls with input data (`_IOC_WRITE`), such as all that change a file.
const IOCTL_TAKES_DATA: u32 = 1 << 30;

/// An operation. Names are single components without a slash.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the kernel's own names, described in `wire`")]
pub enum Operation<'a> {
    Init(InitIn, u32),
    Destroy,
    Interrupt(InterruptIn),
    Lookup {
        name: &'a CStr,
    },
    Forget {
        lookups: u64,
    },
    BatchForget(Forgets<'a>),
    GetAttr(GetAttrIn),
    Statx(StatxIn),
    SetAttr(SetAttrIn),
    ReadLink,
    SymLink {
        name: &'a CStr,
        target: &'a CStr,
    },
    MkNod {
        with: MkNodIn,
        name: &'a CStr,
    },
    MkDir {
        with: MkDirIn,
        name: &'a CStr,
    },
    Unlink {
        name: &'a CStr,
    },
    RmDir {
        name: &'a CStr,
    },
    Rename {
        name: &'a CStr,
        new_parent: u64,
        new_name: &'a CStr,
        flags: u32,
    },
    Link {
        source: u64,
        name: &'a CStr,
    },
    Open(OpenIn),
    Create {
        with: CreateIn,
        name: &'a CStr,
    },
    TmpFile(CreateIn),
    Read(ReadIn),
    Write {
        with: WriteIn,
        data: &'a [u8],
    },
    Flush(FlushIn),
    Release(ReleaseIn),
    FSync(FSyncIn),
    SyncFs,
    OpenDir(OpenIn),
    ReadDir(ReadIn),
    ReadDirPlus(ReadIn),
    ReleaseDir(ReleaseIn),
    FSyncDir(FSyncIn),
    StatFs,
    SetXattr {
        with: SetXattrIn,
        name: &'a CStr,
        value: &'a [u8],
    },
    GetXattr {
        size: u32,
        name: &'a CStr,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a CStr,
    },
    GetLock(LockIn),
    SetLock {
        with: LockIn,
        wait: bool,
    },
    Access(AccessIn),
    FAllocate(FAllocateIn),
    Ioctl {
        with: IoctlIn,
        input: &'a [u8],
    },
    LSeek(LSeekIn),
    CopyFileRange {
        with: CopyFileRangeIn,
        long: bool,
    },
    /// An operation that is unknown to this crate, or has no use in such a file system.
    Other(u32),
}

impl Operation<'_> {
    /// Whether it changes a file, its attributes or its names.
    #[must_use]
    pub fn is_change(&self) -> bool {
        if let Self::Ioctl { with, .. } = self {
            return with.command & IOCTL_TAKES_DATA != 0;
        }
        matches!(
            self,
            Self::SetAttr(_)
                | Self::SymLink { .. }
                | Self::MkNod { .. }
                | Self::MkDir { .. }
                | Self::Unlink { .. }
                | Self::RmDir { .. }
                | Self::Rename { .. }
                | Self::Link { .. }
                | Self::Create { .. }
                | Self::TmpFile(_)
                | Self::Write { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr { .. }
                | Self::FAllocate(_)
                | Self::CopyFileRange { .. }
        )
    }
}

/// The inodes of a batch forget.
#[derive(Debug, Clone, Copy)]
pub struct Forgets<'a> {
    pub(crate) bytes: &'a [u8],
}

impl Iterator for Forgets<'_> {
    type Item = ForgetOne;

    fn next(&mut self) -> Option<ForgetOne> {
        ForgetOne::take(&mut self.bytes)
    }
}
