//! Claim and settle at the database: one owner per key, across batches, leases, lost acknowledgements and midnight.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use checkout::{
    charges::{
        Purpose,
        store::{ChargeResult, NewCharge},
    },
    checkout::{
        claim::{ClaimOutcome, ClaimRequest, Claims, New},
        settle::{Booked, Endings, Settled, Settlement},
    },
    config::DatabaseArgs,
    database::{self, group_commit::Batch},
    idempotency::{
        claim_store::{self, NewRecord},
        end_store::Ending,
        fingerprint::{Compared, Fingerprints},
        key::{IdempotencyKey, Operation, Scope},
        record::{Claim, StoredResponse},
        store,
    },
    ids::{AttemptId, ChargeId, CustomerId, EventId, OrderId},
    money::{Currency, Money},
    orders::store::NewOrder,
    outbox::store::NewEvent,
};
use futures_util::FutureExt;
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::{TestDatabase, keep_days, set_clock, usual_timing, wait_for};

/// The api's own kind of pool on a database of this test's own, with today's partition.
async fn open() -> (PgPool, Arc<Claims>, Endings) {
    let database = TestDatabase::create().await;
    // Upkeep on a connection of its own: what it scans is not the order path's doing.
    let upkeep = database.pool().await;
    keep_days(&upkeep).await;
    upkeep.close().await;
    let args = DatabaseArgs { database_url: database.url, connections: 10, batch_limit: 256, batch_lanes: 3 };
    let pool = database::connect(&args, "test").await.unwrap();
    (pool.clone(), Arc::new(Claims::new(pool.clone(), &usual_timing())), Endings::new(pool))
}

fn request(key: &str, body: &str) -> ClaimRequest {
    let scope = Scope {
        customer: CustomerId(42),
        operation: Operation::CreateOrder,
        key: IdempotencyKey::parse(key.as_bytes()).unwrap(),
    };
    ClaimRequest {
        digest: scope.digest(),
        scope,
        fingerprints: Fingerprints::of(Compared {
            method: "POST",
            path: "/v1/orders",
            query: "",
            canonical_body: body.as_bytes(),
        }),
        attempt: AttemptId::mint(),
        new: Some(New::Ready { resource_id: Uuid::now_v7(), frozen: body.to_owned() }),
    }
}

async fn claim_one(claims: &Claims, request: &ClaimRequest) -> ClaimOutcome {
    claims.run(std::slice::from_ref(request)).await.unwrap().pop().unwrap()
}

#[track_caller]
fn executed(outcome: ClaimOutcome) -> Claim {
    match outcome {
        ClaimOutcome::Execute(claim) => claim,
        other => panic!("not Execute: {other:?}"),
    }
}

/// A settlement that approves, with all its rows.
fn approval(claim: &Claim) -> Settlement {
    let money = Money::new(4299, Currency::Eur).unwrap();
    let charge = NewCharge {
        id: ChargeId::mint(),
        customer: CustomerId(42),
        key_digest: claim.digest.0,
        amount: money,
        purpose: Purpose::Order,
        client_reference: None,
        claimed_at: claim.now,
        result: ChargeResult::Succeeded { gateway_id: format!("pi_{}", Uuid::new_v4().simple()) },
    };
    let order = NewOrder {
        id: OrderId(claim.resource_id),
        customer: CustomerId(42),
        charge: charge.id,
        key_digest: claim.digest.0,
        total: money,
        lines: Vec::new(),
        client_reference: None,
        created_at: claim.now,
    };
    let event = NewEvent {
        id: EventId::mint(),
        aggregate: order.id.into(),
        sequence: 1,
        kind: "order.created",
        payload: "{}".into(),
    };
    let body = claim.attempt.to_string().into_bytes();
    let response = StoredResponse { status: 201, content_type: "application/json".into(), location: None, body };
    Settlement {
        claim: claim.clone(),
        ending: Ending::Completed(response),
        booked: Booked::Order(Box::new((charge, order, event))),
        review: None,
    }
}

async fn settle_one(endings: &Endings, settlement: &Settlement) -> Settled {
    endings.run(std::slice::from_ref(settlement)).await.unwrap().pop().unwrap()
}

async fn count(pool: &PgPool, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn duplicates_inside_one_batch_have_one_leader() {
    let (pool, claims, _) = open().await;
    let batch = [request("a", "1"), request("b", "1"), request("a", "1"), request("a", "2"), request("b", "1")];
    let outcomes = claims.run(&batch).await.unwrap();
    assert!(
        matches!(
            outcomes.as_slice(),
            [
                ClaimOutcome::Execute(_),
                ClaimOutcome::Execute(_),
                ClaimOutcome::InFlight { .. },
                ClaimOutcome::Mismatch,
                ClaimOutcome::InFlight { .. }
            ]
        ),
        "{outcomes:?}"
    );
    assert_eq!(count(&pool, "idempotency_records").await, 2);
}

#[tokio::test]
async fn a_claim_whose_acknowledgement_was_lost_recognises_itself() {
    let (_, claims, _) = open().await;
    let mine = request("a", "1");
    let first = executed(claim_one(&claims, &mine).await);
    let again = executed(claim_one(&claims, &mine).await);
    assert_eq!((again.fence, again.attempt, again.resource_id), (first.fence, first.attempt, first.resource_id));
    assert!(matches!(claim_one(&claims, &request("a", "1")).await, ClaimOutcome::InFlight { .. }));
}

#[tokio::test]
async fn a_settlement_whose_acknowledgement_was_lost_is_done_and_done_once() {
    let (pool, claims, endings) = open().await;
    let settlement = approval(&executed(claim_one(&claims, &request("a", "1")).await));
    for _ in 0..3 {
        assert_eq!(settle_one(&endings, &settlement).await, Settled::Done);
    }
    for table in ["orders", "charges", "outbox"] {
        assert_eq!(count(&pool, table).await, 1, "{table}");
    }
}

#[tokio::test]
async fn a_late_owner_writes_nothing_after_a_take_over() {
    let (pool, claims, endings) = open().await;
    let late = executed(claim_one(&claims, &request("a", "1")).await);
    set_clock(&pool, "16 seconds").await;
    let retry = request("a", "1");
    let ClaimOutcome::Resume(owner) = claim_one(&claims, &retry).await else { panic!("no take-over") };
    assert_eq!((owner.fence, owner.maybe_sent, owner.resource_id), (2, true, late.resource_id));

    assert_eq!(settle_one(&endings, &approval(&late)).await, Settled::Fenced);
    for table in ["orders", "charges", "outbox"] {
        assert_eq!(count(&pool, table).await, 0, "{table}");
    }
    assert_eq!(settle_one(&endings, &approval(&owner)).await, Settled::Done);
    assert_eq!(settle_one(&endings, &approval(&late)).await, Settled::Fenced);
    let ClaimOutcome::Replay(response) = claim_one(&claims, &request("a", "1")).await else { panic!("no replay") };
    assert_eq!(response.body, retry.attempt.to_string().into_bytes());
    assert_eq!(count(&pool, "orders").await, 1);
}

#[tokio::test]
async fn a_fenced_item_does_not_spoil_its_batch() {
    let (pool, claims, endings) = open().await;
    let late = executed(claim_one(&claims, &request("a", "1")).await);
    set_clock(&pool, "16 seconds").await;
    assert!(matches!(claim_one(&claims, &request("a", "1")).await, ClaimOutcome::Resume(_)));
    let good = executed(claim_one(&claims, &request("b", "1")).await);
    let settled = endings.run(&[approval(&late), approval(&good)]).await.unwrap();
    assert_eq!(settled, [Settled::Fenced, Settled::Done]);
    assert_eq!(count(&pool, "orders").await, 1);
}

/// Two owners of one key in one batch: what the update returns for the one is no permission for the other.
#[tokio::test]
async fn a_late_owner_writes_nothing_even_in_one_batch_with_its_successor() {
    let (pool, claims, endings) = open().await;
    let late = executed(claim_one(&claims, &request("a", "1")).await);
    set_clock(&pool, "16 seconds").await;
    let ClaimOutcome::Resume(owner) = claim_one(&claims, &request("a", "1")).await else { panic!("no take-over") };
    let unknown = Settlement {
        claim: owner,
        ending: Ending::Unknown { pause: Duration::from_secs(1) },
        booked: Booked::Nothing,
        review: None,
    };
    let batches = [vec![approval(&late), unknown.clone()], vec![unknown, approval(&late)]];
    let mut settled = Vec::new();
    for batch in batches {
        settled.push(endings.run(&batch).await.unwrap());
    }
    assert_eq!(settled, [[Settled::Fenced, Settled::Done], [Settled::Done, Settled::Fenced]]);
    let state: String = sqlx::query_scalar("SELECT state FROM idempotency_records").fetch_one(&pool).await.unwrap();
    assert_eq!((count(&pool, "orders").await, state.as_str()), (0, "unknown"));
}

/// Rows are locked in one order everywhere: a batch of take-overs and a batch of late settlements queue, and never wait for
/// each other in a ring.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_overs_and_settlements_lock_rows_in_one_order() {
    let (pool, claims, endings) = open().await;
    let mut requests: Vec<_> = ["a", "b"].map(|key| request(key, "1")).into();
    requests.sort_by_key(|request| request.digest);
    let late: Vec<Settlement> =
        claims.run(&requests).await.unwrap().into_iter().map(|outcome| approval(&executed(outcome))).collect();
    set_clock(&pool, "16 seconds").await;
    let first = requests[0].digest;
    let retries: Vec<_> =
        requests.into_iter().rev().map(|request| ClaimRequest { attempt: AttemptId::mint(), ..request }).collect();

    let mut holder = database::begin(&pool).await.unwrap();
    sqlx::query("SELECT FROM idempotency_records WHERE digest = $1 FOR UPDATE")
        .bind(first.0.as_slice())
        .execute(&mut *holder)
        .await
        .unwrap();
    let waiting = async |wanted: i64| {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event IN ('transactionid', 'tuple')";
        wait_for("a batch waits for the row", async || {
            sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.unwrap() == wanted
        })
        .await;
    };
    let settling = tokio::spawn(async move { endings.run(&late).await.map(drop) });
    waiting(1).await;
    let claiming = tokio::spawn(async move { claims.run(&retries).await.map(drop) });
    waiting(2).await;
    holder.rollback().await.unwrap();
    settling.await.unwrap().expect("settled");
    claiming.await.unwrap().expect("claimed");
}

#[tokio::test]
async fn what_the_moment_forbids_is_refused_only_when_it_would_be_new() {
    let (pool, claims, endings) = open().await;
    let forbidden = |key| ClaimRequest { new: None, ..request(key, "1") };
    assert_eq!(claim_one(&claims, &forbidden("a")).await, ClaimOutcome::NotAdmitted);
    assert_eq!(count(&pool, "idempotency_records").await, 0, "nothing is left behind");
    let claim = executed(claim_one(&claims, &request("a", "1")).await);
    assert!(matches!(claim_one(&claims, &forbidden("a")).await, ClaimOutcome::InFlight { .. }));
    set_clock(&pool, "16 seconds").await;
    let ClaimOutcome::Resume(owner) = claim_one(&claims, &forbidden("a")).await else { panic!("no take-over") };
    assert_eq!(owner.resource_id, claim.resource_id);
    settle_one(&endings, &approval(&owner)).await;
    assert!(matches!(claim_one(&claims, &forbidden("a")).await, ClaimOutcome::Replay(_)));
}

/// sqlx hands a connection whose BEGIN was cancelled back to the pool, inside a transaction that nobody knows of.
#[tokio::test]
async fn a_cancelled_begin_does_not_poison_its_connection() {
    let database = TestDatabase::create().await;
    let args = DatabaseArgs { database_url: database.url, connections: 1, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&args, "test").await.unwrap();
    let mut poisoned = 0;
    for round in 0..100 {
        // Given up after so many looks, somewhere between asking for the connection and hearing of the BEGIN.
        let mut beginning = Box::pin(database::begin(&pool));
        let begun = async {
            for _ in 0..round % 10 {
                if (&mut beginning).now_or_never().is_some() {
                    return true;
                }
                tokio::time::sleep(Duration::from_micros(1)).await;
            }
            false
        };
        poisoned += usize::from(!begun.await);
        drop(beginning);
        let mut connection = pool.acquire().await.unwrap();
        // A savepoint exists only inside a transaction.
        let inside = sqlx::raw_sql("SAVEPOINT left_open").execute(&mut *connection).await;
        assert!(inside.is_err(), "round {round}: the connection is inside somebody's transaction");
    }
    assert!(poisoned > 0, "no BEGIN was cancelled");
}

/// After a server was started again, every connection of a pool is dead, and nobody is to notice.
#[tokio::test]
async fn a_transaction_begins_although_every_connection_has_died() {
    let database = TestDatabase::create().await;
    let args = DatabaseArgs { database_url: database.url.clone(), connections: 4, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&args, "to be ended").await.unwrap();
    let open = || futures_util::future::try_join_all((0..4).map(|_| database::begin(&pool)));
    drop(open().await.unwrap());
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'to be ended'";
    let ended: i64 = sqlx::query_scalar(ended).fetch_one(&database.pool().await).await.unwrap();
    assert!(ended >= 4, "{ended} connections were ended");
    drop(open().await.expect("four transactions"));
}

#[tokio::test]
async fn a_released_claim_starts_again_as_if_first() {
    let (_, claims, endings) = open().await;
    let claim = executed(claim_one(&claims, &request("a", "1")).await);
    let released = Settlement { claim, ending: Ending::Released, booked: Booked::Nothing, review: None };
    assert_eq!(settle_one(&endings, &released).await, Settled::Done);
    let again = executed(claim_one(&claims, &request("a", "1")).await);
    assert_eq!((again.fence, again.maybe_sent), (2, false));
}

/// Whoever waits for the lock must see what its holder committed, even when a new day began meanwhile.
#[tokio::test]
async fn a_claim_that_waited_across_midnight_sees_yesterdays_record() {
    let (pool, claims, _) = open().await;
    let first = request("a", "1");
    let mut tx = database::begin(&pool).await.unwrap();
    store::lock(&mut tx, &[first.digest]).await.unwrap();
    assert!(store::newest(&mut tx, &[first.digest]).await.unwrap().records.is_empty());
    let Some(New::Ready { resource_id, frozen }) = &first.new else { panic!("an order is ready") };
    let record = NewRecord {
        scope: &first.scope,
        digest: first.digest,
        fingerprint: first.fingerprints.current,
        attempt: first.attempt,
        resource_id: *resource_id,
        frozen,
    };
    assert_eq!(claim_store::insert(&mut tx, &[record], Duration::from_secs(48 * 3600)).await.unwrap().len(), 1);

    set_clock(&pool, "1 day").await;
    let second = tokio::spawn(async move { claim_one(&claims, &request("a", "1")).await });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
    wait_for("the second claim waits for the lock", async || {
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.unwrap() == 1
    })
    .await;
    tx.commit().await.unwrap();
    assert!(matches!(second.await.unwrap(), ClaimOutcome::InFlight { .. }));
    assert_eq!(count(&pool, "idempotency_records").await, 1);
}

/// Eight claimers fight over the same keys while the database's clock passes midnight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_unique_across_midnight_under_concurrent_claims() {
    let _machine = crate::support::MACHINE.write().await;
    const KEYS: usize = 400;
    let (pool, claims, _) = open().await;
    let to_midnight: f64 = sqlx::query_scalar(
        "SELECT extract(epoch FROM (date_trunc('day', clock_timestamp(), 'UTC') + interval '1 day' - clock_timestamp()))::float8",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    set_clock(&pool, &format!("{} seconds", to_midnight - 2.0)).await;
    let day = "SELECT db_day()::text";
    let before: String = sqlx::query_scalar(day).fetch_one(&pool).await.unwrap();

    let began = Instant::now();
    let mut claimers = Vec::new();
    for claimer in 0..8_usize {
        let (claims, pool, before) = (Arc::clone(&claims), pool.clone(), before.clone());
        claimers.push(tokio::spawn(async move {
            let mut executed = Vec::new();
            // A hundred fresh keys a second for four seconds with midnight in the middle, each fought over as it comes up;
            // then every key once more, all of them on the new day.
            let mut all_on_the_new_day = false;
            while !all_on_the_new_day {
                let born = (began.elapsed().as_millis() as usize / 10 + 1).min(KEYS);
                let today: String = sqlx::query_scalar(day).fetch_one(&pool).await.unwrap();
                all_on_the_new_day = born == KEYS && today != before;
                let oldest = if all_on_the_new_day { 0 } else { born.saturating_sub(40) };
                let mut keys: Vec<usize> = (oldest..born).collect();
                let turn = claimer * 5 % keys.len();
                keys.rotate_left(turn);
                for some in keys.chunks(100) {
                    let batch: Vec<ClaimRequest> = some.iter().map(|key| request(&format!("key-{key}"), "1")).collect();
                    for (key, outcome) in some.iter().zip(claims.run(&batch).await.unwrap()) {
                        match outcome {
                            ClaimOutcome::Execute(claim) => executed.push((*key, claim.day)),
                            ClaimOutcome::InFlight { .. } => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
            executed
        }));
    }
    let mut owners: HashMap<usize, usize> = HashMap::new();
    let mut days: HashMap<time::Date, usize> = HashMap::new();
    for claimer in claimers {
        for (key, day) in claimer.await.unwrap() {
            *owners.entry(key).or_default() += 1;
            *days.entry(day).or_default() += 1;
        }
    }
    assert_eq!(owners.len(), KEYS);
    assert!(owners.values().all(|&count| count == 1), "{owners:?}");
    assert_eq!(days.len(), 2, "the fight was on both sides of midnight: {days:?}");
    let twice =
        "SELECT count(*) FROM (SELECT digest FROM idempotency_records GROUP BY digest HAVING count(*) > 1) AS twice";
    assert_eq!(sqlx::query_scalar::<_, i64>(twice).fetch_one(&pool).await.unwrap(), 0);
    assert_eq!(count(&pool, "idempotency_records").await, i64::try_from(KEYS).unwrap());
}

/// A new day is empty at midnight and full an hour later: no plan of the order path may depend on statistics.
#[tokio::test]
async fn the_order_path_probes_indexes_and_scans_nothing() {
    let (pool, claims, endings) = open().await;
    let scans = "SELECT COALESCE(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables
                 WHERE relname LIKE 'idempotency_records_%' OR relname = 'orders'";
    let walks = "SELECT COALESCE(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes
                 WHERE relname LIKE 'idempotency_records_%' AND indexrelname NOT LIKE '%_pkey'";
    let probes = "SELECT COALESCE(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes
                  WHERE relname LIKE 'idempotency_records_%' AND indexrelname LIKE '%_pkey'";
    let read = async |query: &'static str| {
        sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.unwrap();
        sqlx::query_scalar::<_, i64>(query).fetch_one(&pool).await.unwrap()
    };
    let (scans_before, walks_before) = (read(scans).await, read(walks).await);
    for round in 0..20 {
        let batch: Vec<ClaimRequest> = (0..20).map(|n| request(&format!("key-{round}-{n}"), "1")).collect();
        let claimed: Vec<Settlement> =
            claims.run(&batch).await.unwrap().into_iter().map(|outcome| approval(&executed(outcome))).collect();
        assert!(endings.run(&claimed).await.unwrap().iter().all(|settled| *settled == Settled::Done));
        claims.run(&batch).await.unwrap();
    }
    set_clock(&pool, "16 seconds").await;
    executed(claim_one(&claims, &request("left", "1")).await);
    set_clock(&pool, "32 seconds").await;
    assert!(matches!(claim_one(&claims, &request("left", "1")).await, ClaimOutcome::Resume(_)));
    // Every connection of the pool reports what it counted within a second.
    wait_for("the probes are counted", async || read(probes).await > 800).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!((read(scans).await - scans_before, read(walks).await - walks_before), (0, 0), "(scans, walks)");
}

/// The look at every connection is silent: a server's log full of warnings hides the one that matters.
#[tokio::test]
async fn a_connection_that_was_returned_properly_is_not_inside_a_transaction_and_nothing_is_rolled_back() {
    let database = TestDatabase::create().await;
    let args = DatabaseArgs { database_url: database.url, connections: 1, batch_limit: 1, batch_lanes: 1 };
    let pool = database::connect(&args, "test").await.unwrap();
    let rolled_back = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    let count = async || {
        sqlx::query("SELECT pg_stat_force_next_flush()").execute(&pool).await.unwrap();
        sqlx::query_scalar::<_, i64>(rolled_back).fetch_one(&pool).await.unwrap()
    };
    let before = count().await;
    for _ in 0..50 {
        let left_open =
            sqlx::raw_sql("SELECT statement_timestamp() > transaction_timestamp()").fetch_one(&pool).await.unwrap();
        assert!(!sqlx::Row::try_get::<bool, _>(&left_open, 0).unwrap());
        database::begin(&pool).await.unwrap().commit().await.unwrap();
    }
    assert_eq!(count().await - before, 0);
}
