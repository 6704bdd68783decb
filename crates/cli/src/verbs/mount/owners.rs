//! The options of a mount about owners and modes.

use clap::{Args, ValueEnum};
use nix::unistd::{Group, User};
use thruway_mount::{IdRange, ModeRule, OwnerIds, Owners};

use super::failure::failure;
use crate::output::Failure;

/// How owners and modes are shown and written.
#[derive(Debug, Args)]
pub(super) struct OwnerOptions {
    /// Show the files of the user SOURCE as files of the user SHOWN, and write files of SHOWN as those of SOURCE. Users
    /// are names or numbers; COUNT maps that many consecutive numbers
    #[arg(long, value_name = "SOURCE:SHOWN[:COUNT]", value_delimiter = ',', value_parser = user_range)]
    map_user: Vec<IdRange>,
    /// The same as --map-user, for groups
    #[arg(long, value_name = "SOURCE:SHOWN[:COUNT]", value_delimiter = ',', value_parser = group_range)]
    map_group: Vec<IdRange>,
    /// Show all files as this user's
    #[arg(long, value_name = "USER", value_parser = user, conflicts_with = "map_user")]
    force_user: Option<u32>,
    /// Show all files as this group's
    #[arg(long, value_name = "GROUP", value_parser = group, conflicts_with = "map_group")]
    force_group: Option<u32>,
    /// The user that new files belong to in the source [default: the user that creates them]
    #[arg(long, value_name = "USER", value_parser = user)]
    create_user: Option<u32>,
    /// The group that new files belong to in the source [default: that of the user that creates them]
    #[arg(long, value_name = "GROUP", value_parser = group)]
    create_group: Option<u32>,
    /// Change the modes that are shown, as chmod does: go-w, or u=rwX,go=rX. D is x for folders alone; f and d before
    /// the operator limit a change to files or folders
    #[arg(long, value_name = "CHANGES", value_parser = ModeRule::parse)]
    mode: Option<ModeRule>,
    /// Change the modes of new files in the same way, after the umask has been applied
    #[arg(long, value_name = "CHANGES", value_parser = ModeRule::parse)]
    create_mode: Option<ModeRule>,
    /// If a program changes an owner or a mode that the options above fix: fail, or ignore the change
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    fixed_changes: FixedChanges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FixedChanges {
    Fail,
    Ignore,
}

impl OwnerOptions {
    pub(super) fn owners(self) -> Result<Owners, Failure> {
        let users = OwnerIds::new(self.map_user, self.force_user, self.create_user);
        let groups = OwnerIds::new(self.map_group, self.force_group, self.create_group);
        Ok(Owners {
            users: users.map_err(failure)?,
            groups: groups.map_err(failure)?,
            mode: self.mode.unwrap_or_default(),
            create_mode: self.create_mode.unwrap_or_default(),
            ignores_fixed: self.fixed_changes == FixedChanges::Ignore,
        })
    }
}

fn user_range(text: &str) -> Result<IdRange, String> {
    range(text, user)
}

fn group_range(text: &str) -> Result<IdRange, String> {
    range(text, group)
}

fn range(text: &str, id: impl Fn(&str) -> Result<u32, String>) -> Result<IdRange, String> {
    let parts: Vec<_> = text.split(':').collect();
    let (source, shown, count) = match parts[..] {
        [source, shown] => (source, shown, "1"),
        [source, shown, count] => (source, shown, count),
        _ => return Err("not of the form SOURCE:SHOWN or SOURCE:SHOWN:COUNT".into()),
    };
    let count = count.parse().map_err(|_| format!("{count:?} is not a count"))?;
    Ok(IdRange { source: id(source)?, shown: id(shown)?, count })
}

fn user(text: &str) -> Result<u32, String> {
    id(text, "user", |name| Ok(User::from_name(name)?.map(|user| user.uid.as_raw())))
}

fn group(text: &str) -> Result<u32, String> {
    id(text, "group", |name| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw())))
}

/// Parses a number, or looks up a name. A name may consist of digits, but a number takes precedence, as in chown(1)
/// after `+`.
fn id(
    text: &str,
    kind: &str,
    look_up: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    if is_number {
        let number = text.parse().ok().filter(|&number| number != u32::MAX);
        return number.ok_or_else(|| format!("{text} is not the number of a {kind}"));
    }
    match look_up(text) {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(format!("there is no {kind} {text:?}")),
        Err(error) => Err(format!("cannot look up the {kind} {text:?}: {}", error.desc())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!((user("root"), group("root"), user("1000")), (Ok(0), Ok(0), Ok(1000)));
        assert_eq!(user("4294967295").unwrap_err(), "4294967295 is not the number of a user");
        assert_eq!(group("no-such").unwrap_err(), "there is no group \"no-such\"");
        assert!(user("").is_err() && user("-1").is_err());
    }

    #[test]
    fn a_range_has_two_owners_and_a_count() {
        let of = |source, shown, count| Ok(IdRange { source, shown, count });
        assert_eq!(user_range("1000:root"), of(1000, 0, 1));
        assert_eq!(group_range("100000:0:65536"), of(100_000, 0, 65_536));
        for text in ["5", "1:2:3:4", "1:2:many", "1:", ":"] {
            assert!(user_range(text).is_err(), "{text}");
        }
    }
}
