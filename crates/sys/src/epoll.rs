//! Waits for events without `epoll_pwait2`, which kernels before 5.11 and some sandboxes lack.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::epoll::Event;
use rustix::io::Errno;

const _: () = assert!(size_of::<Event>() == size_of::<libc::epoll_event>());

/// Fills `events` up to its capacity and returns the number of events. Waits for at most `timeout_ms`, or indefinitely
/// without a timeout.
///
/// # Errors
/// Any error of `epoll_wait`, such as `EINTR`.
pub fn wait_ms(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout_ms: Option<u32>,
) -> Result<usize, Errno> {
    events.clear();
    let room = i32::try_from(events.capacity()).unwrap_or(i32::MAX);
    let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
    let start = events.as_mut_ptr().cast::<libc::epoll_event>();
    // SAFETY: `events` has room for that many events, and both crates use the kernel's layout.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), start, room, timeout) };
    let Ok(count) = usize::try_from(count) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    };
    // SAFETY: the kernel has written `count` events, which is at most the capacity.
    unsafe { events.set_len(count) };
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn events_come_with_their_words_and_a_wait_ends() {
        let epoll = create(CreateFlags::CLOEXEC).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        add(&epoll, &reader, EventData::new_u64(7), EventFlags::IN).unwrap();
        let mut events = Vec::with_capacity(4);
        assert_eq!(wait_ms(epoll.as_fd(), &mut events, Some(1)), Ok(0));
        writer.write_all(b"x").unwrap();
        assert_eq!(wait_ms(epoll.as_fd(), &mut events, None), Ok(1));
        assert_eq!(events.iter().map(|event| event.data.u64()).collect::<Vec<_>>(), [7]);
        let mut none = Vec::new();
        assert_eq!(wait_ms(epoll.as_fd(), &mut none, Some(0)), Err(Errno::INVAL));
    }
}
