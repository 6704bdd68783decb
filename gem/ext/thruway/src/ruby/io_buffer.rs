//! `IO::Buffer`: memory lent by Ruby to a scheduler, for a single read or write.

use std::ffi::c_void;

use rb_sys::VALUE;

use super::gvl::ProtectedCall;

/// The memory of an `IO::Buffer`. It stays in place as long as the buffer is locked or its owner waits for the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// A number, so that a thread without the interpreter lock may use it.
    address: usize,
    size: usize,
}

impl Memory {
    /// The memory of `buffer`, to be read. Raises what Ruby raises for a buffer without memory.
    pub(crate) fn to_read(_: ProtectedCall, buffer: VALUE) -> Self {
        let (mut base, mut size) = (std::ptr::null::<c_void>(), 0);
        // SAFETY: the function checks that the object is a buffer; exceptions are caught further up.
        unsafe {
            rb_sys::rb_io_buffer_get_bytes_for_reading(buffer, &raw mut base, &raw mut size);
        }
        Self { address: base.expose_provenance(), size: usize::try_from(size).unwrap_or(0) }
    }

    /// As [`to_read`](Self::to_read), for memory to be written. Raises for a read-only buffer.
    pub(crate) fn to_write(_: ProtectedCall, buffer: VALUE) -> Self {
        let (mut base, mut size) = (std::ptr::null_mut::<c_void>(), 0);
        // SAFETY: the function checks that the object is a buffer; exceptions are caught further up.
        unsafe {
            rb_sys::rb_io_buffer_get_bytes_for_writing(buffer, &raw mut base, &raw mut size);
        }
        Self { address: base.expose_provenance(), size: usize::try_from(size).unwrap_or(0) }
    }

    /// The memory behind the first `count` bytes.
    pub(crate) fn skip(self, count: usize) -> Self {
        let count = count.min(self.size);
        Self { address: self.address + count, size: self.size - count }
    }

    pub(crate) fn at_most(self, size: usize) -> Self {
        Self { size: self.size.min(size), ..self }
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// The first byte.
    pub(crate) fn start(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.address)
    }
}
