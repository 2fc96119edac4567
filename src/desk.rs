//! `checkout review` and `checkout reconcile`: the desk where a person decides what no program could find out, and sees what the
//! gateway holds that our books do not explain. Beside it, `checkout parked`: what to do with an event that nobody could deal with.

pub mod parked;

use std::{path::Path, time::Duration};

use clap::{ArgGroup, Args};
use tokio_util::sync::CancellationToken;

use crate::{
    checkout::{
        Checkout,
        reconcile::{Reconciled, Reconciler, findings, refund_findings},
        review::{self, Verdict},
    },
    config::{DatabaseArgs, GatewayClientArgs, ReconcileKnobs, Timing},
    database,
    gateway::client::GatewayClient,
    place::{Place, PlaceArgs},
    reconciliation::UnexplainedRefund,
};

/// Keys, or findings, that one listing shows.
const LISTED_MAX: i64 = 100;

/// Without a key: lists the keys that wait. With one: ends its review.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("verdict").args(["charged", "not_charged"]).requires("gateway_key")))]
pub struct ReviewArgs {
    /// The key as the gateway knows it (`chk_…`), from the listing.
    #[arg(requires = "verdict", requires = "by")]
    pub gateway_key: Option<String>,
    /// What moved the money at the gateway: the payment intent (`pi_…`) that took it, or, for a refund, the refund (`re_…`) that
    /// gave it back. The gateway is asked to confirm that. Of a refund it also says the amount, and that is what is booked.
    #[arg(long, value_name = "GATEWAY_ID")]
    pub charged: Option<String>,
    /// Nothing at the gateway took the money of this order, or gave it back: the key ends with a stored refusal, and the customer
    /// may start anew.
    #[arg(long)]
    pub not_charged: bool,
    /// Who decides. Kept with the decision.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The secret key the gateway knows us by.
    #[arg(long, env = "CHECKOUT_GATEWAY_KEY", default_value = "sk_test_checkout", hide_env_values = true)]
    pub gateway_secret: String,
    #[command(flatten)]
    pub timing: Timing,
}

/// Lists or decides. `find_demo` reads where the demo of a data folder, or of the usual one, is running.
pub async fn review(
    args: ReviewArgs,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
) -> anyhow::Result<()> {
    let checkout = open(&args, find_demo).await?;
    let Some(gateway_key) = &args.gateway_key else { return list(&checkout).await };
    let verdict = match &args.charged {
        Some(gateway_id) => Verdict::Charged { gateway_id: gateway_id.clone() },
        None => Verdict::NotCharged,
    };
    let decided = review::decide(&checkout, gateway_key, &verdict, args.by.as_deref().unwrap_or_default()).await?;
    println!("decided: {gateway_key} is settled, and its key answers from now on");
    for payment_intent in decided.to_give_back {
        println!("{payment_intent} took another amount under this key: reconciliation will give it back");
    }
    Ok(())
}

async fn list(checkout: &Checkout) -> anyhow::Result<()> {
    let waiting = review::waiting(checkout, LISTED_MAX).await?;
    for key in &waiting {
        let what = match &key.wanted {
            Ok(wanted) => format!("customer {}  {}  {}", wanted.customer(), wanted.operation().name(), wanted.money()?),
            Err(error) => format!("{error:#}"),
        };
        println!("{}  since {}  {what}", key.gateway_key, key.since);
    }
    match waiting.len() {
        0 => println!("no key waits for review"),
        some => println!("{some} waiting; look each up at the gateway, then decide with --charged or --not-charged"),
    }
    Ok(())
}

/// Lists what the gateway holds, or gave back, and our books do not explain, newest first.
#[derive(Debug, Clone, Args)]
pub struct ReconcileArgs {
    /// Compare the books first, now, as the worker does every minute.
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The secret key the gateway knows us by.
    #[arg(long, env = "CHECKOUT_GATEWAY_KEY", default_value = "sk_test_checkout", hide_env_values = true)]
    pub gateway_secret: String,
    #[command(flatten)]
    pub knobs: ReconcileKnobs,
}

/// Lists, after a round if one is wanted.
pub async fn reconcile(
    args: ReconcileArgs,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
) -> anyhow::Result<()> {
    let place = Place::find(&args.place, find_demo)?;
    let (database, gateway) = reached(place, &args.gateway_secret);
    let pool = database::connect(&database, "checkout reconcile").await?;
    if args.now {
        let grace = Duration::from_millis(args.knobs.reconcile_grace_ms);
        let mut reconciler =
            Reconciler::new(pool.clone(), GatewayClient::new(&gateway)?, grace, None, CancellationToken::new());
        let mut unread = true;
        while unread {
            let round = reconciler.round().await?.unwrap_or_default();
            let Reconciled { listed, new_findings, refunded, explained, more, .. } = round;
            let Reconciled { refunds_listed, new_refund_findings, refunds_explained, .. } = round;
            println!(
                "looked at {listed} payments: {new_findings} new findings, {refunded} refunded, {explained} explained"
            );
            println!(
                "looked at {refunds_listed} refunds: {new_refund_findings} new findings, {refunds_explained} explained"
            );
            unread = more;
        }
    }
    let findings = findings(&pool, LISTED_MAX).await?;
    for finding in &findings {
        let key = finding.gateway_key.as_deref().unwrap_or("no key of ours");
        let refund = finding.refund_id.as_deref().map_or_else(String::new, |id| format!("  {id}"));
        let detail = finding.detail.as_deref().map_or_else(String::new, |detail| format!("  ({detail})"));
        let (kind, state) = (finding.kind.name(), finding.state.name());
        println!(
            "{}  {kind}  {state}  {} {}  of {}  {key}{refund}{detail}",
            finding.payment_intent, finding.amount_minor, finding.currency, finding.created_at
        );
    }
    let refunds = refund_findings(&pool, LISTED_MAX).await?;
    refunds.iter().for_each(show_refund);
    if findings.is_empty() && refunds.is_empty() {
        println!("nothing was found that our books do not explain");
    }
    Ok(())
}

/// What went back cannot be undone, so there is nothing to decide: it is shown for as long as no row of ours explains it.
fn show_refund(finding: &UnexplainedRefund) {
    let key = finding.key.as_ref().map_or("no key of ours", |(key, _)| key);
    let intent = finding.payment_intent.as_deref().unwrap_or("no payment intent");
    println!(
        "{}  {}  {}  {} {} given back of {intent}, {}  {key}",
        finding.refund_id,
        finding.kind.name(),
        finding.state.name(),
        finding.amount_minor,
        finding.currency,
        finding.created_at
    );
}

fn reached(place: Place, gateway_secret: &str) -> (DatabaseArgs, GatewayClientArgs) {
    let database = DatabaseArgs { database_url: place.database_url, connections: 2, batch_limit: 1, batch_lanes: 1 };
    let gateway = GatewayClientArgs { gateway_url: place.gateway_url, gateway_key: gateway_secret.to_owned() };
    (database, gateway)
}

async fn open(
    args: &ReviewArgs,
    find_demo: impl FnOnce(Option<&Path>) -> anyhow::Result<Place>,
) -> anyhow::Result<Checkout> {
    let place = Place::find(&args.place, find_demo)?;
    let (database, gateway) = reached(place, &args.gateway_secret);
    let pool = database::connect(&database, "checkout review").await?;
    Checkout::new(pool, &database, &gateway, args.timing.clone())
}
