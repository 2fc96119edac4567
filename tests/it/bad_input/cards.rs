//! Card numbers, wherever they may stand in a request.

use super::row::{Route, Row};

const CARD: &str = "4242424242424242";

/// Card numbers, wherever they stand.
pub(crate) fn rows(route: &Route) -> Vec<Row> {
    let refused = |name: &str, pointer: &str, json: &str| {
        route.request().field(pointer, json).gets(name, 422, "card_data_not_accepted").secret(CARD)
    };
    let nested = format!("{{\"card\":{{\"number\":\"{CARD}\",\"cvc\":\"123\"}}}}");
    let mut rows = vec![
        refused("a card as the payment method", "/payment_method", &format!("\"{CARD}\"")),
        refused("a card in the payment method", "/payment_method", &format!("\"pm_{CARD}\"")),
        refused("a card in the reference", "/client_reference", &format!("\"my card is {CARD}\"")),
        refused("a card in an unknown field", "/card", &nested),
        refused("a card in a list", "/cards", &format!("[[\"{CARD}\"]]")),
        refused("a card as a name", &format!("/{CARD}"), "1"),
        refused("a card and much else that is wrong", "/total", &format!("\"{CARD}\"")),
        refused("a card, escaped", "/client_reference", "\"\\u0034242424242424242\""),
        route
            .request()
            .body(format!("[\"{CARD}\"]"))
            .gets("a card in no object", 422, "card_data_not_accepted")
            .secret(CARD),
        route
            .request()
            .body(format!("\"{CARD}\""))
            .gets("nothing but a card", 422, "card_data_not_accepted")
            .secret(CARD),
    ];
    for (name, number) in [
        ("with spaces", "4242 4242 4242 4242"),
        ("with dashes", "4242-4242-4242-4242"),
        ("with hard spaces", "4242\u{a0}4242\u{a0}4242\u{a0}4242"),
        ("of American Express", "3782 822463 10005"),
        ("of Mastercard", "5555555555554444"),
        ("of 13 digits", "4222222222222"),
        ("of 19 digits", "6304000000000000000"),
        ("and its expiry and code", "4242 4242 4242 4242 1228 123"),
    ] {
        let row = refused(&format!("a card {name}"), "/client_reference", &format!("\"{number}\""));
        rows.push(row.secret(number));
    }
    // Where it is none of the document's strings, it is refused for another reason, and is no more kept or told.
    rows.push(route.request().field("/total", CARD).gets("a card as a number", 422, "validation_failed").secret(CARD));
    rows.push(
        route
            .request()
            .body(format!("{{\"{CARD}\":1,\"{CARD}\":2}}"))
            .gets("a card as a name, twice", 400, "malformed_json")
            .secret(CARD),
    );
    rows.push(
        route
            .request()
            .body(format!("{{\"a\":\"{CARD}\""))
            .gets("a card in a broken document", 400, "malformed_json")
            .secret(CARD),
    );
    rows.push(
        route
            .request()
            .body(CARD)
            .set("Content-Type", "text/plain")
            .gets("a card in plain text", 415, "unsupported_media_type")
            .secret(CARD),
    );
    rows.push(
        route
            .request()
            .set("Authorization", format!("Bearer {CARD}"))
            .gets("a card as a token", 401, "unauthenticated")
            .secret(CARD),
    );
    rows.push(
        route
            .request()
            .target(format!("/v1/orders/{CARD}"))
            .gets("a card in a path", 405, "method_not_allowed")
            .secret(CARD),
    );
    match route.id() {
        "createOrder" => rows.push(refused("a card as an sku", "/items/0/sku", &format!("\"{CARD}\""))),
        "setEmail" => rows.push(refused("a card as an address", "/email", &format!("\"{CARD}@example.org\""))),
        _ => {}
    }
    rows
}
