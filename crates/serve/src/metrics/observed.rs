//! Notes on a connection's request while it is served, if the server counts requests.

use crate::metrics::TARGET_BYTES;

/// The request of a connection, counted when its response is complete.
#[derive(Debug, Default)]
pub(crate) struct ObservedRequest {
    /// When the request had its turn; zero without a request.
    pub(crate) begun_us: u64,
    pub(crate) waited_us: u64,
    pub(crate) status: u16,
    /// The hash of the client's name; zero while the name is unknown.
    pub(crate) client: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) target: Target,
}

/// The beginning of a request's method and path.
#[derive(Debug)]
pub(crate) struct Target {
    bytes: [u8; TARGET_BYTES],
    length: usize,
}

impl Default for Target {
    fn default() -> Self {
        Self { bytes: [0; TARGET_BYTES], length: 0 }
    }
}

impl Target {
    pub(crate) fn set(&mut self, method: &[u8], path: &[u8]) {
        self.length = 0;
        for part in [method, b" ", path] {
            let room = &mut self.bytes[self.length..];
            let fits = part.len().min(room.len());
            room[..fits].copy_from_slice(&part[..fits]);
            self.length += fits;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_target_is_cut() {
        let mut target = Target::default();
        target.set(b"GET", &[b'/'; 200]);
        assert_eq!(target.bytes().len(), TARGET_BYTES);
        target.set(b"PUT", b"/a");
        assert_eq!(target.bytes(), b"PUT /a");
    }
}
