//! `load outage`. Question: when everything behind the commit stands still for a while, does a customer notice, and is it paid
//! back?
//!
//! Three phases at one rate: as always, with the worker paused (SIGSTOP: it holds its leases and does nothing, the worst kind of
//! dead), and after it goes on, while it pays back what has piled up. The checkout's latency should be the same in all of them.

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use checkout::stop::{Signal, send};
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    drive::{self, Driven, Loop, Phase},
    machine::Machine,
    orders::Orders,
    pipeline::{self, Pipeline},
    report::BUILD,
    setting::Setting,
    stand::{RelayFate, Sells, Stand},
};

pub(crate) const OUTAGE_HELP: &str = "\
Example:
  load outage --rate 2000 --seconds 20

Exit code: 0 everything was delivered once and the audit is clean, 1 not, 3 no figures.";

#[derive(Debug, Args)]
pub(crate) struct OutageArgs {
    /// Orders due per second.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// How long each phase lasts, the outage among them, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Keep-alive connections, each with one order at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
}

pub(crate) async fn outage(args: OutageArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    println!("load {}, {BUILD} build, {}", env!("CARGO_PKG_VERSION"), Machine::read());
    let setting: Setting = "256".parse().map_err(anyhow::Error::msg)?;
    let stand = Stand::stack(Sells::WithKeys, setting, RelayFate::Lives, &stop).await?;
    let done = tokio::select! {
        done = measured(&stand, &args) => done,
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped before the end")),
    };
    stand.stop().await?;
    Ok(if done? { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn measured(stand: &Stand, args: &OutageArgs) -> anyhow::Result<bool> {
    let books = stand.books.as_ref().context("an outage needs a stack of its own")?;
    let worker = stand.pid_of("worker").context("the stack has no worker")?;
    let orders = Orders::of_customers(1000, &stand.secret, stand.server)?;
    let phase = Phase {
        looped: Loop::Open { rate_per_s: args.rate },
        connections: usize::from(args.connections),
        warmup: Duration::from_secs(5),
        lasting: Duration::from_secs(args.seconds),
        queue_limit: 10_000,
    };

    let before = drive::run(&phase, stand.server, &orders, stand.watched()).await?;
    say("as always", &before);
    anyhow::ensure!(send(worker, Signal::Stop), "the worker cannot be paused");
    let during = drive::run(&phase, stand.server, &orders, stand.watched()).await;
    let piled_up = books.behind().await;
    anyhow::ensure!(send(worker, Signal::Continue), "the worker cannot go on");
    let during = during?;
    say("worker paused", &during);
    println!("  {} events have piled up", piled_up?.events());
    let driving = drive::run(&phase, stand.server, &orders, stand.watched());
    let (after, pipeline) = pipeline::follow(books, Duration::ZERO, driving).await?;
    say("paying back", &after);
    println!("  {}", paid_back(&pipeline, args.rate));

    let told = [&before, &during, &after].iter().map(|driven| driven.counted.orders).sum::<u64>();
    let written = books.read().await?;
    println!("  {told} answered 201: {written:?}");
    let audit = books.audit().await?;
    println!("  audit: {audit}");
    let counts = [written.orders, written.captures, written.booked, written.mails];
    Ok(counts.iter().all(|count| *count == told) && audit.anomalies.is_empty())
}

fn say(name: &str, driven: &Driven) {
    let (counted, latency) = (&driven.counted, driven.counted.latency_ms);
    println!(
        "{name:<14} {:.0} orders/s held, {} dropped; p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        counted.held_per_s, counted.dropped, latency.p50, latency.p99, latency.max
    );
}

/// When the backlog was down to a second's worth, under load all the while.
fn paid_back(pipeline: &Pipeline, rate_per_s: u32) -> String {
    let caught_up = pipeline.samples.iter().find(|sample| sample.behind.events() <= u64::from(rate_per_s));
    match (caught_up, pipeline.drained_s) {
        (Some(sample), _) => format!("paid back {:.0} s after the worker went on, under load", sample.at_s),
        (None, Some(drained_s)) => format!("paid back {drained_s:.1} s after the load ended"),
        (None, None) => "NOT paid back in time".to_owned(),
    }
}
