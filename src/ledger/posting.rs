//! From an event to its entries. Pure. What is debited is credited somewhere: a posting that does not balance cannot be made.

use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::wire::event::{
    CHARGE_SUCCEEDED, ChargeSucceeded, Event, ORDER_CREATED, ORDER_REFUNDED, OrderCreated, OrderRefunded,
    REFUND_FAILED, RefundFailed,
};

/// Where money is or comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// What the gateway has taken for us and owes us. Reconciles to the gateway's own books.
    Gateway,
    /// What we sold.
    Sales,
}

impl Account {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Sales => "sales",
        }
    }
}

/// A movement from one account to another: two entries, of one amount and opposite sign, by construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    pub debit: Account,
    pub credit: Account,
    /// In minor units, positive.
    pub amount_minor: i64,
    pub currency: String,
}

impl Posting {
    /// Debit positive, credit negative.
    pub fn entries(&self) -> [(Account, i64); 2] {
        [(self.debit, self.amount_minor), (self.credit, -self.amount_minor)]
    }

    /// What an event means in money, or why nobody can say.
    pub fn of(event: &Event) -> Result<Self, String> {
        match event.kind.as_str() {
            ORDER_CREATED => {
                let sold: OrderCreated = payload(event)?;
                moved(event, sold.order_id.0, Account::Gateway, Account::Sales, sold.total, sold.currency)
            }
            ORDER_REFUNDED => {
                let back: OrderRefunded = payload(event)?;
                moved(event, back.order_id.0, Account::Sales, Account::Gateway, back.amount, back.currency)
            }
            // Nothing is ever changed: what was posted is posted against.
            REFUND_FAILED => {
                let kept: RefundFailed = payload(event)?;
                moved(event, kept.order_id.0, Account::Gateway, Account::Sales, kept.amount, kept.currency)
            }
            CHARGE_SUCCEEDED => {
                let taken: ChargeSucceeded = payload(event)?;
                moved(event, taken.charge_id.0, Account::Gateway, Account::Sales, taken.amount, taken.currency)
            }
            // Money must not pass unseen: what we do not understand waits for a person, or for the next version.
            other => Err(format!("no posting is known for an event of type {other}")),
        }
    }
}

/// A movement of an amount that can be one, if the payload is about what its event is about.
fn moved(
    event: &Event,
    about: Uuid,
    debit: Account,
    credit: Account,
    amount_minor: i64,
    currency: String,
) -> Result<Posting, String> {
    if amount_minor <= 0 || about != event.aggregate.0 {
        return Err(format!("{} of {about} over {amount_minor} cannot be booked", event.kind));
    }
    Ok(Posting { debit, credit, amount_minor, currency })
}

fn payload<T: DeserializeOwned>(event: &Event) -> Result<T, String> {
    serde_json::from_str(&event.payload).map_err(|error| format!("the payload cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use time::{Date, OffsetDateTime};

    use super::*;
    use crate::ids::{EventId, OrderId};

    fn event(kind: &str, order: OrderId, payload: &str) -> Event {
        Event {
            id: EventId::mint(),
            day: Date::MIN,
            aggregate: order.into(),
            sequence: 1,
            kind: kind.to_owned(),
            payload: payload.to_owned(),
            occurred_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    fn sold(order: OrderId, total: i64) -> String {
        format!(
            r#"{{"order_id":"{order}","customer_id":42,"charge_id":"{order}","gateway_id":"pi_1","lines":[],"total":{total},"currency":"eur"}}"#
        )
    }

    #[test]
    fn an_order_moves_its_total_from_sales_to_the_gateway_and_sums_to_zero() {
        let order = OrderId::mint();
        let posting = Posting::of(&event(ORDER_CREATED, order, &sold(order, 4299))).unwrap();
        assert_eq!(posting.entries(), [(Account::Gateway, 4299), (Account::Sales, -4299)]);
        assert_eq!(posting.currency, "eur");
    }

    #[test]
    fn what_goes_back_moves_the_other_way() {
        let order = OrderId::mint();
        let back = format!(
            r#"{{"order_id":"{order}","customer_id":42,"refund_id":"{order}","gateway_id":"re_1","amount":1000,"currency":"eur"}}"#
        );
        let posting = Posting::of(&event(ORDER_REFUNDED, order, &back)).unwrap();
        assert_eq!(posting.entries(), [(Account::Sales, 1000), (Account::Gateway, -1000)]);
        assert!(Posting::of(&event(ORDER_REFUNDED, OrderId::mint(), &back)).is_err());
        // And if it failed, back again, to the cent.
        let failed = Posting::of(&event(REFUND_FAILED, order, &back)).unwrap();
        assert_eq!(failed.entries(), [(Account::Gateway, 1000), (Account::Sales, -1000)]);
        assert!(Posting::of(&event(REFUND_FAILED, OrderId::mint(), &back)).is_err());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_and_not_passed_over() {
        let order = OrderId::mint();
        for wrong in [
            event("order.dreamt", order, "{}"),
            event(ORDER_CREATED, order, "{}"),
            event(ORDER_CREATED, order, "no JSON"),
            event(ORDER_CREATED, order, &sold(order, 0)),
            event(ORDER_CREATED, order, &sold(order, -1)),
            event(ORDER_CREATED, order, &sold(OrderId::mint(), 4299)),
        ] {
            assert!(Posting::of(&wrong).is_err(), "{wrong:?}");
        }
    }
}
