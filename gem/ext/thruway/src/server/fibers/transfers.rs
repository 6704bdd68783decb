//! The hooks that read and write: `io_read`, `io_write`, `io_pread` and `io_pwrite`.
//!
//! A socket is read and written without a wait, and so is any descriptor with O_NONBLOCK. A descriptor without the
//! flag, such as an inherited pipe or a terminal, is used once `poll` finds it ready: the flag belongs to all processes
//! that share the descriptor, and stays as it is.

use libc::{c_int, c_short, off_t, ssize_t};
use rb_sys::VALUE;
use rustix::io::Errno;
use thruway_roles::AwaitedEvent;

use super::scheduler::TYPE;
use crate::ruby::call::send;
use crate::ruby::io_buffer::Memory;
use crate::ruby::{Gvl, NIL, ProtectedCall, fiber, number, thread};

/// The most that a pipe or a terminal takes without a wait once it is writable.
const PIECE_MAX: usize = libc::PIPE_BUF;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    fn memory(self, ruby: ProtectedCall, buffer: VALUE) -> Memory {
        match self {
            Self::Read => Memory::to_write(ruby, buffer),
            Self::Write => Memory::to_read(ruby, buffer),
        }
    }

    /// The event of `poll` that lets the transfer go on.
    fn event(self) -> c_short {
        match self {
            Self::Read => libc::POLLIN,
            Self::Write => libc::POLLOUT,
        }
    }
}

/// The buffer of a transfer, and how much of it is to be transferred.
#[derive(Clone, Copy)]
struct Transfer {
    io: VALUE,
    buffer: VALUE,
    /// The least number of bytes; zero for one attempt without a wait.
    length: usize,
    /// Where the transfer begins in the buffer.
    offset: usize,
}

impl Transfer {
    fn new(ruby: ProtectedCall, given: &[VALUE], [length, offset]: [usize; 2]) -> Self {
        let at = |index| given.get(index).copied().unwrap_or(NIL);
        let count = |index| given.get(index).map_or(0, |&count| number::to_u64(ruby, count));
        let [length, offset] =
            [length, offset].map(|index| usize::try_from(count(index)).unwrap_or(usize::MAX));
        Self { io: at(0), buffer: at(1), length, offset }
    }
}

/// `io_read(io, buffer, length, offset = 0)`: returns the number of bytes read, or a negative errno.
pub(super) fn io_read(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    run(ruby, this, Transfer::new(ruby, given, [2, 3]), Direction::Read)
}

/// `io_write(io, buffer, length, offset = 0)`: returns the number of bytes written, or a negative errno.
pub(super) fn io_write(ruby: ProtectedCall, this: VALUE, given: &[VALUE]) -> VALUE {
    run(ruby, this, Transfer::new(ruby, given, [2, 3]), Direction::Write)
}

/// `io_pread(io, buffer, from, length, offset)`, and before Ruby 3.2 `io_pread(io, buffer, length, from)`.
pub(super) fn io_pread(ruby: ProtectedCall, _this: VALUE, given: &[VALUE]) -> VALUE {
    run_at(ruby, given, Direction::Read)
}

/// As [`io_pread`], for `io_pwrite`.
pub(super) fn io_pwrite(ruby: ProtectedCall, _this: VALUE, given: &[VALUE]) -> VALUE {
    run_at(ruby, given, Direction::Write)
}

/// Transfers at the descriptor's own position. The fiber waits until `length` bytes have been transferred.
fn run(ruby: ProtectedCall, this: VALUE, transfer: Transfer, direction: Direction) -> VALUE {
    let mut done = 0;
    loop {
        let descriptor = fiber::descriptor(ruby, transfer.io);
        let memory =
            direction.memory(ruby, transfer.buffer).skip(transfer.offset.saturating_add(done));
        if memory.size() == 0 {
            return transferred(ruby.gvl(), done);
        }
        match attempt(ruby.gvl(), descriptor, memory, direction) {
            Ok(0) => return transferred(ruby.gvl(), done),
            Ok(count) => {
                done += count;
                // On a blocking descriptor, Ruby expects that a write is complete.
                let is_complete = direction == Direction::Read || count == memory.size();
                if done >= transfer.length && (is_complete || !is_blocking(descriptor)) {
                    return transferred(ruby.gvl(), done);
                }
            }
            Err(Errno::INTR) => thread::check_interrupts(ruby),
            Err(error) => {
                if error != Errno::AGAIN || !waits_here(ruby, transfer, done, descriptor) {
                    return if done > 0 { transferred(ruby.gvl(), done) } else { failed(error) };
                }
                let events = direction.event().unsigned_abs().into();
                let awaited = AwaitedEvent::Io { descriptor, events };
                TYPE.get(ruby, &this).suspend(ruby, awaited, None);
            }
        }
    }
}

/// Whether the hook waits when the descriptor is not ready, instead of returning EAGAIN to Ruby. The hook has to wait
/// until the requested length is transferred. Beyond that Ruby waits, but some of Ruby's methods do not wait for a
/// descriptor without O_NONBLOCK. For those the hook waits, unless the IO has a time limit, which only Ruby can keep.
fn waits_here(ruby: ProtectedCall, transfer: Transfer, done: usize, descriptor: c_int) -> bool {
    if done < transfer.length {
        return true;
    }
    is_blocking(descriptor) && io_timeout(ruby.gvl(), transfer.io) == NIL
}

/// The timeout of an IO in seconds; nil for none, and before Ruby 3.2, where an IO has no timeout.
pub(super) fn io_timeout(gvl: Gvl, io: VALUE) -> VALUE {
    if !fiber::HAS_STORAGE {
        return NIL;
    }
    send(gvl, io, c"timeout", &[]).unwrap_or(NIL)
}

/// Transfers at a position of a file.
fn run_at(ruby: ProtectedCall, given: &[VALUE], direction: Direction) -> VALUE {
    let (from, places) = if given.len() > 4 { (2, [3, 4]) } else { (3, [2, usize::MAX]) };
    let from = given.get(from).map_or(0, |&from| number::to_i64(ruby, from));
    let transfer = Transfer::new(ruby, given, places);
    let mut done = 0;
    loop {
        let descriptor = fiber::descriptor(ruby, transfer.io);
        let memory =
            direction.memory(ruby, transfer.buffer).skip(transfer.offset.saturating_add(done));
        let at = from.saturating_add_unsigned(done as u64);
        match unlocked(ruby.gvl(), || transfer_at(descriptor, memory, at, direction)) {
            Ok(count) => {
                done += count;
                if count == 0 || done >= transfer.length {
                    return transferred(ruby.gvl(), done);
                }
            }
            Err(Errno::INTR) => thread::check_interrupts(ruby),
            Err(error) if done == 0 => return failed(error),
            Err(_) => return transferred(ruby.gvl(), done),
        }
    }
}

fn transferred(gvl: Gvl, count: usize) -> VALUE {
    number::from_u64(gvl, count as u64)
}

/// The value that stands for an error.
fn failed(error: Errno) -> VALUE {
    rb_sys::LONG2NUM(-i64::from(error.raw_os_error()))
}

/// Reads or writes once, without a wait.
fn attempt(
    gvl: Gvl,
    descriptor: c_int,
    memory: Memory,
    direction: Direction,
) -> Result<usize, Errno> {
    match transfer_of_socket(descriptor, memory, direction) {
        Err(Errno::NOTSOCK) => {}
        done => return done,
    }
    if !is_blocking(descriptor) {
        return unlocked(gvl, || transfer(descriptor, memory, direction));
    }
    if !is_ready(descriptor, direction) {
        return Err(Errno::AGAIN);
    }
    let is_piece = direction == Direction::Write && !is_file(descriptor);
    let memory = if is_piece { memory.at_most(PIECE_MAX) } else { memory };
    unlocked(gvl, || transfer(descriptor, memory, direction))
}

/// The result of a call that another thread's work goes on beside.
fn unlocked(gvl: Gvl, call: impl Fn() -> Result<usize, Errno> + Sync) -> Result<usize, Errno> {
    // Ruby does not make the call if an interrupt is pending.
    let mut done = Err(Errno::INTR);
    gvl.release_for_call(|| done = call());
    done
}

fn count(returned: ssize_t) -> Result<usize, Errno> {
    let last_error = |_| Errno::from_io_error(&std::io::Error::last_os_error());
    usize::try_from(returned).map_err(|error| last_error(error).unwrap_or(Errno::IO))
}

fn transfer_of_socket(
    descriptor: c_int,
    memory: Memory,
    direction: Direction,
) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (start, size) = (memory.start(), memory.size());
    count(match direction {
        // SAFETY: the memory is that of a live buffer, which may be written.
        Direction::Read => unsafe { libc::recv(descriptor, start, size, flags) },
        // SAFETY: the memory is that of a live buffer.
        Direction::Write => unsafe { libc::send(descriptor, start, size, flags) },
    })
}

fn transfer(descriptor: c_int, memory: Memory, direction: Direction) -> Result<usize, Errno> {
    let (start, size) = (memory.start(), memory.size());
    count(match direction {
        // SAFETY: the memory is that of a live buffer, which may be written.
        Direction::Read => unsafe { libc::read(descriptor, start, size) },
        // SAFETY: the memory is that of a live buffer.
        Direction::Write => unsafe { libc::write(descriptor, start, size) },
    })
}

fn transfer_at(
    descriptor: c_int,
    memory: Memory,
    at: off_t,
    direction: Direction,
) -> Result<usize, Errno> {
    let (start, size) = (memory.start(), memory.size());
    count(match direction {
        // SAFETY: the memory is that of a live buffer, which may be written.
        Direction::Read => unsafe { libc::pread(descriptor, start, size, at) },
        // SAFETY: the memory is that of a live buffer.
        Direction::Write => unsafe { libc::pwrite(descriptor, start, size, at) },
    })
}

/// Whether calls on the descriptor block. The call on a closed one reports its error.
fn is_blocking(descriptor: c_int) -> bool {
    // SAFETY: the call has no preconditions.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK == 0
}

/// Whether a call would not block, or would report an error.
fn is_ready(descriptor: c_int, direction: Direction) -> bool {
    let mut polled = libc::pollfd { fd: descriptor, events: direction.event(), revents: 0 };
    // SAFETY: one structure is passed, which the call fills in.
    unsafe { libc::poll(&raw mut polled, 1, 0) != 0 }
}

/// Whether a write of any size ends without a reader.
fn is_file(descriptor: c_int) -> bool {
    // SAFETY: all bytes of the structure may be zero.
    let mut found = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: the call fills in the structure.
    let is_known = unsafe { libc::fstat(descriptor, &raw mut found) } == 0;
    is_known && matches!(found.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK)
}
