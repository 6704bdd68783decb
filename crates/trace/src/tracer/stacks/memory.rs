//! The memory of a stopped process, read page by page.

use thruway_sys::ptrace;

const PAGE: u64 = 4096;

/// The pages that have been read since the thread stopped.
pub(super) struct Memory {
    id: i32,
    pages: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    pub(super) fn of(id: i32) -> Self {
        Self { id, pages: Vec::new() }
    }

    /// Returns the word at an address; `None` if it cannot be read, or lies in two pages.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        self.within_page(address, 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the four bytes at an address as a number.
    pub(super) fn half(&mut self, address: u64) -> Option<u32> {
        self.within_page(address, 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Returns the byte at an address.
    pub(super) fn byte(&mut self, address: u64) -> Option<u8> {
        self.within_page(address, 1)?.first().copied()
    }

    /// Returns bytes, which may lie in several pages.
    pub(super) fn bytes(&mut self, address: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let (mut at, mut left) = (address, length);
        while left > 0 {
            let piece = left.min(PAGE - at % PAGE);
            bytes.extend_from_slice(self.within_page(at, piece)?);
            (at, left) = (at.checked_add(piece)?, left - piece);
        }
        Some(bytes)
    }

    /// Returns the bytes up to a NUL, at most `longest`.
    pub(super) fn text(&mut self, address: u64, longest: u64) -> Option<Vec<u8>> {
        let mut bytes = self.bytes(address, longest)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }

    fn within_page(&mut self, address: u64, length: u64) -> Option<&[u8]> {
        let start = address - address % PAGE;
        let offset = usize::try_from(address % PAGE).ok()?;
        let known = self.pages.iter().position(|(page, _)| *page == start);
        let page = match known {
            Some(at) => at,
            None => {
                let mut bytes = vec![0; 4096];
                let count = ptrace::read_memory(self.id, start, &mut bytes).unwrap_or(0);
                bytes.truncate(count);
                self.pages.push((start, bytes));
                self.pages.len() - 1
            }
        };
        self.pages[page].1.get(offset..offset + usize::try_from(length).ok()?)
    }
}
