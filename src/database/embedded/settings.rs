//! How the server is set, each setting with its reason. Question: is this a toy, or does it keep what it acknowledged?

use std::path::Path;

use super::{account::ServerAccount, programs::Programs};

/// `postgres` with every setting on its command line: the files in the cluster stay as `initdb` wrote them.
pub(super) fn arguments(cluster: &Path, port: u16, wal_compression: &str) -> Vec<String> {
    let settings = [
        // An acknowledged order survives a power cut. Nothing here trades that away.
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        // This machine only. The socket file would need a folder, and nobody uses it.
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        // Four roles, a benchmark's audit and a test binary's pools at once, each with a bounded pool.
        ("max_connections", "200"),
        // The hot set (today's records, unsent events) stays in memory; small enough for a laptop.
        ("shared_buffers", "256MB"),
        // Checkpoints by the clock, not by volume: each one makes every page's next change a full page image.
        ("max_wal_size", "4GB"),
        ("checkpoint_timeout", "15min"),
        // Full page images are most of the log; compressing them costs less than writing them.
        ("wal_compression", wal_compression),
        // A claim takes one advisory lock per request: 256 a batch, several batches in flight, and each day
        // partition's tables and indexes beside them.
        ("max_locks_per_transaction", "1024"),
        // Statements take a millisecond; compiling one takes a hundred.
        ("jit", "off"),
        // Records are updated in place of being deleted, and dead rows must not pile up under them.
        ("autovacuum", "on"),
        // The log goes where our stderr goes, a file in the data folder, with times the other logs can be laid beside.
        ("logging_collector", "off"),
        ("log_timezone", "UTC"),
        ("timezone", "UTC"),
        ("log_line_prefix", "%m [%p] %d "),
    ];
    let mut arguments = vec!["-D".to_owned(), cluster.display().to_string(), "-p".to_owned(), port.to_string()];
    for (name, value) in settings {
        arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
    }
    arguments
}

/// `lz4` is a build option of PostgreSQL: the program itself knows whether it has it.
pub(super) fn wal_compression(programs: &Programs, account: &ServerAccount, cluster: &Path) -> &'static str {
    let accepted = programs
        .command(account, "postgres")
        .arg("-D")
        .arg(cluster)
        .args(["-c", "wal_compression=lz4", "-C", "wal_compression"])
        .output()
        .is_ok_and(|output| output.status.success());
    if accepted { "lz4" } else { "on" }
}
