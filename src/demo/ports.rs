//! Where the parts listen. Question: which port is whose, and is it free?

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use anyhow::Context;

const ASK_AGAIN: Duration = Duration::from_millis(100);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);

/// Addresses of the parts, all on the loopback interface. Port 0 is any free one.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    pub api: u16,
    pub console: u16,
    pub gateway: u16,
    pub mail: u16,
    pub worker: u16,
}

impl Ports {
    /// Five in a row.
    pub fn from_base(base: u16) -> Self {
        Self { api: base, console: base + 1, gateway: base + 2, mail: base + 3, worker: base + 4 }
    }

    /// Whatever is free: for a stack that nobody types the address of.
    pub fn free() -> Self {
        Self { api: 0, console: 0, gateway: 0, mail: 0, worker: 0 }
    }

    /// Asked before anything is started: half a stack helps nobody. Asked again for a moment, because the parts of a
    /// stack whose supervisor was killed just now are on their way out.
    pub(super) async fn check_free(&self) -> anyhow::Result<()> {
        let since = Instant::now();
        loop {
            match self.bind_all() {
                Err(_) if since.elapsed() < ASK_AGAIN_MAX => tokio::time::sleep(ASK_AGAIN).await,
                free_or_not => return free_or_not,
            }
        }
    }

    fn bind_all(&self) -> anyhow::Result<()> {
        let parts = [
            ("api", self.api),
            ("console", self.console),
            ("gateway", self.gateway),
            ("mail", self.mail),
            ("worker", self.worker),
        ];
        for (role, port) in parts {
            TcpListener::bind(address(port))
                .with_context(|| format!("port {port} for the {role} is not free, choose others with --base-port"))?;
        }
        Ok(())
    }
}

pub(super) fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Holds a port until it is dropped; of 0 any free one.
pub(super) fn keep_port(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address(port)).with_context(|| format!("port {port} is not free any more"))
}
