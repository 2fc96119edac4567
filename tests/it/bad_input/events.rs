//! The gateway's events: what it did not sign, and what it signed and is no event.

use serde_json::Value;

use super::row::{Request, Route, Row, SIGNATURE, signature};
use crate::support::WEBHOOK_SECRET;

/// Signatures that are none, of this body, at this moment, with this secret.
pub(crate) fn signatures(route: &Route) -> Vec<Row> {
    let refused = |name: &str, request: Request| request.gets(name, 400, "webhook_signature_invalid");
    let unsigned = || route.request().unsigned();
    let body = route.good_body().to_string();
    let good = signature(WEBHOOK_SECRET, 0, body.as_bytes());
    let (at, sum) = good.split_once(",v1=").expect("a time and a signature");
    let with = |header: &[u8]| unsigned().body(&body).with(SIGNATURE, header);
    let mut rows = vec![
        refused("no signature", unsigned()),
        refused("a signature under another name", unsigned().body(&body).with("X-Stripe-Signature", &good)),
        refused("a signature in the query", unsigned().body(&body).target(format!("{}?{good}", route.target))),
        refused("a customer's token", unsigned().with("Authorization", format!("Bearer {}", route.token))),
        refused("a signature twice", with(good.as_bytes()).with(SIGNATURE, &good)),
        refused("a good signature and a bad one", with(good.as_bytes()).with(SIGNATURE, "t=1,v1=00")),
        refused("a bad signature and a good one", with(b"t=1,v1=00").with(SIGNATURE, &good)),
        refused("a good signature and an empty one", with(good.as_bytes()).with(SIGNATURE, "")),
        refused("a signature that is no text", with(&[good.as_bytes(), b"\xff"].concat())),
    ];
    for (name, header) in [
        ("an empty signature", String::new()),
        ("nonsense for a signature", "nonsense".to_owned()),
        ("commas", ",,,".to_owned()),
        ("a signature without its time", format!("v1={sum}")),
        ("a time without its signature", at.to_owned()),
        ("a time twice", format!("{at},{good}")),
        ("an empty time", format!("t=,v1={sum}")),
        ("a time in words", format!("t=now,v1={sum}")),
        ("a time with a fraction", format!("{at}.0,v1={sum}")),
        ("a negative time", format!("t=-1,v1={sum}")),
        ("a time beyond all numbers", format!("t=99999999999999999999,v1={sum}")),
        ("the greatest time", format!("t={},v1={sum}", i64::MAX)),
        ("the smallest time", format!("t={},v1={sum}", i64::MIN)),
        ("another time than was signed", format!("{at}0,v1={sum}")),
        ("the time with a sign", format!("t=+{},v1={sum}", &at[2..])),
        ("semicolons", good.replace(',', ";")),
        ("a signature of another scheme", good.replace("v1=", "v0=")),
        ("a scheme in capitals", good.replace("v1=", "V1=")),
        ("an empty sum", format!("{at},v1=")),
        ("half a sum", format!("{at},v1={}", &sum[..32])),
        ("a sum and more", format!("{good}00")),
        ("a sum of odd length", format!("{good}0")),
        ("a sum that is no hex", format!("{at},v1={}", "x".repeat(64))),
        ("a sum of zeros", format!("{at},v1={}", "0".repeat(64))),
        ("a sum between quotes", format!("{at},v1=\"{sum}\"")),
        ("nine signatures", format!("{good}{}", format!(",v1={sum}").repeat(8))),
        ("a thousand signatures", format!("{at}{}", ",v1=00".repeat(1_000))),
    ] {
        rows.push(refused(name, with(header.as_bytes())));
    }
    for (name, secret, from_now_s) in [
        ("of another secret", "whsec_another", 0),
        ("of no secret", "", 0),
        ("of half the secret", &WEBHOOK_SECRET[..8], 0),
        ("made ten minutes ago", WEBHOOK_SECRET, -600),
        ("made in ten minutes", WEBHOOK_SECRET, 600),
        ("made in 1970", WEBHOOK_SECRET, -1_700_000_000),
    ] {
        let header = signature(secret, from_now_s, body.as_bytes());
        rows.push(refused(&format!("a signature {name}"), with(header.as_bytes())));
    }
    let other_body = |name: &str, body: String| refused(name, unsigned().with(SIGNATURE, &good).body(body));
    rows.push(other_body("a byte of the body changed", body.replace("updated", "updatee")));
    rows.push(other_body("a byte added to the body", format!("{body} ")));
    rows.push(other_body("a byte taken from the body", body[..body.len() - 1].to_owned()));
    rows.push(other_body("the body written anew", body.replace(':', ": ")));
    rows.push(other_body("another event", route.good_body().to_string()));
    rows.push(other_body("no body", String::new()));
    rows
}

/// Bodies that were signed and are no event of this dialect.
pub(crate) fn bodies(route: &Route) -> Vec<Row> {
    let malformed = |name: String, request: Request| request.gets(name, 400, "malformed_json");
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes)).to_string();
    let names = [
        "null".to_owned(),
        "7".to_owned(),
        "true".to_owned(),
        "[]".to_owned(),
        "[\"evt_1\"]".to_owned(),
        "{}".to_owned(),
        text(b""),
        text(b" "),
        text(b"evt 1"),
        text(b"evt_1\n"),
        text(b"evt_1\0"),
        text(b"evt_\x7f"),
        text("evt_é".as_bytes()),
        text("evt_\u{200b}".as_bytes()),
        text(&[b'e'; 256]),
        text(&[b'e'; 10_000]),
        "\"\\ud800\"".to_owned(),
    ];
    let mut rows = Vec::new();
    for field in ["id", "type"] {
        rows.push(malformed(format!("no {field}"), route.request().no_field(field)));
        for name in &names {
            let request = route.request().field(&format!("/{field}"), name);
            rows.push(malformed(format!("{field} is {name:.40}, {} bytes", name.len()), request));
        }
    }
    rows.push(malformed("no data".to_owned(), route.request().no_field("data")));
    for pointer in ["/data", "/data/object"] {
        for value in ["null", "7", "\"text\"", "[]", "[{}]", "true"] {
            rows.push(malformed(format!("{pointer} is {value}"), route.request().field(pointer, value)));
        }
    }
    // What PostgreSQL and others could not read either.
    for value in ["\"\\ud800\"", "1e999"] {
        let request = route.request().field("/data/object", &format!("{{\"note\":{value}}}"));
        rows.push(malformed(format!("{value} in the object"), request));
    }
    rows.push(malformed("the event as a list".to_owned(), route.request().body("[\"evt_1\",\"t\",{\"object\":{}}]")));
    rows.push(malformed("data is empty".to_owned(), route.request().field("/data", "{}")));
    let good = route.good_body().to_string();
    for (field, value) in [("id", "\"evt_2\""), ("type", "\"t\""), ("data", "{\"object\":{}}")] {
        let body = format!("{{\"{field}\":{value},{}", &good[1..]);
        rows.push(malformed(format!("{field} twice"), route.request().body(body)));
    }
    rows.push(malformed("object twice".to_owned(), route.request().field("/data", "{\"object\":{},\"object\":{}}")));
    for (name, bytes) in
        [("latin-1", &b"\xe9"[..]), ("an overlong slash", b"\xc0\xaf"), ("half a character", b"\xf0\x9f")]
    {
        let body = [b"{\"note\":\"", bytes, b"\",", &good.as_bytes()[1..]].concat();
        rows.push(malformed(format!("{name} in a field that nobody reads"), route.request().body(body)));
    }
    for shape in ["[]", "[{}]", "\"text\"", "4299", "null", "true", "0.5", "{}"] {
        rows.push(malformed(format!("the document {shape}"), route.request().body(shape)));
    }
    rows
}
