//! The connection to the kernel, for messages other than replies.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use thruway_fuse::{ConnectionOptions, Notification};
use thruway_sys::fuse;

use crate::inodes::InodeId;
use crate::transport::device;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) device: OwnedFd,
    pub(super) negotiated: ConnectionOptions,
}

impl Connection {
    /// Sends a notification. `ENOENT` is not an error, since an inode that the kernel does not know needs no
    /// invalidation.
    pub(crate) fn notify(&self, notification: &Notification<'_>) -> Result<(), Errno> {
        match device::write_message(&self.device, &notification.to_bytes()) {
            Err(Errno::NOENT) => Ok(()),
            sent => sent,
        }
    }

    pub(super) fn invalidate_attributes(&self, id: InodeId) {
        // The readers notice if the connection is gone.
        let _ = self.notify(&Notification::Attributes { inode: id.0 });
    }

    pub(super) fn close_backing(&self, backing_id: i32) {
        if backing_id > 0 {
            // If the connection is gone, so is the backing file.
            let _ = fuse::close_backing(self.device.as_fd(), backing_id);
        }
    }
}
