//! The phones: load from outside, over HTTP only. Question: how many orders does this machine really take?

mod arrivals; // when each tap is due
mod bench; // `load bench`, `load harness`
mod books; // what a stack has written down
mod capacity; // `load capacity`
mod compare; // `load compare`
mod cpu; // what it cost, by process
mod drive; // one phase: closed or open loop
mod figures; // numbers as people write them
mod fill; // a table full of keys
mod found; // what a run of phones found, as it is published
mod growth; // `load growth`
mod judge; // intents against books
mod line; // one keep-alive connection
mod machine; // where the figures were taken
mod measure; // latency from the moment a tap was due
mod null_server; // a server that does nothing
mod oracle; // what must come of it
mod orders; // what is sent
mod outage; // `load outage`
mod overhead; // `load overhead`
mod page; // the report, as one HTML file
mod pipeline; // does what follows keep up
mod pool; // a fixed number of connections for any number of phones
mod progress; // what is seen meanwhile
mod queue; // taps that wait for a free connection
mod report; // the figures of a run
mod report_file; // `load report`
mod run; // `load run`
mod setting; // batch limit, lanes and pool of one side
mod stand; // the server under load
mod storm; // `load storm`
mod swarm; // the phones
mod tale; // what phones found, for people
mod text; // the figures of a benchmark, for people
mod told; // what the phones were told, added up
mod trial; // one client in one network
mod verdict; // may they be believed, are they good enough
mod week; // a run, drawn out to a week
mod worked_example; // `load worked-example`

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

const HELP: &str = "\
`load harness` tells how much of a measured order is the harness's own: the same phases against a server that answers at once.
Run it on a new machine first; whatever it takes there is missing from every figure of `load bench`.

Examples:
  load bench --rate 3500 --seconds 30
  load harness --rate 3500 --seconds 10
  load bench --help";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load for the checkout, from outside.
#[derive(Debug, Parser)]
#[command(name = "load", version, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The order path with and without group commit, side by side: capacity, latency at a fixed rate, CPU per order.
    #[command(after_help = bench::BENCH_HELP)]
    Bench(bench::BenchArgs),
    /// What the harness itself costs, against a server that does nothing.
    #[command(
        after_help = "Example:\n  load harness --rate 3500 --seconds 10 --expect-cpu-us 55\n\nExit code: 0 held, 2 --expect-cpu-us missed, 3 invalid."
    )]
    Harness(bench::HarnessArgs),
    /// Phones with a network between: taps by the clock, lost answers, retries, and an audit of every single purchase.
    #[command(after_help = run::RUN_HELP)]
    Run(run::RunArgs),
    /// Several clients in the same network, side by side: no keys, a new key with every retry, one key, no retries.
    #[command(after_help = compare::COMPARE_HELP)]
    Compare(compare::CompareArgs),
    /// The story of every interview with figures: without keys, with keys, with the bug that shipped, and with its fix.
    #[command(after_help = worked_example::WORKED_EXAMPLE_HELP)]
    WorkedExample(worked_example::WorkedExampleArgs),
    /// How many orders per second the whole stack takes, with relay, ledger and receipts keeping up.
    #[command(after_help = capacity::CAPACITY_HELP)]
    Capacity(capacity::CapacityArgs),
    /// What keys cost: the same orders, without keys and with them.
    #[command(after_help = overhead::OVERHEAD_HELP)]
    Overhead(overhead::OverheadArgs),
    /// What a claim costs when millions of keys are remembered, and what it costs to forget a day of them.
    #[command(after_help = growth::GROWTH_HELP)]
    Growth(growth::GrowthArgs),
    /// The page of a run that was kept with --json: one file, no network.
    #[command(after_help = "Example:\n  load report compare.json --out compare.html")]
    Report(report_file::ReportArgs),
    /// The JSON schema of what `load run --json` and `load compare --json` write.
    Schema,
    /// The worker stands still for a while, under load: what do customers notice, and how is it paid back?
    #[command(after_help = outage::OUTAGE_HELP)]
    Outage(outage::OutageArgs),
    /// The server stands still for ten seconds, and its clients retry as they were built to: what does that add?
    #[command(after_help = storm::STORM_HELP)]
    Storm(storm::StormArgs),
    /// Answers every order with the same 201.
    #[command(hide = true)]
    NullServer(null_server::NullServerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("load: {error:#}");
            // No figures at all are no valid figures.
            ExitCode::from(3)
        }
    }
}

/// One thread drives all connections: a second one would take from the server what it adds here.
fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // The only TLS provider compiled in; without this line the first TLS client panics.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let stop = checkout::stop::token()?;
        match cli.command {
            Command::Bench(args) => bench::bench(args, stop).await,
            Command::Harness(args) => bench::harness(args, stop).await,
            Command::Run(args) => run::run(args, stop).await,
            Command::Compare(args) => compare::compare(args, stop).await,
            Command::WorkedExample(args) => worked_example::worked_example(args, stop).await,
            Command::Capacity(args) => capacity::capacity(args, stop).await,
            Command::Overhead(args) => overhead::overhead(args, stop).await,
            Command::Growth(args) => growth::growth(args, stop).await,
            Command::Report(args) => report_file::report(&args),
            Command::Schema => {
                println!("{}", found::Compared::schema());
                Ok(ExitCode::SUCCESS)
            }
            Command::Outage(args) => outage::outage(args, stop).await,
            Command::Storm(args) => storm::storm(args, stop).await,
            Command::NullServer(args) => null_server::run(args, stop).await.map(|()| ExitCode::SUCCESS),
        }
    })
}
