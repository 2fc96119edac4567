//! What other companies do by themselves: an event that is told again, a charge that nobody asked for.

use checkout::crash_point::CrashPoint;

use super::stage::{PRICE, Stage};
use crate::support::wait_for;

impl Stage {
    /// The event that met the fault was kept, its 200 was never said, and so the gateway told it once more. Every event has one
    /// row all the same, and something was made of each.
    pub(super) async fn was_told_again(&self, events: i64) {
        wait_for("the gateway was told that we heard", async || {
            self.shop.webhooks().await["delivered"].as_u64() == Some(events as u64)
        })
        .await;
        let told = self.shop.webhooks().await;
        assert!(told["failed_attempts"].as_u64() > Some(0), "every event was told once only: {told}");
        assert_eq!(told["pending"].as_u64(), Some(0), "{told}");
        wait_for("all news are applied", async || {
            self.shop.count("gateway_events WHERE outcome IS NOT NULL").await == events
        })
        .await;
        assert_eq!(self.shop.count("gateway_events").await, events, "rows of events");
    }

    /// A second charge under a key that has bought already.
    pub(super) async fn take_more_than_was_bought(&mut self) {
        let gateway_key = self.shop.gateway_key_of(&self.before[0].0).await;
        self.stray = Some(self.shop.capture_under(Some(&gateway_key), PRICE, "stray").await);
    }

    /// The worker died with the refund decided and committed; whether it was sent is the gateway's to tell.
    pub(super) async fn is_decided(&self, point: CrashPoint) {
        let stray = self.stray.as_deref().expect("a stray charge");
        assert_eq!(self.shop.finding(stray).await, Some(("surplus".to_owned(), "refunding".to_owned())));
        let back = if point == CrashPoint::ReconcileRefunded { PRICE } else { 0 };
        assert_eq!(self.shop.refunded().await[stray], back, "what went back by then");
    }

    /// The stray charge, if there is one: all of it is back, by one refund, and our books name that one.
    pub(super) async fn until_the_stray_is_back(&self) {
        let Some(stray) = self.stray.as_deref() else { return };
        let done = Some(("surplus".to_owned(), "refunded".to_owned()));
        wait_for("the stray charge is given back", async || self.shop.finding(stray).await == done).await;
        assert_eq!(self.shop.refunded().await[stray], PRICE);
        let refunds = self.shop.refunds_of(stray).await;
        assert_eq!(refunds.iter().map(|(_, amount)| *amount).collect::<Vec<_>>(), [PRICE], "refunds");
        let named = "SELECT refund_id FROM reconciliation_findings WHERE payment_intent = $1";
        let named: Option<String> =
            sqlx::query_scalar(named).bind(stray).fetch_one(&self.shop.pool).await.expect("a finding");
        assert_eq!(named.as_deref(), Some(&*refunds[0].0));
    }
}
