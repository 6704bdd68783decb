//! The machine code of the stub, assembled from `x86_64.s`.

use super::layout;

core::arch::global_asm!(
    include_str!("x86_64.s"),
    STATE = const layout::STATE,
    CLOSED = const crate::shared_memory::OWNER_DIED,
    SLOT_SHIFT = const layout::SLOT_SHIFT,
    BUSY = const layout::BUSY,
    HEAD = const layout::HEAD,
    TAIL = const layout::TAIL,
    RING = const layout::RING,
    RING_BYTES = const layout::RING_BYTES,
    RECORD_MAX = const layout::RECORD_MAX,
    SIZE = const layout::SIZE,
    NUMBER = const layout::NUMBER,
    THREAD = const layout::THREAD,
    STARTED = const layout::STARTED,
    ENDED = const layout::ENDED,
    RESULT = const layout::RESULT,
    ARGUMENTS = const layout::ARGUMENTS,
    NAMES = const layout::NAMES,
    NAME_MAX = const layout::NAME_MAX,
    SHAPES = const layout::SHAPES,
    COOKIE = const layout::COOKIE,
    OWNER = const layout::OWNER,
    FIRST_SLOT = const layout::FIRST_SLOT,
    LAST_SLOT = const layout::LAST_SLOT,
    OWN_THREAD = const layout::OWN_THREAD,
    SAVED_ARGUMENTS = const layout::SAVED_ARGUMENTS,
    SAVED_BACK = const layout::SAVED_BACK,
    SAVED_RBX = const layout::SAVED_RBX,
    SAVED_RBP = const layout::SAVED_RBP,
    SAVED_R9 = const layout::SAVED_R9,
    SAVED_R12 = const layout::SAVED_R12,
    SAVED_R13 = const layout::SAVED_R13,
    SAVED_R14 = const layout::SAVED_R14,
    SAVED_R15 = const layout::SAVED_R15,
    READ_WRITE_CLOEXEC = const libc::O_RDWR | libc::O_CLOEXEC,
    OPEN = const libc::SYS_open,
    AREA_BYTES = const layout::AREA_BYTES,
    READ_WRITE = const libc::PROT_READ | libc::PROT_WRITE,
    SHARED = const libc::MAP_SHARED | libc::MAP_NORESERVE,
    MMAP = const libc::SYS_mmap,
    PRIVATE_BYTES = const layout::PRIVATE_BYTES,
    READ_EXECUTE = const libc::PROT_READ | libc::PROT_EXEC,
    PRIVATE = const libc::MAP_PRIVATE,
    NEAR = const layout::NEAR,
    BASE = const layout::BASE,
    PRIVATE_FIXED = const libc::MAP_PRIVATE | libc::MAP_FIXED,
    CLOSE = const libc::SYS_close,
    PATH_BYTES = const layout::PATH_BYTES,
);

unsafe extern "C" {
    static thruway_stub: u8;
    static thruway_stub_load_word: u8;
    static thruway_stub_load_byte: u8;
    static thruway_stub_unreadable: u8;
    static thruway_stub_called: u8;
    static thruway_stub_end: u8;
    static thruway_start: u8;
    static thruway_start_cookie: u8;
    static thruway_start_hint: u8;
    static thruway_start_near: u8;
    static thruway_start_entry: u8;
    static thruway_start_report: u8;
    static thruway_start_path: u8;
    static thruway_start_end: u8;
}

/// Returns the stub's code, which belongs at [`layout::CODE`].
#[must_use]
pub fn code() -> &'static [u8] {
    between(&raw const thruway_stub, &raw const thruway_stub_end)
}

/// Returns the offsets of the two instructions of the stub that may fault on a bad address.
#[must_use]
pub fn loads() -> [u64; 2] {
    [&raw const thruway_stub_load_word, &raw const thruway_stub_load_byte]
        .map(|load| distance(&raw const thruway_stub, load))
}

/// Returns the offset at which the stub continues after a bad address.
#[must_use]
pub fn unreadable() -> u64 {
    distance(&raw const thruway_stub, &raw const thruway_stub_unreadable)
}

/// Returns the offset in the stub just behind its `syscall` instruction, which makes the recorded call.
#[must_use]
pub fn after_syscall() -> u64 {
    distance(&raw const thruway_stub, &raw const thruway_stub_called)
}

/// The parameters of the start code.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The path of the area's file, shorter than [`layout::PATH_BYTES`] bytes.
    pub path: &'a str,
    /// The secret argument by which the seccomp filter recognises the stub's own open of the area's file.
    pub cookie: u64,
    /// The preferred address of the area; 0 lets the kernel choose.
    pub hint: u64,
    /// The address of a second mapping of the private part; 0 for none.
    pub near: u64,
    /// The offset in the area where the start code reports that the mapping succeeded.
    pub report: usize,
    /// The program's entry point.
    pub entry: u64,
}

impl Start<'_> {
    /// Returns the start code, which runs at any address.
    #[must_use]
    pub fn code(&self) -> Vec<u8> {
        let start = &raw const thruway_start;
        let mut code = between(start, &raw const thruway_start_end).to_vec();
        let mut put = |label: *const u8, bytes: &[u8]| {
            let at = usize::try_from(distance(start, label)).unwrap_or(usize::MAX);
            code[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(&raw const thruway_start_cookie, &self.cookie.to_le_bytes());
        put(&raw const thruway_start_hint, &self.hint.to_le_bytes());
        put(&raw const thruway_start_near, &self.near.to_le_bytes());
        put(&raw const thruway_start_entry, &self.entry.to_le_bytes());
        put(&raw const thruway_start_report, &(self.report as u64).to_le_bytes());
        put(&raw const thruway_start_path, self.path.as_bytes());
        code
    }
}

fn distance(start: *const u8, end: *const u8) -> u64 {
    (end.addr() - start.addr()) as u64
}

fn between(start: *const u8, end: *const u8) -> &'static [u8] {
    let length = end.addr() - start.addr();
    // SAFETY: both labels delimit a section of read-only bytes, in this order.
    unsafe { std::slice::from_raw_parts(start, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_before_its_data() {
        assert!(code().len() <= layout::COOKIE, "{}", code().len());
        assert!(loads().is_sorted() && loads()[1] < unreadable() && unreadable() < after_syscall());
    }

    #[test]
    fn the_start_carries_its_data() {
        let start = Start {
            path: "/proc/1/fd/3",
            cookie: 7,
            hint: 0,
            near: 0,
            report: 24,
            entry: 0x40_1000,
        };
        let code = start.code();
        let holds = |bytes: &[u8]| code.windows(bytes.len()).any(|window| window == bytes);
        assert!(holds(b"/proc/1/fd/3\0") && holds(&0x40_1000_u64.to_le_bytes()));
    }
}
