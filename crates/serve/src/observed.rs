//! What is noted of a connection's request while it is served, if the server counts.

/// The request of a connection, as it is counted when its response is whole.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// When it had its turn; zero without a request.
    pub(crate) begun_us: u64,
    pub(crate) waited_us: u64,
    pub(crate) status: u16,
    /// The hash of the client's name; zero while it is not known.
    pub(crate) client: u64,
    pub(crate) name: Vec<u8>,
    /// Method and path.
    pub(crate) target: Vec<u8>,
}
