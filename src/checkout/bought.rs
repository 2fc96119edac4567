//! What did a key bring about, ever? Its record expires and is dropped; what it bought, took or gave back stays in the books.

use std::collections::HashMap;

use anyhow::Context;
use sqlx::{PgConnection, PgPool};

use crate::{
    charges,
    idempotency::key::{Operation, Scope, ScopeDigest},
    ids::OrderId,
    orders, refunds,
    wire::{charge, order, refund},
};

/// Where it is found that these keys brought about. Asked inside the claim, before anything is sent.
pub async fn by_keys(
    tx: &mut PgConnection,
    asked: &[(ScopeDigest, Operation)],
) -> sqlx::Result<HashMap<ScopeDigest, String>> {
    let of = |wanted: Operation| -> Vec<[u8; 32]> {
        asked.iter().filter(|(_, operation)| *operation == wanted).map(|(digest, _)| digest.0).collect()
    };
    let mut bought = HashMap::new();
    for operation in Operation::ALL {
        let digests = of(operation);
        if digests.is_empty() {
            continue;
        }
        match operation {
            Operation::CreateOrder => {
                let found = orders::store::bought(&mut *tx, &digests).await?;
                bought
                    .extend(found.into_iter().map(|(digest, id)| (ScopeDigest(digest), order::location(OrderId(id)))));
            }
            Operation::CreateCharge => {
                let found = charges::store::taken(&mut *tx, &digests).await?;
                bought.extend(found.into_iter().map(|(digest, id)| (ScopeDigest(digest), charge::location(id))));
            }
            Operation::RefundOrder => {
                let found = refunds::store::given_back(&mut *tx, &digests).await?;
                let located = |(digest, (order, id))| (ScopeDigest(digest), refund::location(order, id));
                bought.extend(found.into_iter().map(located));
            }
        }
    }
    Ok(bought)
}

/// The same of one scope, whether or not its record still exists.
pub async fn by_key(pool: &PgPool, scope: &Scope) -> anyhow::Result<Option<String>> {
    let digest = scope.digest();
    let mut connection = pool.acquire().await.context("no database connection")?;
    let mut bought =
        by_keys(&mut connection, &[(digest, scope.operation)]).await.context("asking what a key bought")?;
    Ok(bought.remove(&digest))
}
