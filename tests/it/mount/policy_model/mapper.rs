//! A process that writes to files through maps, which would need unsafe code in this process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::io::Errno;

use super::rules::User;

/// `m UID GROUPS PATH` maps a file as that user and closes the file. `w BYTE` writes the first byte through the last
/// map.
const PROGRAM: &str = "
import mmap, os, sys
held = None
for line in sys.stdin:
    what, *rest = line.rstrip('\\n').split(' ', 3)
    try:
        if what == 'w':
            held[0] = int(rest[0])
        else:
            held, file = None, None
            os.setgroups([int(gid) for gid in rest[1].split(',') if gid])
            os.setegid(int(rest[0]))
            os.seteuid(int(rest[0]))
            try:
                file = os.open(rest[2], os.O_RDWR)
                held = mmap.mmap(file, 1)
            finally:
                os.seteuid(0)
                os.setegid(0)
                if file is not None:
                    os.close(file)
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
";

pub(super) struct Mapper {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Mapper {
    /// `None` where there is no Python.
    pub(super) fn start() -> Option<Self> {
        let mut python = Command::new("python3");
        python.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().ok()?;
        let (to, from) = (process.stdin.take()?, BufReader::new(process.stdout.take()?));
        Some(Self { process, to, from })
    }

    pub(super) fn map(&mut self, user: User, path: &Path) -> Result<(), Errno> {
        let groups: Vec<_> = user.groups.iter().map(u32::to_string).collect();
        self.ask(&format!("m {} {} {}", user.uid, groups.join(","), path.display()))
    }

    pub(super) fn write(&mut self, byte: u8) -> Result<(), Errno> {
        self.ask(&format!("w {byte}"))
    }

    fn ask(&mut self, command: &str) -> Result<(), Errno> {
        writeln!(self.to, "{command}").unwrap();
        let mut said = String::new();
        self.from.read_line(&mut said).unwrap();
        match said.trim().parse().unwrap() {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
