//! The embedded server keeps its data and leaves no process, however its owner ends.

use std::path::Path;

use checkout::{
    database::embedded::{Cluster, ClusterOptions, Lifetime},
    stop::{Signal, send},
};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::support::{CHECKOUT, TestDatabase, is_running, wait_for, wait_until};

/// A folder that the server's account can enter, also when the tests run as root.
fn data_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn start(folder: &Path) -> anyhow::Result<Cluster> {
    Cluster::start(ClusterOptions { lifetime: Lifetime::Kept(folder.to_owned()), program: CHECKOUT.into() }).await
}

async fn connect(cluster: &Cluster) -> PgConnection {
    PgConnection::connect(&cluster.url("postgres")).await.unwrap()
}

async fn setting(connection: &mut PgConnection, name: &str) -> String {
    sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn what_was_committed_survives_the_death_of_the_server_and_its_guardian() {
    let folder = data_folder();
    let cluster = start(folder.path()).await.unwrap();
    let mut connection = connect(&cluster).await;
    sqlx::query("CREATE TABLE kept (n integer)").execute(&mut connection).await.unwrap();
    sqlx::query("INSERT INTO kept VALUES (4299)").execute(&mut connection).await.unwrap();
    let orphan = cluster.server_pid().unwrap();
    send(cluster.guardian_pid(), Signal::Kill);
    wait_until("the guardian is gone", || !is_running(cluster.guardian_pid()));
    assert!(is_running(orphan), "without its guardian nobody stops the server");
    drop(cluster);

    let cluster = start(folder.path()).await.unwrap();
    assert!(!is_running(orphan), "the orphan was stopped before its data was opened again");
    let mut connection = connect(&cluster).await;
    let kept: i32 = sqlx::query_scalar("SELECT n FROM kept").fetch_one(&mut connection).await.unwrap();
    assert_eq!(kept, 4299);

    // And kill -9 of the server itself: the guardian starts it again on the same port.
    let killed = cluster.server_pid().unwrap();
    send(killed, Signal::Kill);
    wait_until("another server runs", || cluster.server_pid().is_some_and(|pid| pid != killed));
    let url = cluster.url("postgres");
    let mut again = None;
    wait_for("it can be connected to", async || {
        again = PgConnection::connect(&url).await.ok();
        again.is_some()
    })
    .await;
    let mut again = again.expect("a connection");
    let kept: i32 = sqlx::query_scalar("SELECT n FROM kept").fetch_one(&mut again).await.unwrap();
    assert_eq!(kept, 4299);
    let server = cluster.server_pid().unwrap();
    cluster.stop().await.unwrap();
    assert!(!is_running(server), "a stopped cluster leaves no process");
}

#[tokio::test]
async fn a_dropped_owner_takes_an_ephemeral_cluster_and_its_folder_along() {
    let cluster =
        Cluster::start(ClusterOptions { lifetime: Lifetime::Ephemeral, program: CHECKOUT.into() }).await.unwrap();
    let (server, guardian, folder) =
        (cluster.server_pid().unwrap(), cluster.guardian_pid(), cluster.folder().path().to_owned());
    assert!(folder.exists());
    drop(cluster);
    wait_until("the server is gone", || !is_running(server));
    wait_until("the guardian is gone", || !is_running(guardian));
    assert!(!folder.exists(), "{} is left", folder.display());
}

#[tokio::test]
async fn a_stop_leaves_nothing_even_when_the_guardian_was_killed() {
    for lifetime in [Lifetime::Ephemeral, Lifetime::Kept(data_folder().keep())] {
        let kept = matches!(lifetime, Lifetime::Kept(_));
        let cluster = Cluster::start(ClusterOptions { lifetime, program: CHECKOUT.into() }).await.unwrap();
        let (server, folder) = (cluster.server_pid().unwrap(), cluster.folder().path().to_owned());
        send(cluster.guardian_pid(), Signal::Kill);
        wait_until("the guardian is gone", || !is_running(cluster.guardian_pid()));
        cluster.stop().await.unwrap();
        // It has let go of its files; the kernel may need a moment more to be done with it.
        wait_until("the server is gone", || !is_running(server));
        assert_eq!(folder.exists(), kept, "{}", folder.display());
        if kept {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[tokio::test]
async fn a_stale_postmaster_pid_is_no_obstacle_even_when_its_pid_is_somebody_elses_by_now() {
    let folder = data_folder();
    let cluster = start(folder.path()).await.unwrap();
    let pid_file = folder.path().join("postgres/postmaster.pid");
    let written = std::fs::read_to_string(&pid_file).unwrap();
    cluster.stop().await.unwrap();
    // As after a power cut: the file is there, and its first line names a process that has nothing to do with it.
    let stranger = std::process::id();
    let stale = written.replacen(written.lines().next().unwrap(), &stranger.to_string(), 1);
    std::fs::write(&pid_file, stale).unwrap();

    let cluster = start(folder.path()).await.unwrap();
    assert_ne!(cluster.server_pid(), Some(stranger));
    connect(&cluster).await.ping().await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_folder_in_use_is_refused_in_one_line() {
    let folder = data_folder();
    let cluster = start(folder.path()).await.unwrap();
    let refused = start(folder.path()).await.unwrap_err();
    let named = folder.path().canonicalize().unwrap();
    assert_eq!(format!("{refused:#}"), format!("already running on {}", named.display()));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_is_durable_and_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = data_folder();
    let cluster = start(folder.path()).await.unwrap();
    let mut connection = connect(&cluster).await;
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("jit", "off"),
        ("max_locks_per_transaction", "1024"),
    ] {
        assert_eq!(setting(&mut connection, name).await, value, "{name}");
    }
    let mode = std::fs::metadata(folder.path().join("password")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stranger: PgConnectOptions = cluster.url("postgres").parse().unwrap();
    PgConnection::connect_with(&stranger.password("guessed")).await.unwrap_err();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn every_test_database_is_its_own() {
    let (one, other) = tokio::join!(TestDatabase::create(), TestDatabase::create());
    assert_ne!(one.name, other.name);
    let pool = one.pool().await;
    sqlx::query("CREATE TABLE mine (n integer)").execute(&pool).await.unwrap();
    let seen: bool =
        sqlx::query_scalar("SELECT to_regclass('mine') IS NOT NULL").fetch_one(&other.pool().await).await.unwrap();
    assert!(!seen, "a table of one test is seen by another");
}
