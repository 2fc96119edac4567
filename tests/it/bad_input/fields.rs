//! Documents whose fields are not what was asked for. Tables for one field, for any route that has such a one.

use super::row::{Route, Row};

const INVALID: &str = "validation_failed";

/// A field that must be there.
pub(crate) fn required(route: &Route, name: &str) -> Vec<Row> {
    let at = |row: Row| row.at(format!("/{name}"));
    vec![
        at(route.request().no_field(name).gets(format!("no {name}"), 422, INVALID)),
        at(route.request().field(&format!("/{name}"), "null").gets(format!("{name} is null"), 422, INVALID)),
    ]
}

/// One field set to each of these, and refused at its place.
pub(crate) fn refused(route: &Route, pointer: &str, values: &[&str]) -> Vec<Row> {
    let row = |value: &&str| {
        let name = format!("{pointer} is {value:.60}, {} bytes", value.len());
        route.request().field(pointer, value).gets(name, 422, INVALID).at(pointer)
    };
    values.iter().map(row).collect()
}

/// A field that is a whole number from 1 on.
pub(crate) fn whole_number(route: &Route, pointer: &str, good: i64, beyond: i64) -> Vec<Row> {
    let spelled = [
        format!("{good}.0"),
        format!("{good}.5"),
        format!("{good}e0"),
        format!("{good}E+0"),
        format!("\"{good}\""),
        format!("\" {good}\""),
        format!("[{good}]"),
        format!("{{\"amount\":{good}}}"),
        format!("-{good}00"),
        beyond.to_string(),
    ];
    let spelled: Vec<&str> = spelled.iter().map(String::as_str).collect();
    let numbers = [
        "0",
        "-0",
        "0.0",
        "-1",
        "1e3",
        "1e-3",
        "1e300",
        "42.99",
        "0.1",
        "2147483648",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "100000000000000000000000000000000000000",
        "true",
        "false",
        "\"\"",
        "\"NaN\"",
        "[]",
        "{}",
    ];
    [refused(route, pointer, &spelled), refused(route, pointer, &numbers)].concat()
}

/// What a client would like to decide and does not: fields that are ours, or a typing error.
pub(crate) fn unknown(route: &Route) -> Vec<Row> {
    let names = [
        "id",
        "status",
        "paid",
        "price",
        "customer",
        "customer_id",
        "tenant_id",
        "charge",
        "charge_id",
        "gateway_id",
        "created_at",
        "request_id",
        "idempotency_key",
        "amount_refunded",
        "discount",
        "is_admin",
        "role",
        "metadata",
        "__proto__",
        "constructor",
        "$where",
        "Total",
        "total ",
        "TOTAL",
        "",
        "tip/~",
        "'; DROP TABLE orders; --",
    ];
    let row = |name: &&str| {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let value = if name.is_empty() { "1" } else { "\"7\"" };
        route.request().field(&pointer, value).gets(format!("the field {name:?}"), 422, INVALID).at(pointer)
    };
    names.iter().map(row).collect()
}

/// Documents that are no object, and one that is empty.
pub(crate) fn shapes(route: &Route) -> Vec<Row> {
    let row = |text: &&str| route.request().body(text).gets(format!("the document {text}"), 422, INVALID).at("");
    let mut rows: Vec<Row> = ["[]", "[{}]", "\"text\"", "4299", "null", "true", "0.5"].iter().map(row).collect();
    rows.push(route.request().body("{}").gets("the document {}", 422, INVALID));
    rows
}

/// The fields of an order.
pub(crate) fn of_orders(route: &Route) -> Vec<Row> {
    let line = |sku: &str, quantity: i64| format!("{{\"sku\":\"{sku}\",\"quantity\":{quantity}}}");
    let lines = |count: usize| format!("[{}]", vec![line("cup", 1); count].join(","));
    let long = format!("\"{}\"", "x".repeat(129));
    let mut rows = Vec::new();
    for name in ["items", "total", "currency", "payment_method"] {
        rows.extend(required(route, name));
    }
    rows.extend(refused(route, "/items", &["[]", "{}", "\"grinder\"", "1", "true", &lines(51), &lines(2_000)]));
    rows.extend(refused(route, "/items/0", &["null", "\"grinder\"", "[]", "[[]]", "7"]));
    rows.extend(refused(
        route,
        "/items/0/sku",
        &[
            "null",
            "\"\"",
            "\"Grinder\"",
            "\"grinder \"",
            "\"yacht\"",
            "\"grinder\\u200b\"",
            "\"gr\\u0456nder\"",
            "7",
            "[]",
            "\"grinder' OR '1'='1\"",
            "\"<img src=x onerror=alert(1)>\"",
            "\"../grinder\"",
            &long,
        ],
    ));
    rows.extend(refused(
        route,
        "/currency",
        &[
            "\"EUR\"",
            "\"Eur\"",
            "\" eur\"",
            "\"eur \"",
            "\"\"",
            "\"€\"",
            "\"euro\"",
            "\"usd\"",
            "\"jpy\"",
            "\"kwd\"",
            "978",
            "[\"eur\"]",
            "{\"code\":\"eur\"}",
            "\"\\u0435ur\"",
        ],
    ));
    rows.extend(refused(
        route,
        "/payment_method",
        &[
            "\"\"",
            "\"pm card\"",
            "\"pm-card\"",
            "\"pm_card_visa' --\"",
            "\"pm_カード\"",
            "{\"number\":\"x\"}",
            "42",
            &long,
        ],
    ));
    rows.extend(refused(
        route,
        "/client_reference",
        &["\"\"", "7", "[]", "{}", "\"a\\nb\"", "\"\\u001b[31mred\"", "\"\\u007f\"", "\"\\u0085\"", &long],
    ));
    rows.extend(priced(route, &line));
    rows
}

/// Lines and totals that do not fit each other or the catalogue.
fn priced(route: &Route, line: &dyn Fn(&str, i64) -> String) -> Vec<Row> {
    let invalid = |name: &str, pointer: &str, json: &str, at: &str| {
        route.request().field(pointer, json).gets(name, 422, INVALID).at(at)
    };
    let two = |one: &str, other: &str| format!("[{one},{other}]");
    vec![
        invalid("a cent too little", "/total", "4298", "/total"),
        invalid("a cent too much", "/total", "4300", "/total"),
        invalid("one cent", "/total", "1", "/total"),
        invalid("two for the price of one", "/items/0/quantity", "2", "/total"),
        invalid("one thing twice", "/items", &two(&line("grinder", 1), &line("grinder", 1)), "/items/1/sku"),
        invalid(
            "one thing twice, apart",
            "/items",
            &format!("[{},{},{}]", line("cup", 1), line("beans", 1), line("cup", 2)),
            "/items/2/sku",
        ),
        invalid("the second is unknown", "/items", &two(&line("grinder", 1), &line("yacht", 1)), "/items/1/sku"),
        invalid("a price of one's own", "/items/0/unit_price", "1", "/items/0/unit_price"),
        invalid("a discount in a line", "/items/0/discount", "4298", "/items/0/discount"),
    ]
}
