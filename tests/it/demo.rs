//! The demo: what it starts, it stops, and what it cannot start, it says in one line.

use std::{
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use checkout::{
    credential::{Credentials, Subject},
    database::embedded::Lifetime,
    demo::{DemoState, Ports, Stack, StackOptions},
    ids::CustomerId,
    stop::{Signal, send},
};
use tokio_util::sync::CancellationToken;

use crate::support::{
    CHECKOUT, CUSTOMER, Process, fresh_key, grinder, install_tls_provider, is_running, wait_for, wait_until,
};

/// `nobody`, by number: it has no name in every image.
const NOBODY: u32 = 65534;

/// Five ports in a row that nobody uses just now, other ones for every caller. Below the range from which the system
/// hands out free ones.
fn base_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Two test binaries at once start at different places.
    let start = 10_000 + (std::process::id() % 400) as u16 * 50;
    let free = |base: &u16| (*base..*base + 5).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    std::iter::repeat_with(|| start + TAKEN.fetch_add(5, Ordering::Relaxed))
        .take(400)
        .find(free)
        .expect("five free ports in a row")
}

fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Every process that names this folder on its command line, or was started from one that does.
fn processes_of(folder: &Path) -> Vec<u32> {
    let named = folder.to_str().unwrap();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let holds = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(named);
        // The roles learn their data folder from nobody, but they log into it.
        let logs_there = std::fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|log| log.starts_with(folder));
        is_running(*pid) && *pid != std::process::id() && (holds(read("cmdline")) || logs_there)
    })
    .collect()
}

fn demo(base_port: u16, folder: &Path) -> std::process::Command {
    Process::command(&["demo", "--base-port", &base_port.to_string(), "--data-dir", folder.to_str().unwrap()])
}

#[test]
fn ready_means_ready_and_a_stop_leaves_nothing_but_the_data() {
    let folder = open_folder();
    let base = base_port();
    let mut demo = Process::spawn(demo(base, folder.path()));
    demo.line_with("Ready.");
    demo.line_with(&format!("checkout token 43 --data-dir {}", folder.path().canonicalize().unwrap().display()));
    let state = folder.path().join("demo.json");
    assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    // The supervisor, the guardian, the server with its helpers, and five roles.
    assert!(processes_of(folder.path()).len() >= 8, "{:?}", processes_of(folder.path()));
    let status = demo.stop();
    assert!(status.success(), "{status}: {}", demo.stderr());
    assert_eq!(processes_of(folder.path()), Vec::<u32>::new());
    assert!(!state.exists() && folder.path().join("postgres").exists());
}

#[test]
fn a_killed_supervisor_takes_everything_along_and_the_next_one_starts() {
    let folder = open_folder();
    let port = base_port();
    let mut killed = Process::spawn(demo(port, folder.path()));
    killed.line_with("Ready.");
    killed.kill();
    wait_until("every process is gone", || processes_of(folder.path()).is_empty());
    for command in ["verify", "review", "token"] {
        let mut asked = Process::command(&[command, "--data-dir", folder.path().to_str().unwrap()]);
        if command == "token" {
            asked.arg("42");
        }
        let said = String::from_utf8(asked.output().unwrap().stderr).unwrap();
        assert!(said.contains("demo.json is not running"), "{command}: {said}");
    }
    let mut next = Process::spawn(demo(port, folder.path()));
    next.line_with("Ready.");
    assert!(next.stop().success(), "{}", next.stderr());
}

/// The guardian of the stack on this folder, and the server's first process.
fn guardian_and_server(folder: &Path) -> (u32, u32) {
    let command_of = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let looks_after = |pid: &u32| String::from_utf8_lossy(&command_of(*pid)).contains("\0guardian\0");
    let guardian = processes_of(folder).into_iter().find(looks_after).expect("a guardian");
    let written = std::fs::read_to_string(folder.join("postgres/postmaster.pid")).expect("a server");
    (guardian, written.lines().next().expect("a pid").parse().expect("a pid"))
}

#[test]
fn a_dead_server_and_a_dead_guardian_are_told_and_come_back_and_a_stop_still_leaves_nothing() {
    let folder = open_folder();
    let mut demo = Process::spawn(demo(base_port(), folder.path()));
    demo.line_with("Ready.");
    let (_, server) = guardian_and_server(folder.path());
    send(server, Signal::Kill);
    demo.line_with("postgres ended with signal: 9 (SIGKILL), starts again");
    demo.line_with("postgres runs again");

    let (guardian, server) = guardian_and_server(folder.path());
    send(guardian, Signal::Kill);
    demo.line_with("the guardian of postgres died");
    demo.line_with("postgres runs again, with another guardian");
    assert!(!is_running(server), "two servers on one folder");
    let (again, _) = guardian_and_server(folder.path());

    // And once more, with no time left to start anything again.
    send(again, Signal::Kill);
    assert!(demo.stop().success(), "{}", demo.stderr());
    assert_eq!(processes_of(folder.path()), Vec::<u32>::new());
}

#[test]
fn a_second_start_on_a_folder_in_use_says_so_whatever_the_ports() {
    let folder = open_folder();
    let port = base_port();
    let running = Process::spawn(demo(port, folder.path()));
    running.line_with("Ready.");
    let mut second = Process::spawn(demo(port, folder.path()));
    assert_eq!(second.ended().code(), Some(1));
    let named = folder.path().canonicalize().unwrap();
    assert_eq!(second.stderr(), format!("checkout: already running on {}\n", named.display()));
}

#[test]
fn a_taken_port_is_named_with_its_role_in_one_line() {
    let folder = open_folder();
    let base = base_port();
    let _taken = TcpListener::bind(("127.0.0.1", base + 2)).unwrap();
    let mut refused = Process::spawn(demo(base, folder.path()));
    assert_eq!(refused.ended().code(), Some(1));
    let expected = format!("checkout: port {} for the gateway is not free", base + 2);
    let said = refused.stderr();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(&expected), "{said}");
    assert!(!folder.path().join("postgres").exists(), "nothing was started");
}

#[tokio::test]
async fn a_killed_part_comes_back_on_its_address() {
    install_tls_provider();
    let options = StackOptions::new(CHECKOUT.into(), Lifetime::Ephemeral, Ports::free());
    let stack = Stack::start(options, &CancellationToken::new()).await.unwrap();
    let worker = |stack: &Stack| stack.pids().into_iter().find(|(role, _)| *role == "worker").map(|(_, pid)| pid);
    let killed = worker(&stack).unwrap();
    send(killed, Signal::Kill);
    wait_until_async("another worker runs", || worker(&stack).is_some_and(|pid| pid != killed)).await;
    let health = format!("{}/livez", stack.state().worker_url);
    let client = crate::support::client();
    assert_eq!(client.get(health).send().await.unwrap().status(), 200);
    let pids = stack.pids();
    let folder = stack.folder().path().to_owned();
    stack.stop().await.unwrap();
    for (role, pid) in pids {
        assert!(!is_running(pid), "{role} is left");
    }
    assert!(!folder.exists());
}

#[tokio::test]
async fn what_is_armed_in_the_demo_strikes_once_and_the_part_comes_back_unharmed() {
    install_tls_provider();
    let folder = open_folder();
    let mut command = demo(base_port(), folder.path());
    command.env("CHECKOUT_CRASH", "relay.taken:kill");
    let mut demo = Process::spawn(command);
    demo.line_with("Ready.");
    let state = DemoState::read(Some(folder.path())).unwrap();
    let customer = Subject::Customer(CustomerId(CUSTOMER));
    let token = Credentials::new(&state.secret).unwrap().mint(customer, Duration::from_secs(60)).unwrap();
    let client = crate::support::client();
    let order = client.post(format!("{}/v1/orders", state.api_url)).bearer_auth(token);
    let order = order.header("Idempotency-Key", fresh_key()).json(&grinder("pm_card_visa")).send().await.unwrap();
    assert_eq!(order.status(), 201);

    demo.line_with("worker ended with signal: 9 (SIGKILL), starts again");
    demo.line_with("worker runs again");
    // It comes to the same point again, and passes it.
    let pool = sqlx::PgPool::connect(&state.database_url).await.unwrap();
    wait_for("the event is sent", async || {
        let sent = sqlx::query_scalar("SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL");
        sent.fetch_one(&pool).await.is_ok_and(|sent: i64| sent == 1)
    })
    .await;
    pool.close().await;
    assert!(demo.stop().success(), "{}", demo.stderr());
}

/// `wait_until` for a test whose own runtime does the work that is awaited.
async fn wait_until_async(awaited: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain until {awaited}");
}

#[test]
fn the_worked_example_holds_over_real_http() {
    let mut check = Process::spawn(Process::command(&["demo", "--check"]));
    let mut proved = 0;
    loop {
        let line = check.line_with("");
        assert!(!line.starts_with("FAIL"), "{line}");
        proved += usize::from(line.starts_with("ok "));
        if line.contains("Every promise held.") {
            break;
        }
    }
    assert_eq!(proved, 10);
    assert!(check.ended().success(), "{}", check.stderr());
}

#[test]
fn an_ordinary_user_needs_no_root() {
    let home = open_folder();
    // Only root can give a folder away, and become somebody else; anybody else is an ordinary user already.
    let as_nobody = std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).is_ok();
    let program = if as_nobody { copy_for_everybody(home.path()) } else { PathBuf::from(CHECKOUT) };
    let as_the_user = || {
        let mut command = std::process::Command::new(&program);
        command.current_dir(home.path());
        command.env_clear().env("HOME", home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // Where the server's programs are, is a property of the machine.
        command.envs(std::env::var_os("PG_BIN").map(|folder| ("PG_BIN", folder)));
        if as_nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let mut command = as_the_user();
    command.args(["demo", "--base-port", &base_port().to_string()]);
    let mut demo = Process::spawn(command);
    demo.line_with("Ready.");
    let data = home.path().join(".local/share/checkout");
    let state = DemoState::read(Some(&data)).unwrap();
    assert!(state.database_url.contains("@127.0.0.1:"));
    // With the database in the environment, and nothing else, the demo is found and its gateway with it.
    let verify = |url: &str| {
        let mut command = as_the_user();
        command.arg("verify").env("DATABASE_URL", url);
        command.output().unwrap()
    };
    let judged = verify(&state.database_url);
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));
    let another = verify("postgres://127.0.0.1:1/nowhere");
    assert_eq!(another.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&another.stderr).contains("the running demo uses another database"));
    assert!(demo.stop().success(), "{}", demo.stderr());
    assert_eq!(processes_of(home.path()), Vec::<u32>::new());
}

/// The build folder may lie where nobody else can go.
fn copy_for_everybody(folder: &Path) -> PathBuf {
    let copy = folder.join("checkout");
    std::fs::copy(CHECKOUT, &copy).unwrap();
    copy
}
