//! Whose processes the server's are. Question: how does this run as root, when PostgreSQL refuses to?
//!
//! An ordinary user runs the server as itself. Root hands it to `postgres` where the machine has that account, else to
//! `nobody`, and gives that account exactly the folders the server writes.

use std::{
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

/// The account the server's programs run under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerAccount {
    Ourselves,
    Lower(Account),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl ServerAccount {
    pub(super) fn detect() -> anyhow::Result<Self> {
        if !we_are_root() {
            return Ok(Self::Ourselves);
        }
        let accounts = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| account_named(&accounts, name))
            .map(Self::Lower)
            .context("PostgreSQL does not run as root, and this machine has neither an account `postgres` nor `nobody`")
    }

    /// A command that runs under this account and takes no settings from our environment.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.lower(&mut command);
        // Our own working directory may be closed to the server's account.
        command.current_dir("/").env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            // PGDATA, PGPORT, PGOPTIONS and their like belong to the user's own servers.
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
    }

    fn lower(&self, command: &mut Command) {
        if let Self::Lower(account) = self {
            command.uid(account.uid).gid(account.gid);
        }
    }

    pub(super) fn own(&self, path: &Path) -> anyhow::Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Lower(account) => std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid))
                .with_context(|| format!("cannot give {} to {}", path.display(), account.name)),
        }
    }

    /// Refuses a folder the server could never enter, before PostgreSQL says so in many more words.
    pub(super) fn can_reach(&self, folder: &Path) -> anyhow::Result<()> {
        let Self::Lower(account) = self else { return Ok(()) };
        match closed_folder_above(folder) {
            None => Ok(()),
            Some(closed) => anyhow::bail!(
                "the server runs as `{}`, which may not enter {}: choose a data folder elsewhere",
                account.name,
                closed.display()
            ),
        }
    }
}

/// The closest folder on the way that is not open to everybody.
pub(super) fn closed_folder_above(folder: &Path) -> Option<PathBuf> {
    const OTHERS_MAY_ENTER: u32 = 0o001;
    folder
        .ancestors()
        .filter(|above| std::fs::metadata(above).is_ok_and(|found| found.mode() & OTHERS_MAY_ENTER == 0))
        .last()
        .map(Path::to_path_buf)
}

/// The standard library cannot ask who we are; `id` can, on every Unix.
pub(super) fn we_are_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn account_named(accounts: &str, wanted: &str) -> Option<Account> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| *name == wanted)?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { name: name.to_owned(), uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\n";
        assert_eq!(
            account_named(accounts, "postgres"),
            Some(Account { name: "postgres".to_owned(), uid: 101, gid: 104 })
        );
        assert_eq!(account_named(accounts, "nobody"), None);
    }

    #[test]
    fn a_closed_folder_on_the_way_is_named() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::set_permissions(outer.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed_folder_above(&inner).as_deref(), Some(outer.path()));
    }
}
