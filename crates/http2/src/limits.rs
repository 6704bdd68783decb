//! What one connection may cost.

/// How often a client may do something that costs more than it brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many at once.
    pub burst: u32,
    /// So many a second after that.
    pub per_second: u32,
}

/// What one connection may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Streams that are open at once; the next ones are refused.
    pub streams_max: u32,
    /// Bytes of a request's fields, as HPACK counts them: 32 for each field beside its name and value. From four times
    /// that on, the connection ends.
    pub head_bytes_max: u32,
    /// Streams that the client resets: a browser that leaves a page resets all that are open.
    pub resets: Rate,
    /// Streams that the client makes the server reset, over the whole connection.
    pub provoked_resets_max: usize,
    /// PING frames.
    pub pings: Rate,
    /// SETTINGS frames.
    pub settings: Rate,
    /// DATA frames without data that do not end their body.
    pub empty_data: Rate,
    /// PRIORITY frames, and those of unknown types: nothing is done for them.
    pub ignored: Rate,
    /// Bytes of one request's body that are under way.
    pub stream_window_bytes: u32,
    /// The same of all bodies together.
    pub window_bytes: u32,
    /// Bytes of one response that wait for the client's windows in the session, beside those that wait in front of it.
    pub send_buffer_bytes: usize,
}

impl Default for Limits {
    /// nginx and nghttp2 have 100 to 128 streams, and allow bursts of resets above that. A body is written to its file
    /// as it comes, so a window costs no memory.
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
