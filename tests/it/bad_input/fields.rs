//! Documents whose fields are not what was asked for. Tables for one field, for any route that has such a one.

use serde_json::Value;

use super::row::{Route, Row};

const INVALID: &str = "validation_failed";

/// A field that must be there.
fn required(route: &Route, name: &str) -> Vec<Row> {
    let at = |row: Row| row.at(format!("/{name}"));
    vec![
        at(route.request().no_field(name).gets(format!("no {name}"), 422, INVALID)),
        at(route.request().field(&format!("/{name}"), "null").gets(format!("{name} is null"), 422, INVALID)),
    ]
}

/// One field set to each of these, and refused at its place.
fn refused(route: &Route, pointer: &str, values: &[&str]) -> Vec<Row> {
    let row = |value: &&str| {
        let name = format!("{pointer} is {value:.60}, {} bytes", value.len());
        route.request().field(pointer, value).gets(name, 422, INVALID).at(pointer)
    };
    values.iter().map(row).collect()
}

/// A field that is a whole number from 1 on.
fn whole_number(route: &Route, pointer: &str, good: i64, beyond: i64) -> Vec<Row> {
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

/// Documents that are no object.
pub(crate) fn shapes(route: &Route) -> Vec<Row> {
    let row = |text: &&str| route.request().body(text).gets(format!("the document {text}"), 422, INVALID).at("");
    ["[]", "[{}]", "\"text\"", "4299", "null", "true", "0.5"].iter().map(row).collect()
}

/// An object without what must be there.
fn empty(route: &Route) -> Row {
    route.request().body("{}").gets("the document {}", 422, INVALID)
}

/// The whole numbers that this route takes.
pub(crate) fn whole_numbers(route: &Route) -> Vec<Row> {
    match route.id() {
        "createOrder" => {
            let totals = whole_number(route, "/total", 4_299, 100_000_000);
            [totals, whole_number(route, "/items/0/quantity", 1, 100)].concat()
        }
        "createCharge" => whole_number(route, "/amount", 4_299, 100_000_000),
        "createRefund" => whole_number(route, "/amount", 1, 100_000_000),
        _ => Vec::new(),
    }
}

/// The fields of this route's own.
pub(crate) fn own(route: &Route) -> Vec<Row> {
    match route.id() {
        "createOrder" => of_orders(route),
        "createCharge" => of_charges(route),
        "createRefund" => of_refunds(route),
        "setEmail" => of_emails(route),
        unknown => panic!("{unknown} takes a body and has no table"),
    }
}

/// The fields of an order.
fn of_orders(route: &Route) -> Vec<Row> {
    let line = |sku: &str, quantity: i64| format!("{{\"sku\":\"{sku}\",\"quantity\":{quantity}}}");
    let lines = |count: usize| format!("[{}]", vec![line("cup", 1); count].join(","));
    let long = format!("\"{}\"", "x".repeat(129));
    let mut rows = vec![empty(route)];
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
    rows.extend(payment(route));
    rows.extend(priced(route, &line));
    rows
}

/// What a purchase is paid with, and what the customer calls it.
fn payment(route: &Route) -> Vec<Row> {
    let long = format!("\"{}\"", "x".repeat(129));
    let mut rows = refused(
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
    );
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
    rows
}

/// The fields of a charge.
fn of_charges(route: &Route) -> Vec<Row> {
    let mut rows = vec![empty(route)];
    for name in ["amount", "currency", "payment_method"] {
        rows.extend(required(route, name));
    }
    rows.extend(payment(route));
    // An order's, and the gateway's.
    for (name, value) in [
        ("items", "[{\"sku\":\"cup\",\"quantity\":1}]"),
        ("total", "4299"),
        ("order_id", "\"7\""),
        ("capture_method", "\"manual\""),
        ("confirm", "true"),
        ("amount_minor", "4299"),
        ("Amount", "1"),
    ] {
        rows.extend(refused(route, &format!("/{name}"), &[value]));
    }
    rows
}

/// The fields of a refund, and more than there is to give back.
fn of_refunds(route: &Route) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, value) in [
        ("currency", "\"eur\""),
        ("order_id", "\"0190b8a0-0000-7000-8000-000000000000\""),
        ("payment_intent", "\"pi_1\""),
        ("reason", "\"fraudulent\""),
        ("reverse_transfer", "true"),
        ("total", "1"),
        ("Amount", "1"),
        ("amount_minor", "1"),
    ] {
        rows.extend(refused(route, &format!("/{name}"), &[value]));
    }
    for amount in ["425601", "425602", "99999999"] {
        let row = route.request().field("/amount", amount);
        rows.push(row.gets(format!("{amount} back of 425601, less what went back"), 422, "refund_exceeds_balance"));
    }
    rows
}

/// What surely is no address, and what would be read as more than one.
fn of_emails(route: &Route) -> Vec<Row> {
    let label = "x".repeat(64);
    let addresses = [
        "",
        " ",
        "ada",
        "@",
        "@example.org",
        "ada@",
        "ada@example",
        "ada@localhost",
        "ada@@example.org",
        "ada@home@example.org",
        "ada example.org",
        " ada@example.org",
        "ada@example.org ",
        "a da@example.org",
        "ada@exam ple.org",
        "ada@.example.org",
        "ada@example..org",
        "ada@example.org.",
        "ada@exam_ple.org",
        "ada@-example.org",
        "ada@example-.org",
        "ada@example.-org",
        "ada@[127.0.0.1]",
        "ada@[IPv6:::1]",
        "ada@example.org:25",
        "ada@example.org/",
        "ada@b\u{fc}cher.example",
        "ad\u{e4}@example.org",
        "\u{430}da@example.org",
        "ada@example.org\u{200b}",
        "ada@example.org\n",
        "ada@example.org\r\nBcc: eve@example.org",
        "ada\n@example.org",
        "ada\t@example.org",
        "ada\u{7f}@example.org",
        "ada@example.org,eve@example.org",
        "ada@example.org;eve@example.org",
        "ada,eve@example.org",
        "ada;eve@example.org",
        "ada<eve@example.org",
        "<ada@example.org>",
        "Ada <ada@example.org>",
        "Ada<ada@example.org",
        "mailto:ada@example.org",
        "\"ada\"@example.org",
        "\"ada lovelace\"@example.org",
        "ada(work)@example.org",
        "ada\\@example.org",
        "ada[1]@example.org",
        "' OR '1'='1",
        "<script>alert(1)</script>@example.org",
        &format!("ada@{label}.org"),
        &format!("{label}{label}{label}{label}@example.org"),
        &format!("ada@{}org", "example.".repeat(40)),
    ]
    .map(|address| Value::from(address).to_string());
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut rows = vec![empty(route)];
    rows.extend(required(route, "email"));
    rows.extend(refused(route, "/email", &addresses));
    rows.extend(refused(
        route,
        "/email",
        &["7", "true", "[]", "[\"ada@example.org\"]", "{\"to\":\"ada@example.org\"}"],
    ));
    for (name, value) in [("updated_at", "\"2026-01-01T00:00:00Z\""), ("emails", "[]"), ("cc", "\"eve@example.org\"")] {
        rows.extend(refused(route, &format!("/{name}"), &[value]));
    }
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
