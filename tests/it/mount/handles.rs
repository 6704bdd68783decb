//! Files of a mount by their handles, as an NFS server keeps them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::fs::OFlags;
use thruway_sys::handle::FileHandle;

use super::fixture::Mounted;

fn handle(mounted: &Mounted) -> FileHandle {
    fs::write(mounted.source("file"), mounted.folder.path().to_str().unwrap()).unwrap();
    FileHandle::of(File::open(mounted.target("")).unwrap().as_fd(), c"file").unwrap()
}

/// Reads the file to which the handle leads on this mount.
fn read(mounted: &Mounted, handle: &FileHandle) -> io::Result<String> {
    let root = File::open(mounted.target("")).unwrap();
    let flags = i32::try_from(OFlags::RDONLY.bits()).unwrap();
    let mut text = String::new();
    File::from(handle.open(root.as_fd(), flags)?).read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_handle_leads_to_its_file_and_never_to_one_of_another_mount() {
    let Some(mounted) = Mounted::new(&[]) else { return };
    let Some(other) = Mounted::new(&[]) else { return };
    let (ours, theirs) = (handle(&mounted), handle(&other));
    let path = mounted.folder.path().to_str().unwrap();
    assert_eq!(read(&mounted, &ours).unwrap(), path);
    fs::rename(mounted.target("file"), mounted.target("renamed")).unwrap();
    assert_eq!(read(&mounted, &ours).unwrap(), path);
    assert_eq!(read(&mounted, &theirs).unwrap_err().raw_os_error(), Some(116));
}
