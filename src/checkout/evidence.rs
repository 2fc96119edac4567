//! Evidence: what the gateway says by itself, kept, and brought to whoever can make something of it.
//!
//! Nothing is decided here. An event wakes recovery for its key, and recovery asks the gateway for the payment by name: that
//! answer is never behind the gateway's books, as its search may be. So events may come twice, late, in any order, before our
//! own answer, and for a charge we know nothing of yet: a claim that comes later finds them.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::Context;
use sqlx::{PgConnection, PgPool};

use super::{
    Checkout,
    frozen::{gateway_key, key_digest},
};
use crate::{
    charges::{self, store::Booked},
    crash_point::crash_point,
    database,
    gateway::event::GatewayEvent,
    idempotency::{
        claim_store, decide,
        key::ScopeDigest,
        record::{Holding, Record},
        store::{self, Newest},
    },
    reconciliation, refunds,
    webhooks::{
        self,
        store::{NewEvent, Unapplied},
    },
};

/// Events that one transaction looks at.
const BATCH: i64 = 256;
/// Transactions of one round: recovery itself waits meanwhile.
const BATCHES_MAX: usize = 16;
/// Whoever is at work on a key is usually done within this.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Payment intents that are asked for by name. A key has one; two are a mistake of somebody's, and more are not worth a wait.
const NAMED_MAX: i64 = 3;

/// The gateway repeats a delivery for 3 days, a key lives for 7 at most.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Events that one transaction forgets, and transactions at a time: the next look at the days goes on.
const FORGOTTEN_BATCH: i64 = 5_000;
const FORGOTTEN_BATCHES_MAX: usize = 400;

/// Keeps an event as it came. It is ours to remember once this returns, whatever happens to us.
pub async fn keep(pool: &PgPool, event: &GatewayEvent, payload: &str) -> anyhow::Result<()> {
    let ours = event.checkout_key.as_deref().filter(|key| key_digest(key).is_some());
    let new = NewEvent {
        event_id: &event.id,
        kind: &event.kind,
        gateway_key: ours,
        payment_intent: event.payment_intent.as_deref(),
        payload,
    };
    let mut tx = database::begin(pool).await?;
    webhooks::store::insert(&mut tx, &new).await.context("keeping an event of the gateway")?;
    tx.commit().await?;
    // It is kept, and the gateway does not know that yet: if we die here, it tells us again.
    crash_point!(WebhookStored);
    Ok(())
}

/// Forgets what is older than any retry, any search that lags and any delivery that is repeated: a month. From then on the
/// gateway's own list has to do.
pub async fn forget_old(pool: &PgPool) -> anyhow::Result<u64> {
    let mut forgotten = 0;
    for _ in 0..FORGOTTEN_BATCHES_MAX {
        let mut tx = database::begin(pool).await?;
        let batch = webhooks::store::forget(&mut tx, KEPT, FORGOTTEN_BATCH).await.context("forgetting events")?;
        tx.commit().await?;
        forgotten += batch;
        if batch.cast_signed() < FORGOTTEN_BATCH {
            break;
        }
    }
    Ok(forgotten)
}

/// What is known of a key besides its record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Payment intents that may have taken its money, to be asked for by name, the latest news first.
    pub named: Vec<String>,
    /// Those whose money goes back, or has gone: they pay for nothing any more.
    pub given_back: Vec<String>,
}

/// What webhooks and reconciliation know of a key.
pub async fn of(pool: &PgPool, digest: ScopeDigest) -> anyhow::Result<Evidence> {
    let mut connection = pool.acquire().await.context("no database connection")?;
    let found = reconciliation::store::under(&mut connection, &digest.0).await.context("reading findings")?;
    let (given_back, held): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, state)| state.is_given_back());
    let given_back: Vec<String> = given_back.into_iter().map(|(intent, _)| intent).collect();

    let key = gateway_key(digest);
    let most = NAMED_MAX + i64::try_from(given_back.len())?;
    let mut named = webhooks::store::named(&mut connection, &key, most).await.context("reading events")?;
    named.extend(held.into_iter().map(|(intent, _)| intent));
    let mut seen: HashSet<String> = given_back.iter().cloned().collect();
    named.retain(|intent| seen.insert(intent.clone()));
    named.truncate(usize::try_from(NAMED_MAX)?);
    Ok(Evidence { named, given_back })
}

/// Under which of these keys the gateway may have taken money already, although no record of ours says so: we were restored
/// from a backup, perhaps. Asked inside the claim, under the keys' locks.
pub async fn foreshadowed(tx: &mut PgConnection, digests: &[ScopeDigest]) -> sqlx::Result<HashSet<ScopeDigest>> {
    let keys: Vec<String> = digests.iter().copied().map(gateway_key).collect();
    let raw: Vec<[u8; 32]> = digests.iter().map(|digest| digest.0).collect();
    let named = webhooks::store::named_at_all(tx, &keys).await?;
    let found = reconciliation::store::found_at_all(tx, &raw).await?;
    let by_events = named.iter().filter_map(|key| key_digest(key));
    Ok(by_events.chain(found.into_iter().map(ScopeDigest)).collect())
}

/// Looks at the events that nothing has been made of yet. How many were applied is the answer.
pub async fn apply_once(checkout: &Checkout) -> anyhow::Result<usize> {
    let mut applied = 0;
    for _ in 0..BATCHES_MAX {
        let mut tx = database::begin(&checkout.pool).await?;
        let events = webhooks::store::take_unapplied(&mut tx, BATCH).await.context("looking for events")?;
        if events.is_empty() {
            tx.rollback().await?;
            break;
        }
        applied += apply(&mut tx, &events).await.context("applying events")?;
        tx.commit().await?;
        if i64::try_from(events.len())? < BATCH {
            break;
        }
    }
    Ok(applied)
}

/// What can be made of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Applied(&'static str),
    /// If its record still stands as it was seen.
    Wake,
    /// Somebody is at work on its key.
    Later,
}

async fn apply(tx: &mut PgConnection, events: &[Unapplied]) -> sqlx::Result<usize> {
    let of_event = |event: &Unapplied| event.gateway_key.as_deref().and_then(key_digest);
    let mut digests: Vec<ScopeDigest> = events.iter().filter_map(of_event).collect();
    digests.sort_unstable();
    digests.dedup();
    let raw: Vec<[u8; 32]> = digests.iter().map(|digest| digest.0).collect();
    let newest = store::newest(tx, &digests).await?;
    let booked = charges::store::booked(tx, &raw).await?;
    // Of a refund that was given back there is more to know than its record can say: it may have failed since.
    let given_back = refunds::store::look_now(tx, &raw).await?;

    let verdicts: HashMap<ScopeDigest, Verdict> =
        digests.iter().map(|digest| (*digest, verdict(*digest, &newest, &booked))).collect();
    // In the order of the digests, as every claim and settle locks its rows.
    let to_wake: Vec<(ScopeDigest, &Record)> = digests
        .iter()
        .filter(|digest| verdicts.get(digest) == Some(&Verdict::Wake))
        .filter_map(|digest| Some((*digest, newest.records.get(digest)?)))
        .collect();
    let woken = if to_wake.is_empty() { HashSet::new() } else { claim_store::wake(tx, &to_wake).await? };

    let (mut applied, mut later) = (Vec::new(), Vec::new());
    for event in events {
        let id = event.event_id.as_str();
        match of_event(event).map(|digest| (digest, verdicts.get(&digest).copied())) {
            None => applied.push((id, "not_ours")),
            Some((digest, _)) if given_back.contains(&digest.0) => applied.push((id, "woke_recovery")),
            Some((_, Some(Verdict::Applied(outcome)))) => applied.push((id, outcome)),
            Some((digest, Some(Verdict::Wake))) if woken.contains(&digest) => applied.push((id, "woke_recovery")),
            // It moved between our look and our write.
            Some(_) => later.push(id),
        }
    }
    webhooks::store::applied(tx, &applied).await?;
    webhooks::store::look_later(tx, &later, LOOK_AGAIN).await?;
    Ok(applied.len())
}

fn verdict(digest: ScopeDigest, newest: &Newest, booked: &HashMap<[u8; 32], Booked>) -> Verdict {
    let bought = booked.get(&digest.0).is_some_and(|booked| booked.succeeded);
    match newest.records.get(&digest) {
        _ if bought => Verdict::Applied("already_known"),
        // Its client was told that nothing was sent, and it alone may change its mind: its claim will find the event.
        Some(record) if decide::is_released(record, newest.now) => Verdict::Applied("unmatched"),
        Some(record) => match record.holding {
            Holding::Completed(_) | Holding::Failed(_) => Verdict::Applied("already_known"),
            Holding::Unknown | Holding::NeedsReview => Verdict::Wake,
            Holding::InFlight { lease_until } if lease_until <= newest.now => Verdict::Wake,
            Holding::InFlight { .. } => Verdict::Later,
        },
        // A refusal outlives its record as a failed charge.
        None if booked.contains_key(&digest.0) => Verdict::Applied("already_known"),
        None => Verdict::Applied("unmatched"),
    }
}
