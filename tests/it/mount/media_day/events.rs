//! Events of the disks: outages, moves between them, changes behind the mount, and restarts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::fixture::wait_until;
use super::model::{FileId, FileState, PIECE_BYTES, parent};
use super::server::{MediaServer, modified};
use crate::{stderr, stdout, thruway};

impl MediaServer {
    /// Unmounts a disk, or mounts one that is away.
    pub(super) fn disk_goes_or_comes(&mut self) {
        let away = (0..self.model.disks.len()).find(|&disk| self.model.disks[disk].is_away);
        match away {
            Some(disk) if self.numbers.below(3) > 0 => self.disk_comes(disk),
            _ => {
                let Some(disk) = self.choose(self.model.present()) else {
                    return;
                };
                self.disk_goes(disk);
            }
        }
    }

    fn disk_goes(&mut self, disk: usize) {
        if self.model.present().len() < 2 {
            return;
        }
        self.note(format!("disk {disk} goes"));
        let place = self.place(disk);
        self.disks.unmount(&place);
        self.model.disks[disk].is_away = true;
        self.await_sources();
        self.counts.outages += 1;
    }

    pub(super) fn disk_comes(&mut self, disk: usize) {
        self.note(format!("disk {disk} comes"));
        assert!(self.disks.bind(&self.aside(disk), &self.place(disk)));
        self.model.disks[disk].is_away = false;
        self.await_sources();
    }

    /// Waits until the mount has noticed which disks are away.
    fn await_sources(&mut self) {
        let away = self.model.disks.iter().filter(|disk| disk.is_away).count();
        // A daemon that gets no processor for seconds does not reply in time.
        let is_noticed = || {
            let failed = self.mounted.status_of_any("failed_sources");
            failed.as_object().is_some_and(|failed| failed.len() == away)
        };
        wait_until("the disks that are away are known", is_noticed);
        self.scanner.forget();
    }

    /// Moves files between the disks, as a timer does.
    pub(super) fn tier(&mut self) {
        let Some(to) = self.choose(self.model.present()) else { return };
        let mut command = thruway();
        command.args(["mount", "move", "--apply"]);
        match self.numbers.below(3) {
            0 => command.arg("--balance"),
            1 => command.args(["--older-than", "1", "--to"]).arg(self.place(to)),
            _ => command.args(["--until-fill", "40", "--to"]).arg(self.place(to)),
        };
        let output = command.arg(self.target("")).output().unwrap();
        // A file that another program has open for writing stays, and the exit status says so.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
        self.note(format!("move: {}{}", stdout(&output), stderr(&output)));
        self.follow_moves();
        if stdout(&output).contains(" stays: ") {
            self.follow_folders();
        }
    }

    /// Finds the folders that moves have made, also for files that stay because the other disk has no room for them.
    fn follow_folders(&mut self) {
        for folder in self.model.folders_below("") {
            for disk in self.model.present() {
                if self.aside(disk).join(&folder).is_dir() {
                    self.model.disks[disk].add_folders(&folder);
                }
            }
        }
    }

    /// Finds the files that were moved: with all their names, and never one that is open for writing.
    fn follow_moves(&mut self) {
        let written = self.written_files();
        let ids: Vec<FileId> = self.model.files.keys().copied().collect();
        for id in ids {
            let Some((disk, names)) = self.model.places(id) else { continue };
            let is_at =
                |disk: usize, name: &String| self.aside(disk).join(name).symlink_metadata().is_ok();
            if names.iter().all(|name| is_at(disk, name)) {
                continue;
            }
            // A file that the daemon writes moves, and its writers go on at the new place.
            let may_move = self.moves_when_full || !written.contains(&id);
            assert!(may_move, "{names:?} is open for writing, and moved");
            let is_known = |other: usize| self.model.disks[other].names.contains_key(&names[0]);
            let others =
                self.model.present().into_iter().filter(|&other| other != disk && !is_known(other));
            let on: Vec<_> = others.filter(|&other| is_at(other, &names[0])).collect();
            assert_eq!(on.len(), 1, "{names:?} of disk {disk} is on the disks {on:?}");
            self.model.move_file(id, on[0]);
            self.counts.moves += 1;
        }
    }

    /// A program that uses a disk directly copies a file there, changes or removes one.
    pub(super) fn change_behind(&mut self) {
        let Some(disk) = self.choose(self.model.present()) else { return };
        let names: Vec<_> = self.model.disks[disk].names.keys().cloned().collect();
        match (self.numbers.below(3), self.choose(names)) {
            (0, Some(name)) => {
                self.note(format!("remove {name} on disk {disk}"));
                fs::remove_file(self.aside(disk).join(&name)).unwrap();
                self.model.disks[disk].names.remove(&name);
                self.await_shown(&name);
            }
            (1, Some(name)) if !self.is_used(self.model.disks[disk].names[&name]) => {
                self.note(format!("change {name} on disk {disk}"));
                self.write_behind(disk, &name);
            }
            _ => {
                let folders: Vec<_> = self.model.disks[disk].folders.iter().cloned().collect();
                let Some(folder) = self.choose(folders) else { return };
                let name = format!("{folder}/copy {}", self.number());
                self.note(format!("copy {name} to disk {disk}"));
                self.write_behind(disk, &name);
            }
        }
    }

    /// Writes a file on a disk, as far as there is room.
    fn write_behind(&mut self, disk: usize, name: &str) {
        let length = 1 + self.numbers.below(PIECE_BYTES as u64);
        if self.free(disk) < 2 * length {
            return;
        }
        let number = self.number();
        let bytes = &FileState::piece(number, 0)[..usize::try_from(length).unwrap()];
        let path = self.aside(disk).join(name);
        fs::write(&path, bytes).unwrap();
        let stat = fs::symlink_metadata(&path).unwrap();
        let id = *self.model.disks[disk].names.entry(name.to_owned()).or_insert(number);
        let state = FileState {
            number,
            length,
            written: [0].into(),
            modified: Some(modified(&stat)),
            mode: stat.mode() & 0o7777,
            ..FileState::default()
        };
        self.model.files.insert(id, state);
        self.await_shown(name);
    }

    /// Fills a disk, or removes such a filling.
    pub(super) fn fill(&mut self) {
        let Some(disk) = self.choose(self.model.present()) else { return };
        let name = format!("filling {disk}");
        if self.model.disks[disk].names.contains_key(&name) {
            self.note(format!("remove {name}"));
            fs::remove_file(self.aside(disk).join(&name)).unwrap();
            self.model.disks[disk].names.remove(&name);
            return self.await_shown(&name);
        }
        let left = self.numbers.below(4) * PIECE_BYTES as u64;
        let length = self.free(disk).saturating_sub(left);
        self.note(format!("{name}, {left} bytes left"));
        let file = fs::File::create_new(self.aside(disk).join(&name)).unwrap();
        if length > 0 {
            let none = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, none, 0, length).unwrap();
        }
        let stat = file.metadata().unwrap();
        let id = self.number();
        self.model.disks[disk].names.insert(name.clone(), id);
        let (modified, mode) = (Some(modified(&stat)), stat.mode() & 0o7777);
        let state = FileState { length, modified, mode, ..FileState::default() };
        self.model.files.insert(id, state);
        self.await_shown(&name);
    }

    /// Waits until the mount shows a change that another program has made to this name.
    fn await_shown(&self, name: &str) {
        let times = |path: &Path| {
            let stat = fs::symlink_metadata(path).ok()?;
            Some((stat.len(), modified(&stat), stat.nlink()))
        };
        let newest = |folder: &str| {
            let parts = self
                .model
                .present()
                .into_iter()
                .filter_map(|disk| times(&self.aside(disk).join(folder)));
            parts.map(|(_, modified, _)| modified).max()
        };
        let is_shown = || {
            let stored =
                self.model.shown(name).and_then(|(disk, _)| times(&self.aside(disk).join(name)));
            let folder = times(&self.target(parent(name))).map(|(_, modified, _)| modified);
            times(&self.target(name)) == stored && folder == newest(parent(name))
        };
        wait_until(&format!("{name} is as on its disk"), is_shown);
    }

    /// Unmounts everything and mounts it again, as a reboot does.
    pub(super) fn restart(&mut self) {
        self.note("restart".into());
        self.close_torrents();
        self.mounted.remount(&self.arguments);
        self.await_sources();
        self.open_torrents();
    }
}
