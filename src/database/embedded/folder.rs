//! The data folder of one stack. Question: what lies where, who may read it, and who holds it?
//!
//! `lock` (one owner at a time), `password` (0600), `postgres/` (the cluster), `log/`.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use tempfile::TempDir;

use super::account::{ServerAccount, closed_folder_above, we_are_root};

/// A log older than this run is moved aside when it is larger.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Does the data outlive its owner?
#[derive(Debug, Clone)]
pub enum Lifetime {
    /// Kept in this folder.
    Kept(PathBuf),
    /// In a temporary folder that is removed at the end.
    Ephemeral,
}

/// A data folder that is ours alone until this value is dropped.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
    short_lived: bool,
    /// Removes a short-lived folder if we fail before a guardian has taken that duty over.
    ephemeral: Option<TempDir>,
}

impl DataFolder {
    pub fn open(lifetime: &Lifetime) -> anyhow::Result<Self> {
        match lifetime {
            Lifetime::Kept(path) => Self::kept(path),
            Lifetime::Ephemeral => Self::ephemeral(),
        }
    }

    fn kept(path: &Path) -> anyhow::Result<Self> {
        create_open_to_all(path)?;
        let path = path.canonicalize().with_context(|| format!("cannot enter {}", path.display()))?;
        Self::locked(path, None)
    }

    fn ephemeral() -> anyhow::Result<Self> {
        let mut parent = std::env::temp_dir();
        if we_are_root() && closed_folder_above(&parent).is_some() {
            // A private TMPDIR of root's is closed to the server's account.
            parent = PathBuf::from("/tmp");
        }
        let folder = tempfile::Builder::new()
            .prefix(super::EPHEMERAL_PREFIX)
            .tempdir_in(&parent)
            .with_context(|| format!("cannot create a folder in {}", parent.display()))?;
        open_to_all(folder.path())?;
        Self::locked(folder.path().canonicalize()?, Some(folder))
    }

    fn locked(path: PathBuf, ephemeral: Option<TempDir>) -> anyhow::Result<Self> {
        create_open_to_all(&path.join("log"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join("lock"))
            .with_context(|| format!("cannot write in {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock, short_lived: ephemeral.is_some(), ephemeral }),
            Err(TryLockError::WouldBlock) => anyhow::bail!("already running on {}", path.display()),
            Err(TryLockError::Error(error)) => Err(error).context("cannot lock the data folder"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.path.join("postgres")
    }

    /// The log of one part of the stack.
    pub fn log_of(&self, part: &str) -> PathBuf {
        self.path.join("log").join(part).with_extension("log")
    }

    pub fn is_ephemeral(&self) -> bool {
        self.short_lived
    }

    /// The first process of the server that runs here.
    pub fn server_pid(&self) -> Option<u32> {
        super::leftover::postmaster_in(&self.cluster().join("postmaster.pid"))
    }

    /// From here on the guardian removes the folder.
    pub(super) fn hand_over(&mut self) {
        if let Some(folder) = self.ephemeral.take() {
            let _path_is_known = folder.keep();
        }
    }

    /// The superuser's password, made once and kept for this cluster's life.
    pub(super) fn password(&self, account: &ServerAccount) -> anyhow::Result<String> {
        let file = self.password_file();
        if !file.exists() {
            anyhow::ensure!(
                !self.cluster().exists(),
                "{} is missing, and without it nobody can connect to the cluster beside it",
                file.display()
            );
            write_private(&file, &random_secret())?;
        }
        // `initdb` reads it, under the server's account.
        account.own(&file)?;
        std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    pub(super) fn password_file(&self) -> PathBuf {
        self.path.join("password")
    }
}

/// Does a running process own this data folder?
pub fn is_in_use(folder: &Path) -> bool {
    File::open(folder.join("lock")).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// 256 random bits in letters that need no escaping in a URL.
pub fn random_secret() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

/// Writes a file only its owner may read, whole or not at all.
pub fn write_private(path: &Path, contents: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("."));
        // Created with mode 0600, and renamed into place once its contents are on disk.
        let mut file = tempfile::Builder::new().tempfile_in(parent)?;
        file.write_all(contents.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Opens a log for appending. An earlier run's is kept once beside it when it has grown large.
pub fn open_log(path: &Path) -> anyhow::Result<File> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        std::fs::rename(path, path.with_extension("log.old"))
            .with_context(|| format!("cannot move {}", path.display()))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

/// Where a stack keeps its data when nobody says where: not under `/root`, which is closed to the server's account.
pub fn default_data_folder() -> anyhow::Result<PathBuf> {
    if we_are_root() { Ok(PathBuf::from("/var/lib/checkout")) } else { of_the_user("XDG_DATA_HOME", ".local/share") }
}

pub(super) fn cache_folder() -> anyhow::Result<PathBuf> {
    if we_are_root() { Ok(PathBuf::from("/var/cache/checkout")) } else { of_the_user("XDG_CACHE_HOME", ".cache") }
}

fn of_the_user(variable: &str, below_home: &str) -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(below_home)))
        .map(|base| base.join("checkout"))
        .with_context(|| format!("neither {variable} nor HOME says where files go: pass --data-dir"))
}

fn create_open_to_all(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    open_to_all(path)
}

/// The server's account passes through on its way to its own folder; what is private is private by its own mode.
fn open_to_all(path: &Path) -> anyhow::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_private_file_is_its_owners_alone_also_when_it_replaces_an_open_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "old").unwrap();
        write_private(&file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no half-written file is left");
    }

    #[test]
    fn a_log_that_grew_large_is_kept_once_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("api.log");
        File::create(&log).unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
        writeln!(open_log(&log).unwrap(), "first line").unwrap();
        writeln!(open_log(&log).unwrap(), "second line").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "first line\nsecond line\n");
        assert_eq!(std::fs::metadata(folder.path().join("api.log.old")).unwrap().len(), LOG_BYTES_MAX + 1);
    }

    #[test]
    fn a_cluster_whose_password_was_lost_is_not_given_another() {
        let folder = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&Lifetime::Kept(folder.path().to_owned())).unwrap();
        std::fs::create_dir(folder.cluster()).unwrap();
        let refused = folder.password(&ServerAccount::Ourselves).unwrap_err();
        assert!(refused.to_string().contains("password is missing"), "{refused}");
    }

    #[test]
    fn two_secrets_differ() {
        assert_ne!(random_secret(), random_secret());
    }
}
