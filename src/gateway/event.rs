//! The gateway's news: which of its payments, and which of our keys, does an event tell of?
//!
//! Nothing else is read out of it, because nothing is decided by it. It may be forged by nobody (it is signed), but it may be
//! late.

use serde::Deserialize;

use super::{classify::is_id, client::KEY_METADATA};
use crate::wire::json::{self, Object};

/// An event, as far as it leads somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayEvent {
    pub id: String,
    /// In the gateway's words.
    pub kind: String,
    /// The payment intent that it is or that it belongs to.
    pub payment_intent: Option<String>,
    /// The key that its maker wrote into it, ours or anybody's.
    pub checkout_key: Option<String>,
}

#[derive(Deserialize)]
struct Envelope {
    id: String,
    r#type: String,
    data: Object<Data>,
}

#[derive(Deserialize)]
struct Data {
    object: serde_json::Map<String, serde_json::Value>,
}

impl GatewayEvent {
    /// `None` is no event of this dialect.
    pub fn read(body: &[u8]) -> Option<Self> {
        let Envelope { id, r#type: kind, data: Object(Data { object }) } = json::object(body).ok()?;
        if !is_id(&id) || !is_id(&kind) {
            return None;
        }
        let text = |name: &str| object.get(name).and_then(|value| value.as_str());
        let intent = if text("object") == Some("payment_intent") { text("id") } else { text("payment_intent") };
        let noted = object.get("metadata").and_then(|metadata| metadata.get(KEY_METADATA));
        Some(Self {
            payment_intent: intent.filter(|id| is_id(id)).map(str::to_owned),
            checkout_key: noted.and_then(|key| key.as_str()).map(str::to_owned),
            id,
            kind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<GatewayEvent> {
        GatewayEvent::read(body.as_bytes())
    }

    #[test]
    fn an_event_names_its_intent_whether_it_is_one_or_belongs_to_one() {
        let event = |payment_intent: Option<&str>, checkout_key: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            GatewayEvent {
                id: "evt_1".to_owned(),
                kind: "k".to_owned(),
                payment_intent: text(payment_intent),
                checkout_key: text(checkout_key),
            }
        };
        for (object, expected) in [
            (
                r#"{"object":"payment_intent","id":"pi_1","metadata":{"checkout_key":"chk_1"}}"#,
                event(Some("pi_1"), Some("chk_1")),
            ),
            (r#"{"object":"charge","id":"ch_1","payment_intent":"pi_1","metadata":{}}"#, event(Some("pi_1"), None)),
            (r#"{"object":"customer","id":"cus_1"}"#, event(None, None)),
            (r#"{"object":"charge","payment_intent":7,"metadata":{"checkout_key":7}}"#, event(None, None)),
            (r#"{"object":"payment_intent","id":"pi 1\u0000"}"#, event(None, None)),
        ] {
            let body = format!(r#"{{"id":"evt_1","type":"k","data":{{"object":{object}}},"more":1}}"#);
            assert_eq!(read(&body), Some(expected), "{object}");
        }
    }

    #[test]
    fn anything_else_is_no_event() {
        for body in [
            "",
            "[]",
            r#"{"id":"evt_1"}"#,
            r#"["evt_1","k",{"object":{}}]"#,
            r#"{"id":"evt_1","type":"k","data":[{}]}"#,
            r#"{"id":"","type":"k","data":{"object":{}}}"#,
            r#"{"id":"e","type":"k","data":{}}"#,
        ] {
            assert_eq!(read(body), None, "{body}");
        }
    }
}
