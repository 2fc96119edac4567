//! The receipt of an order, a charge or a refund, made from its event and from nothing else.
//!
//! Promise: the same event makes the same letter, byte for byte, in any process and on any day: the mail service compares them
//! under the event's id. So there is no time, no minted id and no price list in here; whoever changes the wording changes it
//! for events not sent yet, and a second send of an older one may be told that its key was used for another mail. Where it goes
//! depends on the day, and is written down before the first send (`store::address`).

use std::fmt::Write as _;

use super::Mail;
use crate::{
    ids::{CustomerId, EventId},
    wire::event::{ChargeSucceeded, OrderCreated, OrderRefunded, RefundFailed},
};

/// The event's payload is not one a receipt can be made from, today or later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no receipt can be made from this event: {0}")]
pub struct Unreadable(String);

/// A mail without its recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The event behind it.
    pub event: EventId,
    pub customer: CustomerId,
    subject: String,
    text: String,
    tags: Vec<(&'static str, String)>,
}

impl Letter {
    /// Where it goes: to the address that the customer has set, if there is one.
    pub fn recipient(&self, set: Option<&str>) -> String {
        set.map_or_else(|| format!("customer-{}@example.com", self.customer), str::to_owned)
    }

    pub fn to(self, recipient: String) -> Mail {
        let Self { event, customer: _, subject, text, tags } = self;
        Mail { key: event, to: recipient, subject, text, tags }
    }
}

/// The receipt for an `order.created`.
pub fn of_order_created(event: EventId, payload: &str) -> Result<Letter, Unreadable> {
    let order: OrderCreated = serde_json::from_str(payload).map_err(|error| Unreadable(error.to_string()))?;
    let mut text = format!("Thank you for your order {}.\n\n", order.order_id);
    for line in &order.lines {
        let sum = line.quantity.saturating_mul(line.unit_price);
        // Writing to a string cannot fail.
        let _written = writeln!(text, "{} x {}: {}", line.quantity, line.sku, amount(sum, &order.currency));
    }
    let _written = write!(text, "\nTotal: {}\n", amount(order.total, &order.currency));
    Ok(Letter {
        event,
        customer: order.customer_id,
        subject: format!("Your order {}", order.order_id),
        text,
        tags: vec![("event_id", event.to_string()), ("order_id", order.order_id.to_string())],
    })
}

/// The notice of an `order.refunded`.
pub fn of_order_refunded(event: EventId, payload: &str) -> Result<Letter, Unreadable> {
    let back: OrderRefunded = serde_json::from_str(payload).map_err(|error| Unreadable(error.to_string()))?;
    Ok(Letter {
        event,
        customer: back.customer_id,
        subject: format!("Your refund for order {}", back.order_id),
        text: format!("{} of your order {} go back to you.\n", amount(back.amount, &back.currency), back.order_id),
        tags: vec![("event_id", event.to_string()), ("order_id", back.order_id.to_string())],
    })
}

/// The notice of a `refund.failed`.
pub fn of_refund_failed(event: EventId, payload: &str) -> Result<Letter, Unreadable> {
    let kept: RefundFailed = serde_json::from_str(payload).map_err(|error| Unreadable(error.to_string()))?;
    Ok(Letter {
        event,
        customer: kept.customer_id,
        subject: format!("Your refund for order {} did not arrive", kept.order_id),
        text: format!(
            "{} of your order {} could not be given back: your bank has turned the refund down. We owe you this money and \
             will find another way to pay it.\n",
            amount(kept.amount, &kept.currency),
            kept.order_id
        ),
        tags: vec![("event_id", event.to_string()), ("order_id", kept.order_id.to_string())],
    })
}

/// The receipt for a `charge.succeeded`.
pub fn of_charge_succeeded(event: EventId, payload: &str) -> Result<Letter, Unreadable> {
    let taken: ChargeSucceeded = serde_json::from_str(payload).map_err(|error| Unreadable(error.to_string()))?;
    let reference = taken.client_reference.map_or_else(String::new, |reference| format!(" for {reference}"));
    Ok(Letter {
        event,
        customer: taken.customer_id,
        subject: format!("Your payment {}", taken.charge_id),
        text: format!("We have received {}{reference}.\n", amount(taken.amount, &taken.currency)),
        tags: vec![("event_id", event.to_string()), ("charge_id", taken.charge_id.to_string())],
    })
}

fn amount(minor: i64, currency: &str) -> String {
    format!("{}.{:02} {}", minor / 100, minor % 100, currency.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: &str = r#"{"order_id":"01890a5d-ac96-774b-bcce-b302099a8057","customer_id":42,
        "charge_id":"01890a5d-ac96-774b-bcce-b302099a8058","gateway_id":"pi_1",
        "lines":[{"sku":"grinder","quantity":1,"unit_price":4299},{"sku":"cup","quantity":3,"unit_price":890}],
        "total":6969,"currency":"eur"}"#;

    fn event() -> EventId {
        "01890a5d-ac96-774b-bcce-b302099a8059".parse().unwrap()
    }

    /// For a customer who has set no address.
    fn made_out(letter: Result<Letter, Unreadable>) -> Mail {
        let letter = letter.unwrap();
        let recipient = letter.recipient(None);
        letter.to(recipient)
    }

    #[test]
    fn a_mail_goes_where_its_customer_says_and_is_otherwise_the_same() {
        let letter = of_order_created(event(), PAYLOAD).unwrap();
        assert_eq!(letter.recipient(Some("ada@example.org")), "ada@example.org");
        let set = letter.clone().to("ada@example.org".to_owned());
        assert_eq!(Mail { to: "customer-42@example.com".to_owned(), ..set }, made_out(Ok(letter)));
    }

    #[test]
    fn a_receipt_names_the_order_its_lines_and_its_total() {
        let mail = made_out(of_order_created(event(), PAYLOAD));
        assert_eq!(mail.to, "customer-42@example.com");
        assert_eq!(mail.subject, "Your order 01890a5d-ac96-774b-bcce-b302099a8057");
        assert_eq!(
            mail.text,
            "Thank you for your order 01890a5d-ac96-774b-bcce-b302099a8057.\n\n\
             1 x grinder: 42.99 EUR\n3 x cup: 26.70 EUR\n\nTotal: 69.69 EUR\n"
        );
        assert_eq!(mail.tags[0], ("event_id", event().to_string()));
    }

    #[test]
    fn a_mail_says_by_its_tags_whether_it_is_about_an_order_or_a_charge() {
        let charge = "01890a5d-ac96-774b-bcce-b302099a8058";
        let taken =
            format!(r#"{{"charge_id":"{charge}","customer_id":42,"gateway_id":"pi_1","amount":500,"currency":"eur"}}"#);
        let mail = made_out(of_charge_succeeded(event(), &taken));
        assert_eq!(mail.tags, [("event_id", event().to_string()), ("charge_id", charge.to_owned())]);
        let mail = made_out(of_order_created(event(), PAYLOAD));
        assert_eq!(mail.tags[1], ("order_id", "01890a5d-ac96-774b-bcce-b302099a8057".to_owned()));
    }

    #[test]
    fn one_event_makes_one_mail_however_its_payload_is_written() {
        let other_order = r#"{"total":6969,"lines":[{"unit_price":4299,"quantity":1,"sku":"grinder"},
            {"unit_price":890,"sku":"cup","quantity":3}],"currency":"eur","customer_id":42,"gateway_id":"pi_1",
            "charge_id":"01890a5d-ac96-774b-bcce-b302099a8058","order_id":"01890a5d-ac96-774b-bcce-b302099a8057"}"#;
        let (one, other) =
            (made_out(of_order_created(event(), PAYLOAD)), made_out(of_order_created(event(), other_order)));
        assert_eq!(one.body(), other.body());
        // Written down: a send of yesterday's and one of today's meet at the mail service.
        assert_eq!(
            String::from_utf8(one.body()).unwrap(),
            concat!(
                r#"{"from":"Checkout <receipts@checkout.example>","to":"customer-42@example.com","#,
                r#""subject":"Your order 01890a5d-ac96-774b-bcce-b302099a8057","#,
                r#""text":"Thank you for your order 01890a5d-ac96-774b-bcce-b302099a8057.\n\n"#,
                r#"1 x grinder: 42.99 EUR\n3 x cup: 26.70 EUR\n\nTotal: 69.69 EUR\n","#,
                r#""tags":[{"name":"event_id","value":"01890a5d-ac96-774b-bcce-b302099a8059"},"#,
                r#"{"name":"order_id","value":"01890a5d-ac96-774b-bcce-b302099a8057"}]}"#
            )
        );
    }

    #[test]
    fn a_refund_and_a_payment_are_told_with_their_amount_and_name() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let back = format!(
            r#"{{"order_id":"{id}","customer_id":42,"refund_id":"{id}","gateway_id":"re_1","amount":1000,"currency":"eur"}}"#
        );
        let mail = made_out(of_order_refunded(event(), &back));
        assert_eq!((mail.key, mail.text), (event(), format!("10.00 EUR of your order {id} go back to you.\n")));
        let failed = made_out(of_refund_failed(event(), &back));
        assert_eq!(failed.subject, format!("Your refund for order {id} did not arrive"));
        assert!(failed.text.starts_with(&format!("10.00 EUR of your order {id} could not be given back: ")));
        let paid = |reference: &str| {
            format!(
                r#"{{"charge_id":"{id}","customer_id":42,"gateway_id":"pi_1","amount":5,"currency":"eur"{reference}}}"#
            )
        };
        let mail = made_out(of_charge_succeeded(event(), &paid("")));
        assert_eq!((mail.to.as_str(), mail.text.as_str()), ("customer-42@example.com", "We have received 0.05 EUR.\n"));
        let mail = made_out(of_charge_succeeded(event(), &paid(r#","client_reference":"invoice 7""#)));
        assert_eq!(mail.text, "We have received 0.05 EUR for invoice 7.\n");
        assert!(of_order_refunded(event(), PAYLOAD).is_err() && of_charge_succeeded(event(), &back).is_err());
    }

    #[test]
    fn an_event_that_tells_no_order_makes_no_receipt() {
        for wrong in ["", "{}", "[]", &PAYLOAD.replace("4299", "\"42.99\""), &PAYLOAD.replace("\"total\":6969,", "")] {
            assert!(of_order_created(event(), wrong).is_err(), "{wrong}");
        }
    }
}
