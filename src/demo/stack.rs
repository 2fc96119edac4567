//! The stack: a database and the roles around it. Question: in which order do they come and go?
//!
//! PostgreSQL, the schema, the gateway, the mail, the api, the worker, the console; back in the opposite order, so that nobody
//! loses what it still needs. What fails half way takes down what was started before it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::{
    part::{Part, PartSpec},
    ports::{Ports, address, keep_port},
    server::Server,
    state::{DemoState, secret_of, webhook_secret_of},
};
use crate::database::embedded::{DataFolder, Lifetime};

/// From listening to answering health.
const READY_MAX: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// The `checkout` program: every role is a child process of it.
    pub program: PathBuf,
    pub lifetime: Lifetime,
    pub ports: Ports,
    /// A database somebody else runs, instead of a cluster of our own.
    pub database_url: Option<String>,
    /// The benchmark has no use for pages.
    pub console: bool,
    /// The gateway tells the api what happened. The benchmark measures orders, and has no use for that either.
    pub webhooks: bool,
    /// Further flags, such as `--in-memory` or `--fault drop_after:0.004`.
    pub gateway_arguments: Vec<String>,
    pub mail_arguments: Vec<String>,
    /// Further flags, such as `--batch-limit 1`.
    pub api_arguments: Vec<String>,
    pub worker_arguments: Vec<String>,
    /// Further variables, such as a crash point that is to be reached.
    pub worker_environment: Vec<(&'static str, String)>,
    /// Who takes the orders: the api, or a role that stands in its place.
    pub api_role: &'static str,
    /// Told what happens, a line at a time.
    pub progress: fn(&str),
}

impl StackOptions {
    pub fn new(program: PathBuf, lifetime: Lifetime, ports: Ports) -> Self {
        Self {
            program,
            lifetime,
            ports,
            database_url: None,
            console: true,
            webhooks: true,
            gateway_arguments: Vec::new(),
            mail_arguments: Vec::new(),
            api_arguments: Vec::new(),
            worker_arguments: Vec::new(),
            worker_environment: Vec::new(),
            api_role: "api",
            progress: |_| {},
        }
    }
}

/// A running stack. Dropped without [`Stack::stop`], its processes notice and end on their own.
#[derive(Debug)]
pub struct Stack {
    options: StackOptions,
    server: Server,
    parts: Vec<Part>,
    state: DemoState,
    webhook: Option<Webhook>,
}

/// Where the gateway tells what happened, and what signs it.
#[derive(Clone)]
struct Webhook {
    url: String,
    secret: String,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Stack {
    /// Returns once every part answers, or with nothing left running.
    pub async fn start(options: StackOptions, stop: &CancellationToken) -> anyhow::Result<Self> {
        // The folder first: that a stack runs on it already explains more than a taken port.
        let folder = DataFolder::open(&options.lifetime)?;
        options.ports.check_free().await?;
        let (server, database_url) = Server::start(folder, &options).await?;
        let mut stack = Self {
            state: DemoState {
                api_url: String::new(),
                console_url: None,
                gateway_url: String::new(),
                mail_url: None,
                worker_url: String::new(),
                database_url,
                secret: String::new(),
            },
            options,
            server,
            parts: Vec::new(),
            webhook: None,
        };
        let started = tokio::select! {
            started = stack.start_parts() => started,
            () = stop.cancelled() => Err(anyhow::anyhow!("stopped while starting")),
        };
        match started {
            Ok(()) => Ok(stack),
            Err(error) => {
                if let Err(second) = stack.stop().await {
                    tracing::warn!("after a failed start: {second:#}");
                }
                Err(error)
            }
        }
    }

    async fn start_parts(&mut self) -> anyhow::Result<()> {
        self.state.secret = secret_of(self.server.folder().path())?;
        self.tell("creating the schema");
        let pool = PgPool::connect(&self.state.database_url).await.context("cannot connect to the database")?;
        crate::database::migrate(&pool).await.context("cannot create the schema")?;
        pool.close().await;
        let mut ports = self.options.ports;
        // The gateway comes first, and is told where the api will be: until then the port is kept for it.
        let api_port = keep_port(ports.api)?;
        if self.options.webhooks {
            let api = api_port.local_addr().context("a port without a number")?;
            ports.api = api.port();
            self.webhook = Some(Webhook {
                url: format!("http://{api}/v1/webhooks/gateway"),
                secret: webhook_secret_of(self.server.folder().path())?,
            });
        }
        self.state.gateway_url = self.start_part("gateway", ports.gateway).await?;
        self.state.mail_url = Some(self.start_part("mail", ports.mail).await?);
        drop(api_port);
        self.state.api_url = self.start_part(self.options.api_role, ports.api).await?;
        self.state.worker_url = self.start_part("worker", ports.worker).await?;
        if self.options.console {
            self.state.console_url = Some(self.start_part("console", ports.console).await?);
        }
        self.until_all_answer().await?;
        self.state.write(self.server.folder().path())
    }

    async fn start_part(&mut self, role: &'static str, port: u16) -> anyhow::Result<String> {
        self.tell(&format!("starting the {role}"));
        let arguments = match role {
            "gateway" => self.options.gateway_arguments.clone(),
            "mail" => self.options.mail_arguments.clone(),
            role if role == self.options.api_role => self.options.api_arguments.clone(),
            "worker" => self.options.worker_arguments.clone(),
            _ => Vec::new(),
        };
        let mut environment = vec![("DATABASE_URL", self.state.database_url.clone())];
        if !is_another_company(role) {
            // Another company knows neither our secrets nor our addresses.
            environment.push(("CHECKOUT_SECRET", self.state.secret.clone()));
            environment.push(("CHECKOUT_GATEWAY_URL", self.state.gateway_url.clone()));
            environment.extend(self.state.mail_url.iter().map(|url| ("CHECKOUT_MAIL_URL", url.clone())));
            environment.push(("CHECKOUT_API_URL", self.state.api_url.clone()));
        }
        if role == "worker" {
            environment.extend(self.options.worker_environment.iter().cloned());
        }
        if let Some(webhook) = &self.webhook {
            if role == "gateway" {
                environment.push(("CHECKOUT_WEBHOOK_URL", webhook.url.clone()));
            }
            if matches!(role, "gateway" | "api") {
                environment.push(("CHECKOUT_WEBHOOK_SECRET", webhook.secret.clone()));
            }
        }
        let part = Part::start(PartSpec {
            role,
            program: self.options.program.clone(),
            arguments,
            environment,
            listen: address(port),
            log: self.server.folder().log_of(role),
            progress: self.options.progress,
        })
        .await?;
        let url = part.url.clone();
        self.parts.push(part);
        Ok(url)
    }

    async fn until_all_answer(&self) -> anyhow::Result<()> {
        self.tell("waiting until every part is ready");
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build()?;
        for part in &self.parts {
            // Another company has its own idea of a health page.
            let path = if is_another_company(part.role) { "/_mock/stats" } else { "/readyz" };
            let url = format!("{}{path}", part.url);
            let since = Instant::now();
            while !client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                let (role, log) = (part.role, part.log.display());
                anyhow::ensure!(part.pid().is_some(), "the {role} ended before it was ready (log: {log})");
                anyhow::ensure!(since.elapsed() < READY_MAX, "the {role} listens, but is not ready (log: {log})");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }

    /// Requests under way are answered, then the parts end, the other companies and PostgreSQL last.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        DemoState::remove(self.server.folder().path())?;
        let (others, ours): (Vec<Part>, Vec<Part>) =
            self.parts.drain(..).partition(|part| is_another_company(part.role));
        futures_util::future::join_all(ours.into_iter().map(Part::stop)).await;
        futures_util::future::join_all(others.into_iter().map(Part::stop)).await;
        self.server.stop().await
    }

    fn tell(&self, line: &str) {
        (self.options.progress)(line);
    }

    /// Where everything is, and the secret.
    pub fn state(&self) -> &DemoState {
        &self.state
    }

    pub fn folder(&self) -> &DataFolder {
        self.server.folder()
    }

    /// The processes that run just now, by role, `postgres` (its first process) among them.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        let server = self.server.pid().map(|pid| ("postgres", pid));
        self.parts.iter().filter_map(|part| Some((part.role, part.pid()?))).chain(server).collect()
    }
}

/// The roles that stand for somebody else.
fn is_another_company(role: &str) -> bool {
    matches!(role, "gateway" | "mail")
}
