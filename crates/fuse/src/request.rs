//! A request: its caller, its inode and its operation.

use std::ffi::CStr;
use std::fmt;

use crate::operation::{Forgets, Operation};
use crate::wire::{
    BatchForgetIn, EXTENSION_GROUPS, ExtensionHeader, ForgetIn, ForgetOne, GetXattrIn, InHeader,
    IoctlIn, LinkIn, Rename2In, RenameIn, SetXattrIn, Wire, WriteIn, opcode,
};

/// The bytes of one request as they arrived.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    header: InHeader,
    argument: &'a [u8],
    payload: Option<&'a [u8]>,
}

/// A request that does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedRequest {
    /// The operation's number.
    pub opcode: u32,
}

/// The process that a request comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Process id, or zero.
    pub pid: u32,
    /// For requests that make a file: the group of the folder, if it is a supplementary group of the caller.
    pub folder_group: Option<u32>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The request's number; the reply carries it back.
    pub unique: u64,
    /// The inode that the operation is on.
    pub inode: u64,
    /// The process that a request comes from.
    pub caller: Caller,
    /// The operation that the kernel asks for.
    pub operation: Operation<'a>,
}

impl<'a> Frame<'a> {
    /// Parses a request that arrived in one piece, as `/dev/fuse` gives it.
    ///
    /// # Errors
    /// The bytes are fewer or more than their header says.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, MalformedRequest> {
        let mut argument = bytes;
        let header = InHeader::take(&mut argument).ok_or(MalformedRequest { opcode: 0 })?;
        if usize::try_from(header.length) != Ok(bytes.len()) {
            return Err(MalformedRequest { opcode: header.opcode });
        }
        Ok(Self { header, argument, payload: None })
    }

    /// Parses a request that arrived in three pieces, as io_uring gives it.
    ///
    /// # Errors
    /// The header is too short.
    pub fn from_parts(
        mut header: &[u8],
        argument: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, MalformedRequest> {
        let header = InHeader::take(&mut header).ok_or(MalformedRequest { opcode: 0 })?;
        Ok(Self { header, argument, payload: Some(payload) })
    }

    /// Returns the request as bytes, in the form in which `/dev/fuse` gives it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let payload = self.payload.unwrap_or_default();
        let length = usize::try_from(self.header.length).unwrap_or(0);
        let mut bytes = Vec::with_capacity(length);
        self.header.put(&mut bytes);
        // The buffer of an argument may be longer than the argument.
        let argument = length.saturating_sub(bytes.len() + payload.len());
        bytes.extend_from_slice(&self.argument[..argument.min(self.argument.len())]);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// The operation's number.
    #[must_use]
    pub fn opcode(&self) -> u32 {
        self.header.opcode
    }

    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.header.unique
    }

    /// Reads the request.
    ///
    /// # Errors
    /// A structure or a name is cut short.
    pub fn request(&self) -> Result<Request<'a>, MalformedRequest> {
        let mut rest = Rest { argument: self.argument, payload: self.payload };
        let malformed = MalformedRequest { opcode: self.header.opcode };
        let extension = rest.split_extensions(self.header.extensions).ok_or(malformed)?;
        let operation = rest.operation(self.header.opcode).ok_or(malformed)?;
        let caller = Caller {
            uid: self.header.uid,
            gid: self.header.gid,
            pid: self.header.pid,
            folder_group: group(extension),
        };
        Ok(Request { unique: self.header.unique, inode: self.header.inode, caller, operation })
    }
}

/// The part of a request that is not parsed yet.
struct Rest<'a> {
    argument: &'a [u8],
    payload: Option<&'a [u8]>,
}

impl<'a> Rest<'a> {
    /// Splits off the extensions at the end; `units` are of 8 bytes.
    fn split_extensions(&mut self, units: u16) -> Option<&'a [u8]> {
        let tail = self.payload.as_mut().unwrap_or(&mut self.argument);
        let (before, extensions) =
            tail.split_at_checked(tail.len().checked_sub(usize::from(units) * 8)?)?;
        *tail = before;
        Some(extensions)
    }

    fn argument<T: Wire>(&mut self) -> Option<T> {
        T::take(&mut self.argument)
    }

    fn tail(&mut self) -> &mut &'a [u8] {
        self.payload.as_mut().unwrap_or(&mut self.argument)
    }

    fn name(&mut self) -> Option<&'a CStr> {
        let tail = self.tail();
        let name = CStr::from_bytes_until_nul(tail).ok()?;
        *tail = &tail[name.count_bytes() + 1..];
        Some(name)
    }

    fn data(&mut self, length: u32) -> Option<&'a [u8]> {
        self.tail().get(..usize::try_from(length).ok()?)
    }

    fn operation(&mut self, number: u32) -> Option<Operation<'a>> {
        self.name_operation(number)
            .or_else(|| self.file_operation(number))
            .or_else(|| self.inode_operation(number))
            .unwrap_or(Some(Operation::Other(number)))
    }

    /// Parses an operation on names. The outer `None` means another kind of operation, the inner `None` a malformed
    /// argument.
    fn name_operation(&mut self, number: u32) -> Option<Option<Operation<'a>>> {
        Some(match number {
            opcode::LOOKUP => self.name().map(|name| Operation::Lookup { name }),
            opcode::UNLINK => self.name().map(|name| Operation::Unlink { name }),
            opcode::RMDIR => self.name().map(|name| Operation::RmDir { name }),
            opcode::REMOVEXATTR => self.name().map(|name| Operation::RemoveXattr { name }),
            opcode::SYMLINK => self.symlink(),
            opcode::MKNOD => self.named(|with, name| Operation::MkNod { with, name }),
            opcode::MKDIR => self.named(|with, name| Operation::MkDir { with, name }),
            opcode::CREATE => self.named(|with, name| Operation::Create { with, name }),
            opcode::LINK => {
                self.named(|with: LinkIn, name| Operation::Link { source: with.inode, name })
            }
            opcode::RENAME => self.rename(|with: RenameIn| (with.new_parent, 0)),
            opcode::RENAME2 => self.rename(|with: Rename2In| (with.new_parent, with.flags)),
            opcode::SETXATTR => self.setxattr(),
            opcode::GETXATTR => {
                self.named(|with: GetXattrIn, name| Operation::GetXattr { size: with.size, name })
            }
            _ => return None,
        })
    }

    /// Parses an operation on open files and folders, as [`name_operation`](Self::name_operation) does.
    fn file_operation(&mut self, number: u32) -> Option<Option<Operation<'a>>> {
        Some(match number {
            opcode::OPEN => self.argument().map(Operation::Open),
            opcode::TMPFILE => self.argument().map(Operation::TmpFile),
            opcode::READ => self.argument().map(Operation::Read),
            opcode::WRITE => self.write(),
            opcode::FLUSH => self.argument().map(Operation::Flush),
            opcode::RELEASE => self.argument().map(Operation::Release),
            opcode::FSYNC => self.argument().map(Operation::FSync),
            opcode::OPENDIR => self.argument().map(Operation::OpenDir),
            opcode::READDIR => self.argument().map(Operation::ReadDir),
            opcode::READDIRPLUS => self.argument().map(Operation::ReadDirPlus),
            opcode::RELEASEDIR => self.argument().map(Operation::ReleaseDir),
            opcode::FSYNCDIR => self.argument().map(Operation::FSyncDir),
            opcode::FALLOCATE => self.argument().map(Operation::FAllocate),
            opcode::IOCTL => self.ioctl(),
            opcode::LSEEK => self.argument().map(Operation::LSeek),
            opcode::GETLK => self.argument().map(Operation::GetLock),
            opcode::SETLK => self.lock(false),
            opcode::SETLKW => self.lock(true),
            opcode::COPY_FILE_RANGE => self.copy(false),
            opcode::COPY_FILE_RANGE_64 => self.copy(true),
            _ => return None,
        })
    }

    /// Parses an operation on inodes or on the connection itself, as [`name_operation`](Self::name_operation) does.
    fn inode_operation(&mut self, number: u32) -> Option<Option<Operation<'a>>> {
        Some(match number {
            opcode::INIT => self.init(),
            opcode::DESTROY => Some(Operation::Destroy),
            opcode::INTERRUPT => self.argument().map(Operation::Interrupt),
            opcode::FORGET => {
                self.argument().map(|ForgetIn { lookups }| Operation::Forget { lookups })
            }
            opcode::BATCH_FORGET => self.batch_forget(),
            opcode::GETATTR => self.argument().map(Operation::GetAttr),
            opcode::STATX => self.argument().map(Operation::Statx),
            opcode::SETATTR => self.argument().map(Operation::SetAttr),
            opcode::READLINK => Some(Operation::ReadLink),
            opcode::STATFS => Some(Operation::StatFs),
            opcode::SYNCFS => Some(Operation::SyncFs),
            opcode::ACCESS => self.argument().map(Operation::Access),
            opcode::LISTXATTR => {
                self.argument().map(|with: GetXattrIn| Operation::ListXattr { size: with.size })
            }
            _ => return None,
        })
    }

    fn named<T: Wire>(
        &mut self,
        operation: impl FnOnce(T, &'a CStr) -> Operation<'a>,
    ) -> Option<Operation<'a>> {
        let with = self.argument()?;
        Some(operation(with, self.name()?))
    }

    fn init(&mut self) -> Option<Operation<'a>> {
        let init = self.argument()?;
        // Before 7.36 kernels send no high half of the features.
        let high_features = self.argument().unwrap_or(0);
        Some(Operation::Init(init, high_features))
    }

    fn symlink(&mut self) -> Option<Operation<'a>> {
        let name = self.name()?;
        Some(Operation::SymLink { name, target: self.name()? })
    }

    fn rename<T: Wire>(&mut self, split: impl FnOnce(T) -> (u64, u32)) -> Option<Operation<'a>> {
        let (new_parent, flags) = split(self.argument()?);
        let name = self.name()?;
        Some(Operation::Rename { name, new_parent, new_name: self.name()?, flags })
    }

    fn setxattr(&mut self) -> Option<Operation<'a>> {
        let with: SetXattrIn = self.argument()?;
        let name = self.name()?;
        Some(Operation::SetXattr { with, name, value: self.data(with.size)? })
    }

    fn write(&mut self) -> Option<Operation<'a>> {
        let with: WriteIn = self.argument()?;
        Some(Operation::Write { with, data: self.data(with.size)? })
    }

    fn ioctl(&mut self) -> Option<Operation<'a>> {
        let with: IoctlIn = self.argument()?;
        Some(Operation::Ioctl { with, input: self.data(with.input_size)? })
    }

    fn lock(&mut self, wait: bool) -> Option<Operation<'a>> {
        Some(Operation::SetLock { with: self.argument()?, wait })
    }

    fn copy(&mut self, long: bool) -> Option<Operation<'a>> {
        Some(Operation::CopyFileRange { with: self.argument()?, long })
    }

    fn batch_forget(&mut self) -> Option<Operation<'a>> {
        let BatchForgetIn { count, .. } = self.argument()?;
        let length = count.checked_mul(u32::try_from(ForgetOne::SIZE).ok()?)?;
        Some(Operation::BatchForget(Forgets { bytes: self.data(length)? }))
    }
}

/// The first supplementary group in the extensions.
fn group(mut extensions: &[u8]) -> Option<u32> {
    while !extensions.is_empty() {
        let mut rest = extensions;
        let header = ExtensionHeader::take(&mut rest)?;
        if header.kind == EXTENSION_GROUPS {
            let [count, first] = <[u32; 2]>::take(&mut rest)?;
            return (count > 0).then_some(first);
        }
        // A length of zero would loop for ever.
        extensions = extensions.get(usize::try_from(header.size).ok()?.max(8)..)?;
    }
    None
}

impl fmt::Display for MalformedRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "malformed request with operation {}", self.opcode)
    }
}

impl std::error::Error for MalformedRequest {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MkDirIn;
    use proptest::prelude::*;

    fn header(number: u32, length: usize, extensions: u16) -> Vec<u8> {
        let length = u32::try_from(length).unwrap();
        let header = InHeader {
            length,
            opcode: number,
            unique: 7,
            inode: 1,
            uid: 1000,
            gid: 100,
            pid: 42,
            extensions,
            padding: 0,
        };
        let mut bytes = Vec::new();
        header.put(&mut bytes);
        bytes
    }

    /// The bytes of a request in one piece.
    fn joined(number: u32, body: &[u8], extensions: u16) -> Vec<u8> {
        let mut bytes = header(number, InHeader::SIZE + body.len(), extensions);
        bytes.extend_from_slice(body);
        bytes
    }

    fn mkdir_with_group() -> Vec<u8> {
        let mut body = Vec::new();
        MkDirIn { mode: 0o755, umask: 0o22 }.put(&mut body);
        body.extend_from_slice(b"folder\0");
        [16u32, EXTENSION_GROUPS, 1, 50].iter().for_each(|word| word.put(&mut body));
        body
    }

    #[test]
    fn a_request_in_one_piece_is_read() {
        let bytes = joined(opcode::MKDIR, &mkdir_with_group(), 2);
        let request = Frame::from_bytes(&bytes).unwrap().request().unwrap();
        assert_eq!((request.unique, request.inode), (7, 1));
        let caller = Caller { uid: 1000, gid: 100, pid: 42, folder_group: Some(50) };
        assert_eq!(request.caller, caller);
        let Operation::MkDir { with, name } = request.operation else { panic!("{request:?}") };
        assert_eq!((with.mode, with.umask, name), (0o755, 0o22, c"folder"));
    }

    #[test]
    fn a_request_in_three_pieces_is_the_same_request() {
        let body = mkdir_with_group();
        let (argument, payload) = body.split_at(MkDirIn::SIZE);
        let head = header(opcode::MKDIR, InHeader::SIZE + body.len(), 2);
        // Over io_uring the argument's buffer is longer.
        let argument = [argument, &[0; 120]].concat();
        let frame = Frame::from_parts(&head, &argument, payload).unwrap();
        assert_eq!(frame.to_bytes(), joined(opcode::MKDIR, &body, 2));
        let request = frame.request().unwrap();
        assert_eq!(request.caller.folder_group, Some(50));
        assert!(matches!(request.operation, Operation::MkDir { name, .. } if name == c"folder"));
    }

    #[test]
    fn a_batch_forgets_several_inodes() {
        let mut body = Vec::new();
        BatchForgetIn { count: 2, padding: 0 }.put(&mut body);
        for inode in [3, 4] {
            ForgetOne { inode, lookups: 2 }.put(&mut body);
        }
        let bytes = joined(opcode::BATCH_FORGET, &body, 0);
        let request = Frame::from_bytes(&bytes).unwrap().request().unwrap();
        let Operation::BatchForget(forgets) = request.operation else { panic!("{request:?}") };
        assert_eq!(forgets.map(|one| one.inode).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_name_without_a_zero_byte_is_malformed() {
        let bytes = joined(opcode::LOOKUP, b"name", 0);
        let malformed = Frame::from_bytes(&bytes).unwrap().request().unwrap_err();
        assert_eq!(malformed.to_string(), "malformed request with operation 1");
    }

    #[test]
    fn a_wrong_length_is_malformed() {
        let mut bytes = joined(opcode::LOOKUP, b"name\0", 0);
        bytes.push(0);
        assert!(Frame::from_bytes(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            number in 0u32..60,
            body in proptest::collection::vec(any::<u8>(), 0..200),
            extensions in 0u16..40,
        ) {
            let bytes = joined(number, &body, extensions);
            if let Ok(request) = Frame::from_bytes(&bytes).unwrap().request()
                && let Operation::BatchForget(forgets) = request.operation
            {
                prop_assert!(forgets.count() * ForgetOne::SIZE <= body.len());
            }
            let split = body.len() / 2;
            let frame = Frame::from_parts(&header(number, 0, extensions), &body[..split], &body[split..]);
            let _ = frame.unwrap().request();
        }
    }
}
