//! Limits on the cost of a connection.

/// The rate at which a client may send frames that cost the server more than the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of frames that may arrive at once.
    pub burst: u32,
    /// The number of further frames per second.
    pub per_second: u32,
}

/// Limits on the cost of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of open streams. Further streams are refused.
    pub streams_max: u32,
    /// The maximum size of a request's fields in bytes, as HPACK counts them: each field costs 32 bytes in addition to
    /// its name and value. Beyond four times this size, the connection ends.
    pub head_bytes_max: u32,
    /// Streams that the client resets. A browser that leaves a page resets all open streams.
    pub resets: Rate,
    /// The maximum number of streams that the client makes the server reset, over the whole connection.
    pub provoked_resets_max: usize,
    /// PING frames.
    pub pings: Rate,
    /// SETTINGS frames.
    pub settings: Rate,
    /// DATA frames without data that do not end their body.
    pub empty_data: Rate,
    /// PRIORITY frames and frames of unknown types, which have no effect.
    pub ignored: Rate,
    /// The receive window of a stream in bytes.
    pub stream_window_bytes: u32,
    /// The receive window of the connection in bytes.
    pub window_bytes: u32,
    /// The maximum number of bytes of a response that wait in the session for the client's windows. Bytes that wait
    /// outside of the session do not count.
    pub send_buffer_bytes: usize,
}

impl Default for Limits {
    /// nginx and nghttp2 allow 100 to 128 streams and larger bursts of resets. Bodies are written to files as they
    /// arrive, so a window costs no memory.
    fn default() -> Self {
        Self {
            streams_max: 100,
            head_bytes_max: 64 << 10,
            resets: Rate { burst: 400, per_second: 40 },
            provoked_resets_max: 100,
            pings: Rate { burst: 100, per_second: 10 },
            settings: Rate { burst: 50, per_second: 5 },
            empty_data: Rate { burst: 100, per_second: 10 },
            ignored: Rate { burst: 1_000, per_second: 100 },
            stream_window_bytes: 1 << 20,
            window_bytes: 2 << 20,
            send_buffer_bytes: 256 << 10,
        }
    }
}
