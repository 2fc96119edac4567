//! The one program, in its roles. Question: which process does what, and how is each started?
//!
//! Without a subcommand it is the demo: every role on this machine, with a database of its own.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use checkout::{
    audit::{self, VerifyArgs},
    charge_run::{self, ChargeRunArgs},
    config::{ApiArgs, ConsoleArgs, MockGatewayArgs, MockMailArgs, WorkerArgs},
    credential::{Credentials, Subject},
    database::embedded::guardian::{self, GuardianArgs},
    demo::{self, DemoArgs, DemoState},
    desk::{
        self, ReconcileArgs, ReviewArgs,
        parked::{self, ParkedArgs},
    },
    ids::CustomerId,
    place::Place,
    stop, telemetry,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A runnable reference for idempotent payments: one tap, one order, one charge.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = "Example:\n  checkout demo --base-port 9000")]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    demo: DemoArgs,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The whole stack on this machine, with a PostgreSQL of its own (what runs without a subcommand).
    #[command(
        after_help = "Examples:\n  checkout demo\n  checkout demo --base-port 9000 --ephemeral\n  checkout demo --check"
    )]
    Demo(DemoArgs),
    /// The checkout over HTTP: takes orders, charges for them once, and answers a repeated request as it did the first.
    #[command(
        after_help = "Example:\n  DATABASE_URL=postgres://me@localhost/checkout CHECKOUT_SECRET=… checkout api --listen 127.0.0.1:8080"
    )]
    Api(ApiArgs),
    /// The mock payment gateway: the company that takes the money, with its own books, which can be told to misbehave.
    #[command(after_help = "Example:\n  checkout gateway --in-memory --fault drop_after:0.004 --seed 7")]
    Gateway(MockGatewayArgs),
    /// The mock mail service: the company that delivers the receipts, with its own books, which can be told to misbehave.
    #[command(after_help = "Example:\n  checkout mail --in-memory --fault drop_after:0.004 --seed 7")]
    Mail(MockMailArgs),
    /// What happens without a customer: orders left half done are finished, and old keys are forgotten.
    #[command(after_help = "Example:\n  DATABASE_URL=postgres://me@localhost/checkout checkout worker")]
    Worker(WorkerArgs),
    /// A web page for people of the house: orders, keys and requests as they stand. It only reads.
    #[command(
        after_help = "Example:\n  DATABASE_URL=postgres://me@localhost/checkout CHECKOUT_SECRET=… checkout console --api-url http://127.0.0.1:8080"
    )]
    Console(ConsoleArgs),
    /// Prints a bearer token for a customer.
    #[command(
        after_help = "Examples:\n  checkout token 42                    # signed with the running demo's secret\n  checkout token 42 --secret \"$CHECKOUT_SECRET\" --ttl-hours 1"
    )]
    Token(TokenArgs),
    /// Charges a list of invoice lines, each once, however often it is run: for a batch job that stores no keys.
    #[command(
        after_help = "Example file:\n  customer,invoice_line,billing_period,amount,currency,payment_method\n  42,INV-2026-117/1,2026-11,4299,eur,pm_card_visa\n\nExamples:\n  checkout charge-run november.csv --dry-run   # keys and totals; nothing is sent\n  checkout charge-run november.csv             # at the running demo; after a crash, the same again\n  checkout charge-run november.csv --api-url https://shop.example --secret \"$CHECKOUT_SECRET\"\n\nThe key of a line is made of customer, invoice line and billing period. The same line with another amount is rejected\n(422 idempotency_key_reused) and never charged twice. A declined line stays declined until its key expires;\nto charge another card for it, give it an invoice line of its own.\nWritten beside the file, anew by each run: november.results.csv and, if rows were rejected, november.rejected.csv.\n\nExit code: 0 when every line has its final answer, 1 when a line was rejected, is unknown or was not sent."
    )]
    ChargeRun(ChargeRunArgs),
    /// Audits a stack: the database against the gateway's own books and the mail service's.
    #[command(
        after_help = "Examples:\n  checkout verify                      # the running demo\n  checkout verify --database-url postgres://… --gateway-url http://127.0.0.1:8082\n\nExit code: 0 clean, 1 anomalies, 2 could not look."
    )]
    Verify(VerifyArgs),
    /// Lists the keys that need review, or ends the review of one.
    #[command(
        after_help = "Examples:\n  checkout review                                         # what waits, at the running demo\n  checkout review chk_… --charged pi_… --by Ada           # it took the money: the order is placed\n  checkout review chk_… --not-charged --by Ada            # it did not: the key ends with a 402"
    )]
    Review(ReviewArgs),
    /// Lists the events that wait for a person, or sends them on.
    #[command(
        after_help = "Examples:\n  checkout parked                            # what waits, at the running demo\n  checkout parked --redrive 0199…            # this event is tried again, and then those behind it\n  checkout parked --redrive all --stage receipts"
    )]
    Parked(ParkedArgs),
    /// Lists what the gateway holds that our books do not explain, and what became of it.
    #[command(
        after_help = "Examples:\n  checkout reconcile                   # what was found so far, at the running demo\n  checkout reconcile --now             # compare the books first"
    )]
    Reconcile(ReconcileArgs),
    /// Looks after an embedded server on behalf of the process that holds its stdin.
    #[command(hide = true)]
    Guardian(GuardianArgs),
    /// A mistake, kept to be measured: the api without idempotency keys. What is sent twice is sold twice.
    #[cfg(feature = "classroom")]
    #[command(
        after_help = "Example:\n  checkout no-keys --listen 127.0.0.1:9001    # beside the api, on its database (DATABASE_URL, CHECKOUT_SECRET)"
    )]
    NoKeys(ApiArgs),
    /// Lists the points at which a process can be made to die, stop or wait (CHECKOUT_CRASH=<name>:<action>[:<nth>]).
    #[cfg(feature = "classroom")]
    #[command(
        after_help = "Example:\n  CHECKOUT_CRASH=charge.answered:kill checkout api    # dies with the first charge's answer in hand"
    )]
    CrashPoints,
}

#[derive(Debug, Args)]
struct TokenArgs {
    /// The customer's number.
    #[arg(value_parser = clap::value_parser!(i64).range(1..))]
    customer: i64,
    /// The secret to sign with, instead of the running demo's.
    #[arg(long, env = "CHECKOUT_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// The data folder of the running demo whose secret signs.
    #[arg(long, env = "CHECKOUT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// How long the token is good for, in hours.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=8760))]
    ttl_hours: u64,
}

fn main() -> ExitCode {
    let cli = parse();
    telemetry::start();
    // The only TLS provider compiled in; without this line the first TLS client panics.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("checkout: a TLS provider is already installed");
        return ExitCode::FAILURE;
    }
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("checkout: {}", telemetry::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The command line, or clap's own words and exit code.
fn parse() -> Cli {
    let mut command = Cli::command();
    let given = command.get_matches_mut();
    let demo = match given.subcommand() {
        None => Some(&given),
        Some(("demo", demo)) => Some(demo),
        Some(_) => None,
    };
    if let Some((one, other)) = demo.and_then(DemoArgs::contradiction) {
        let said = format!("the argument '{one}' cannot be used with '{other}'");
        command.error(ErrorKind::ArgumentConflict, said).exit();
    }
    Cli::from_arg_matches(&given).unwrap_or_else(|error| error.format(&mut command).exit())
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let ended = runtime.block_on(play(cli));
    // Whatever still blocks a thread has been given up by its role already.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn play(cli: Cli) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "classroom")]
    checkout::crash_point::arm_from_environment()?;
    let role = cli.role.unwrap_or(Role::Demo(cli.demo));
    let stop = if matches!(role, Role::Guardian(_)) { stop::patient_token() } else { stop::token() }?;
    match role {
        Role::Demo(args) => demo::run(args, stop).await,
        Role::Api(args) => checkout::app::api(args, stop).await,
        Role::Gateway(args) => checkout::mock_gateway::run(args, stop).await,
        Role::Mail(args) => checkout::mock_mail::run(args, stop).await,
        Role::Worker(args) => checkout::app::worker(args, stop).await,
        Role::Console(args) => checkout::console::run(args, stop).await,
        Role::Guardian(args) => guardian::run(args, stop).await,
        Role::Token(args) => token(&args),
        #[cfg(feature = "classroom")]
        Role::NoKeys(args) => checkout::mistakes::no_keys::run(args, stop).await,
        #[cfg(feature = "classroom")]
        Role::CrashPoints => {
            print!("{}", checkout::crash_point::listing());
            Ok(())
        }
        Role::ChargeRun(args) => return charge_run::run(args, stop, running_api).await,
        Role::Verify(args) => return Ok(audit::verify(args, running_demo).await.into()),
        Role::Review(args) => desk::review(args, running_demo).await,
        Role::Parked(args) => parked::parked(args, running_demo).await,
        Role::Reconcile(args) => desk::reconcile(args, running_demo).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn token(args: &TokenArgs) -> anyhow::Result<()> {
    let secret = match &args.secret {
        Some(secret) => secret.clone(),
        None => DemoState::read(args.data_dir.as_deref())?.secret,
    };
    let customer = Subject::Customer(CustomerId(args.customer));
    println!("{}", Credentials::new(&secret)?.mint(customer, Duration::from_secs(args.ttl_hours * 60 * 60))?);
    Ok(())
}

fn running_demo(data_dir: Option<&Path>) -> anyhow::Result<Place> {
    let state = DemoState::read(data_dir)?;
    Ok(Place { database_url: state.database_url, gateway_url: state.gateway_url, mail_url: state.mail_url })
}

fn running_api(data_dir: Option<&Path>) -> anyhow::Result<charge_run::Api> {
    let state = DemoState::read(data_dir)?;
    Ok(charge_run::Api { url: state.api_url, secret: state.secret })
}
