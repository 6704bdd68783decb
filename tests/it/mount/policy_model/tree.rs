//! Files and folders under a policy, and the effect of each operation on them.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;

use super::rules::{Facts, Rules, User, facts};

/// A place: the folders below the sequence's own folder, and the name.
pub(super) type Place = (&'static str, &'static str);

/// The result of an operation, as bytes to compare.
pub(super) type OperationResult = Result<Vec<u8>, Errno>;

/// The first byte that is a secret. Each secret is in a single file at first.
pub(super) const SECRET: u8 = 128;

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Folder(BTreeMap<String, usize>),
    File(Vec<u8>),
    Link,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) owner: u32,
    pub(super) names: usize,
    /// Whether the node has, or had, names to which different rules apply.
    pub(super) is_crossed: bool,
    pub(super) attribute: Option<u8>,
}

impl Node {
    pub(super) fn new(kind: Kind, owner: u32) -> Self {
        Self { kind, owner, names: 0, is_crossed: false, attribute: None }
    }

    pub(super) fn facts(&self) -> Facts {
        match &self.kind {
            Kind::File(data) => facts(data),
            _ => None,
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder(_))
    }
}

/// The users who may know a secret.
#[derive(Debug, Default)]
struct Secret {
    readers: BTreeSet<u32>,
    /// Whether a reader has moved or copied the secret. The reader is responsible for its place from then on.
    is_given_away: bool,
}

pub(super) struct Tree<'a> {
    pub(super) rules: &'a Rules,
    /// The name of the sequence's own folder, below the mount's root.
    pub(super) base: String,
    pub(super) nodes: Vec<Node>,
    secrets: BTreeMap<u8, Secret>,
    /// Whether users may link only their own files and files that they may write to.
    pub(super) protects_links: bool,
}

/// The result of a search for a name.
pub(super) struct LookupResult {
    pub(super) folder: usize,
    pub(super) node: Option<usize>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(rules: &'a Rules, base: String, protects_links: bool) -> Self {
        let root = Node::new(Kind::Folder(BTreeMap::new()), 0);
        Self { rules, base, nodes: vec![root], secrets: BTreeMap::new(), protects_links }
    }

    /// The whole path, name by name.
    pub(super) fn path<'p>(&'p self, (folder, name): (&'p str, &'p str)) -> Vec<&'p str> {
        let folders = folder.split('/').filter(|name| !name.is_empty());
        let mut path: Vec<_> = std::iter::once(self.base.as_str()).chain(folders).collect();
        path.push(name);
        path
    }

    fn children(&self, folder: usize) -> &BTreeMap<String, usize> {
        match &self.nodes[folder].kind {
            Kind::Folder(children) => children,
            _ => panic!("{folder} is no folder"),
        }
    }

    fn children_mut(&mut self, folder: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[folder].kind {
            Kind::Folder(children) => children,
            _ => panic!("{folder} is no folder"),
        }
    }

    /// Whether there is something, shown or not.
    pub(super) fn has(&self, (folder, name): Place) -> bool {
        let mut names = folder.split('/').filter(|name| !name.is_empty()).chain([name]);
        let down = |at: usize, name| match &self.nodes[at].kind {
            Kind::Folder(children) => children.get(name).copied(),
            _ => None,
        };
        names.try_fold(0, down).is_some()
    }

    /// Returns the node of a name, as the mount shows it.
    fn shown(&self, folder: usize, path: &[&str]) -> Option<usize> {
        if self.rules.hides(path) {
            return None;
        }
        self.children(folder).get(*path.last()?).copied()
    }

    /// Follows the folders. A missing folder, or anything but a folder, is an error.
    fn folder(&self, user: User, folder: &str) -> Result<usize, Errno> {
        let mut at = 0;
        let mut path = vec![self.base.as_str()];
        for name in folder.split('/').filter(|name| !name.is_empty()) {
            path.push(name);
            at = self.shown(at, &path).ok_or(Errno::NOENT)?;
            self.follow(user, at, &path)?;
            if !self.nodes[at].is_folder() {
                return Err(Errno::NOTDIR);
            }
        }
        Ok(at)
    }

    /// All symbolic links lead nowhere; not every user may read their targets.
    fn follow(&self, user: User, node: usize, path: &[&str]) -> Result<(), Errno> {
        match self.nodes[node].kind {
            Kind::Link => {
                self.rules.judge(user, path, (true, false), None)?;
                Err(Errno::NOENT)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn find(&self, user: User, place: Place) -> Result<LookupResult, Errno> {
        let folder = self.folder(user, place.0)?;
        Ok(LookupResult { folder, node: self.shown(folder, &self.path(place)) })
    }

    /// Returns the node at a place, without following a symbolic link.
    pub(super) fn get(&self, user: User, place: Place) -> Result<usize, Errno> {
        self.find(user, place)?.node.ok_or(Errno::NOENT)
    }

    /// Returns the node at a place, and follows a symbolic link.
    pub(super) fn followed(&self, user: User, place: Place) -> Result<usize, Errno> {
        let node = self.get(user, place)?;
        self.follow(user, node, &self.path(place)).map(|()| node)
    }

    /// Judges an access to the node with this name.
    pub(super) fn judge(
        &self,
        user: User,
        place: (&str, &str),
        access: (bool, bool),
        node: Option<usize>,
    ) -> Result<(), Errno> {
        let facts = node.and_then(|node| self.nodes[node].facts());
        self.rules.judge(user, &self.path(place), access, facts)
    }

    /// Opens a file: for reading, for writing, or truncated.
    pub(super) fn open(
        &mut self,
        user: User,
        place: Place,
        access: (bool, bool),
        is_cut: bool,
    ) -> Result<usize, Errno> {
        let node = self.followed(user, place)?;
        if self.nodes[node].is_folder() && access.1 {
            return Err(Errno::ISDIR);
        }
        self.judge(user, place, access, Some(node))?;
        if access == (false, true) && !is_cut {
            self.judge_partial_change(user, place, node)?;
        }
        if is_cut {
            self.set_data(user, node, Vec::new());
        }
        Ok(node)
    }

    fn judge_partial_change(&self, user: User, place: Place, node: usize) -> Result<(), Errno> {
        let refused = self.judge(user, place, (true, false), Some(node));
        if self.rules.could_read(user, &self.path(place)) { refused } else { Ok(()) }
    }

    pub(super) fn data(&self, node: usize) -> Vec<u8> {
        match &self.nodes[node].kind {
            Kind::File(data) => data.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn set_data(&mut self, user: User, node: usize, data: Vec<u8>) {
        self.touch(user, node);
        self.nodes[node].kind = Kind::File(data);
    }

    /// Adds a name for a node.
    pub(super) fn put(&mut self, folder: usize, name: &str, node: usize) {
        self.children_mut(folder).insert(name.to_owned(), node);
        self.nodes[node].names += 1;
    }

    pub(super) fn take(&mut self, folder: usize, name: &str) {
        if let Some(node) = self.children_mut(folder).remove(name) {
            self.nodes[node].names -= 1;
        }
    }

    pub(super) fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Makes something at a place where nothing may be.
    pub(super) fn make(&mut self, user: User, place: Place, kind: Kind) -> Result<usize, Errno> {
        let found = self.find(user, place)?;
        if found.node.is_some() {
            return Err(Errno::EXIST);
        }
        self.judge(user, place, (false, true), None)?;
        let node = self.add(Node::new(kind, user.uid));
        self.put(found.folder, place.1, node);
        Ok(node)
    }

    pub(super) fn remove(&mut self, user: User, place: Place, is_folder: bool) -> OperationResult {
        let found = self.find(user, place)?;
        let node = found.node.ok_or(Errno::NOENT)?;
        match (self.nodes[node].is_folder(), is_folder) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.judge(user, place, (false, true), Some(node))?;
        if is_folder && !self.children(node).is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.take(found.folder, place.1);
        Ok(Vec::new())
    }

    /// Returns the names in a folder that the mount shows.
    pub(super) fn list(&self, user: User, folder: &'static str) -> OperationResult {
        let at = self.folder(user, folder)?;
        let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let mut path = self.path((above, name));
        path.retain(|name| !name.is_empty());
        self.rules.judge(user, &path, (true, false), None)?;
        let shown =
            self.children(at).keys().filter(|name| !self.rules.hides(&self.path((folder, name))));
        Ok(shown.cloned().collect::<Vec<_>>().join(" ").into_bytes())
    }

    /// Records a secret for the users who may read it by one of these paths.
    pub(super) fn keep_secret(
        &mut self,
        secret: u8,
        paths: &[Vec<&str>],
        facts: Facts,
        users: &[User],
    ) {
        let may_read =
            |user: &&User| paths.iter().any(|path| self.rules.may_read(**user, path, facts));
        let readers = users.iter().filter(may_read).map(|user| user.uid).collect();
        self.secrets.insert(secret, Secret { readers, is_given_away: false });
    }

    /// Records that the user changes a node or its name, and thereby gives away the secrets that the user may know.
    pub(super) fn touch(&mut self, user: User, node: usize) {
        match self.nodes[node].kind.clone() {
            Kind::File(data) => {
                for byte in data {
                    if let Some(secret) = self.secrets.get_mut(&byte)
                        && secret.readers.contains(&user.uid)
                    {
                        secret.is_given_away = true;
                    }
                }
            }
            Kind::Folder(children) => children.values().for_each(|&child| self.touch(user, child)),
            Kind::Link => {}
        }
    }

    /// Returns a secret that the user has read without the right to.
    pub(super) fn betrayed(&self, user: User, data: &[u8]) -> Option<u8> {
        let is_betrayed = |byte: &&u8| {
            self.secrets
                .get(byte)
                .is_some_and(|secret| !secret.is_given_away && !secret.readers.contains(&user.uid))
        };
        data.iter().find(is_betrayed).copied()
    }
}
