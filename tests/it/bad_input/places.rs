//! Methods and paths that lead nowhere, and objects that are not there.

use super::row::{Framing, Route, Row};

const CARD: &str = "4242424242424242";

pub(crate) fn methods(route: &Route) -> Vec<Row> {
    let refused = |method: &str, target: &str, allowed: &'static str| {
        let request = route.request().method(method).target(target);
        request.gets(format!("{method} {target}"), 405, "method_not_allowed").header("allow", allowed)
    };
    let order = "/v1/orders/0190b8a0-0000-7000-8000-000000000000";
    let mut rows = Vec::new();
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO", "post", "POSTS"] {
        rows.push(refused(method, &route.target, "GET,HEAD,POST"));
    }
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"] {
        rows.push(refused(method, order, "GET,HEAD"));
        rows.push(refused(method, "/v1/idempotency-keys/orders.create/k", "GET,HEAD"));
    }
    rows.push(refused("GET", "/v1/webhooks/gateway", "POST"));
    let smuggled = ["X-HTTP-Method-Override", "X-Method-Override"];
    rows.extend(smuggled.map(|name| {
        let request = route.request().method("PUT").with(name, "POST");
        request.gets(format!("a method in {name}"), 405, "method_not_allowed")
    }));
    rows
}

/// Card numbers in a path.
pub(crate) fn cards(route: &Route) -> Vec<Row> {
    let get = |target: String| route.request().method("GET").target(target);
    let state = get(format!("/v1/idempotency-keys/orders.create/{CARD}"));
    vec![
        state.gets("the state of a card number", 400, "idempotency_key_invalid").secret(CARD),
        get(format!("/v1/orders/{CARD}")).gets("the order of a card number", 404, "not_found").secret(CARD),
        get(format!("/v1/{CARD}/{CARD}")).gets("a path of card numbers", 404, "not_found").secret(CARD),
    ]
}

pub(crate) fn paths(route: &Route) -> Vec<Row> {
    let nowhere = |method: &str, target: &str| {
        route.request().method(method).target(target).gets(format!("{method} {target:.60}"), 404, "not_found")
    };
    let spelled = [
        "/",
        "/v1",
        "/v1/",
        "/v2/orders",
        "/v1/order",
        "/v1/orders/",
        "/v1/orders.",
        "/v1/orders.json",
        "/v1/orders;x=1",
        "//v1/orders",
        "/v1//orders",
        "/V1/orders",
        "/v1/Orders",
        "/v1%2forders",
        "/v1/%6frders",
        "/%76%31/orders",
        "/v1/./orders",
        "/v1/x/../orders",
        "/v1/orders%00",
        "/v1/orders%20",
        "/v1/orders%0d%0aX:1",
        "/v1/orders\\",
        "/index.php?s=/v1/orders",
        "/.env",
        "/../../etc/passwd",
    ];
    let mut rows: Vec<Row> = spelled.iter().map(|target| nowhere("POST", target)).collect();
    for id in [
        "1",
        "0",
        "-1",
        "me",
        "null",
        "%FF",
        "%2e%2e",
        "%00",
        "0190b8a0-0000-7000-8000-00000000000",
        "0190b8a0-0000-7000-8000-0000000000000",
        "0190b8a0-0000-7000-8000-000000000000'--",
        "0190b8a0-0000-7000-8000-000000000000%20",
        "0190b8a0-0000-7000-8000-000000000000/",
        "00000000-0000-0000-0000-000000000000",
        "%27%20OR%20%271%27=%271",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "{id}",
        "*",
    ] {
        rows.push(nowhere("GET", &format!("/v1/orders/{id}")));
    }
    rows.push(nowhere("GET", &format!("/v1/orders/{}", "9".repeat(8_000))));
    for key in [
        "orders.create/unused",
        "orders.delete/k",
        "orders/k",
        "ORDERS.CREATE/k",
        "%27/k",
        "orders.create/a/b",
        "orders.create/%FF",
    ] {
        rows.push(nowhere("GET", &format!("/v1/idempotency-keys/{key}")));
    }
    for key in ["two%20words", "a,b", "%22open", "%22%22", "%00", "sch%C3%BCssel"] {
        let request = route.request().method("GET").target(format!("/v1/idempotency-keys/orders.create/{key}"));
        rows.push(request.gets(format!("the state of {key}"), 400, "idempotency_key_invalid"));
    }
    rows.push(nowhere("GET", "/operator/requests"));
    rows.push(route.request().target("/v1/webhooks/gateway").gets(
        "a webhook nobody signed",
        400,
        "webhook_signature_invalid",
    ));
    let with_body = route.request().method("GET").target("/v1/orders/1").framing(Framing::Chunked);
    rows.push(with_body.gets("a GET with a body in chunks", 404, "not_found"));
    rows
}
