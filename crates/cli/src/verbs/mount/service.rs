//! Notifies systemd of a mount in the foreground (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies systemd that the mount is ready, if systemd waits for the notification.
pub(super) fn say_ready() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        // On failure, systemd reports that the notification is missing.
        let _ = tell(&socket, b"READY=1");
    }
}

fn tell(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_sent_to_a_path_and_to_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let name = format!("thruway-service-test-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let at_name = UnixDatagram::bind_addr(&address).unwrap();
        for (listener, told) in
            [(at_path, path.into_os_string()), (at_name, format!("@{name}").into())]
        {
            tell(&told, b"READY=1").unwrap();
            let mut buffer = [0; 16];
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
    }
}
