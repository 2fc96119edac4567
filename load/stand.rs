//! The server under load. Question: is what the phones were told also what was written down?
//!
//! Either a whole stack of our own, with an empty database, or somebody else's server, whose books we cannot read.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context;
use checkout::{
    database::embedded::Lifetime,
    demo::{DemoState, Ports, Stack, StackOptions},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use crate::{
    books::Books,
    cpu::{Family, Watched},
    report::Server,
    setting::Setting,
};

/// Somewhere to send orders to.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) name: String,
    /// `None` where the server is not ours.
    pub(crate) described: Option<Server>,
    pub(crate) server: SocketAddr,
    pub(crate) secret: String,
    pub(crate) books: Option<Books>,
    owned: Owned,
}

/// What ends with the stand.
#[derive(Debug)]
enum Owned {
    Stack(Box<Stack>),
    NullServer(Child),
    Nothing,
}

impl Stand {
    /// A stack of its own: empty database, gateway and mail with their books in memory, the api set like this.
    pub(crate) async fn stack(
        sells: Sells,
        setting: Setting,
        relay: RelayFate,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let mut options = StackOptions::new(checkout_program()?, Lifetime::Ephemeral, Ports::free());
        options.console = false;
        options.webhooks = false;
        options.gateway_arguments = vec!["--in-memory".to_owned()];
        options.mail_arguments = vec!["--in-memory".to_owned()];
        options.api_arguments = setting.api_arguments();
        options.worker_environment = relay.environment();
        options.api_role = sells.role();
        options.progress = |line| eprintln!("  {line}");
        let stack = Stack::start(options, stop).await?;
        let state = stack.state();
        let books = books_of(state).await?;
        let postgresql = books.postgresql_version().await?;
        let stand = Self {
            name: setting.to_string(),
            described: Some(Server { setting, connections: setting.connections(), postgresql }),
            server: address_of(&state.api_url)?,
            secret: state.secret.clone(),
            books: Some(books),
            owned: Owned::Nothing,
        };
        Ok(Self { owned: Owned::Stack(Box::new(stack)), ..stand })
    }

    /// A server that runs already.
    pub(crate) fn of_others(url: &str, secret: String) -> anyhow::Result<Self> {
        Ok(Self {
            name: url.to_owned(),
            described: None,
            server: address_of(url)?,
            secret,
            books: None,
            owned: Owned::Nothing,
        })
    }

    /// A server that does nothing, in a process of its own.
    pub(crate) async fn null_server() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let mut command = Command::new(program);
        command.arg("null-server").env(checkout::stop::STOP_ON_STDIN_EOF, "1").stdin(Stdio::piped());
        let mut child =
            command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("cannot start the null server")?;
        let stdout = child.stdout.take().context("the null server has no stdout")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the null server said nothing")?;
        let url = line.strip_prefix("listening on ").context("the null server does not say where it listens")?;
        Ok(Self {
            name: "null server".to_owned(),
            described: None,
            server: address_of(url)?,
            // Nobody checks it.
            secret: "0".repeat(checkout::credential::SECRET_LENGTH_MIN),
            books: None,
            owned: Owned::NullServer(child),
        })
    }

    /// A stack that somebody else started, and whose books we may read.
    pub(crate) async fn running(data_dir: &Path) -> anyhow::Result<Self> {
        let state = DemoState::read(Some(data_dir))?;
        Ok(Self {
            name: format!("the stack in {}", data_dir.display()),
            described: None,
            server: address_of(&state.api_url)?,
            secret: state.secret.clone(),
            books: Some(books_of(&state).await?),
            owned: Owned::Nothing,
        })
    }

    /// Whether nobody else buys here.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.owned, Owned::Stack(_))
    }

    /// The processes to watch, as they are now: one that was killed runs again under another number.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        watched(match &self.owned {
            Owned::Stack(stack) => stack.pids(),
            Owned::NullServer(child) => child.id().map(|pid| ("null server", pid)).into_iter().collect(),
            Owned::Nothing => Vec::new(),
        })
    }

    pub(crate) fn pid_of(&self, name: &str) -> Option<u32> {
        self.watched().iter().find(|watched| watched.name == name).map(|watched| watched.pid)
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if let Some(books) = self.books {
            books.close().await;
        }
        match self.owned {
            Owned::Stack(stack) => stack.stop().await,
            Owned::NullServer(mut child) => child.kill().await.context("cannot end the null server"),
            Owned::Nothing => Ok(()),
        }
    }
}

/// Which checkout a stack sells with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sells {
    WithKeys,
    /// A checkout that knows no keys, in the api's place.
    WithoutKeys,
}

impl Sells {
    fn role(self) -> &'static str {
        match self {
            Self::WithKeys => "api",
            Self::WithoutKeys => "no-keys",
        }
    }
}

/// What becomes of the relay within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayFate {
    Lives,
    /// Killed between the log's acknowledgement and its own mark: whoever takes over delivers the same events again.
    Killed,
}

/// Rounds of the relay until it is killed. A round takes some 50 ms under load.
const RELAY_ROUNDS: u32 = 40;

impl RelayFate {
    fn environment(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Lives => Vec::new(),
            Self::Killed => vec![(checkout::crash_point::VARIABLE, format!("relay.before_mark:kill:{RELAY_ROUNDS}"))],
        }
    }
}

/// The server's processes with their children, and ourselves without.
fn watched(pids: Vec<(&'static str, u32)>) -> Vec<Watched> {
    let us = Watched { name: "harness", pid: std::process::id(), family: Family::Alone };
    // The only part of a stack that a run kills.
    let killed = pids.iter().any(|(name, _)| *name == "worker").then(|| Watched {
        name: "worker",
        family: Family::EndedChildren,
        ..us.clone()
    });
    // It stands in the api's place, and is laid beside it.
    let name = |role| if role == Sells::WithoutKeys.role() { Sells::WithKeys.role() } else { role };
    let servers =
        pids.into_iter().map(|(role, pid)| Watched { name: name(role), pid, family: Family::WithDescendants });
    servers.chain([us]).chain(killed).collect()
}

async fn books_of(state: &DemoState) -> anyhow::Result<Books> {
    let mail_url = state.mail_url.as_deref().context("the stack has no mail service")?;
    Books::open(&state.database_url, &state.gateway_url, mail_url).await
}

/// The `checkout` program of the same build.
fn checkout_program() -> anyhow::Result<PathBuf> {
    let us = std::env::current_exe().context("cannot tell which program this is")?;
    let program = us.with_file_name("checkout");
    anyhow::ensure!(
        program.is_file(),
        "{} is not there: build both programs, with `cargo build --release --bins`",
        program.display()
    );
    Ok(program)
}

fn address_of(url: &str) -> anyhow::Result<SocketAddr> {
    let authority =
        url.trim_end_matches('/').strip_prefix("http://").context("only http:// URLs can be put under load")?;
    let mut addresses = authority.to_socket_addrs().with_context(|| format!("{url} names no host and port"))?;
    addresses.next().with_context(|| format!("{url} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_a_url() {
        assert_eq!(address_of("http://127.0.0.1:8080/").unwrap(), "127.0.0.1:8080".parse().unwrap());
        for wrong in ["https://127.0.0.1:8080", "127.0.0.1:8080", "http://127.0.0.1"] {
            assert!(address_of(wrong).is_err(), "{wrong}");
        }
    }
}
