//! Methods and paths that lead nowhere, and objects that are not there.

use checkout::http::contract::{In, ROUTES};
use uuid::Uuid;

use super::row::{Framing, Route, Row};

const CARD: &str = "4242424242424242";

/// Methods that the route's path does not know.
pub(crate) fn methods(route: &Route) -> Vec<Row> {
    let mut allowed: Vec<&str> =
        ROUTES.iter().filter(|other| other.path == route.declared.path).map(|other| other.method.name()).collect();
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    allowed.sort_unstable();
    let refused = |method: &str| {
        let request = route.request().method(method);
        request.gets(format!("{method} there"), 405, "method_not_allowed").header("allow", allowed.join(","))
    };
    let known =
        ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO", "get", "post", "POSTS"];
    let mut rows: Vec<Row> = known.into_iter().filter(|method| !allowed.contains(method)).map(refused).collect();
    let smuggled = ["X-HTTP-Method-Override", "X-Method-Override"];
    rows.extend(smuggled.map(|name| {
        let request = route.request().method("PATCH").with(name, route.method());
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
        get(format!("/v1/charges/{CARD}")).gets("the charge of a card number", 404, "not_found").secret(CARD),
        get(format!("/v1/{CARD}/{CARD}")).gets("a path of card numbers", 404, "not_found").secret(CARD),
    ]
}

/// The route's own path, spelled as only some readers would read it.
pub(crate) fn spellings(route: &Route) -> Vec<Row> {
    let target = route.target.as_str();
    let (first, rest) = target[1..].split_once('/').expect("two words");
    let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    let mut spelled = vec![
        format!("{target}/"),
        format!("/{target}"),
        format!("/{first}//{rest}"),
        format!("/{}/{rest}", capital(first)),
        format!("/{first}/{}", capital(rest)),
        format!("/{first}%2f{rest}"),
        format!("/{first}/{}{}", escaped(&rest[..1]), &rest[1..]),
        format!("/{}/{rest}", escaped(first)),
        format!("/{first}/./{rest}"),
        format!("/{first}/x/../{rest}"),
        format!("/index.php?s={target}"),
    ];
    // Behind a key they may belong to the key.
    if !route.declared.parameters.iter().any(|parameter| parameter.place == In::Path && parameter.name == "key") {
        let tails = [".", ".json", ";x=1", "%00", "%20", "%0d%0aX:1", "\\", "%3f", "%23"];
        spelled.extend(tails.map(|tail| format!("{target}{tail}")));
    }
    let row = |target: &String| route.request().target(target).gets(target.clone(), 404, "not_found");
    spelled.iter().map(row).collect()
}

/// Paths that lead nowhere.
pub(crate) fn paths(route: &Route) -> Vec<Row> {
    let nowhere = |target: &str| route.request().target(target).gets(format!("{target:.60}"), 404, "not_found");
    let mut rows: Vec<Row> = [
        "/",
        "/v1",
        "/v1/",
        "/v2/orders",
        "/v1/order",
        "/v1/refunds",
        "/v1/customers",
        "/v1/customers/me",
        "/v1/customers/42/email",
        "/v1/webhooks",
        "/v1/webhooks/stripe",
        "/v1/idempotency-keys",
        "/v1/idempotency-keys/orders.create",
        "/operator",
        "/.env",
        "/../../etc/passwd",
    ]
    .iter()
    .map(|target| nowhere(target))
    .collect();
    rows.push(nowhere(&format!("/{}", "9".repeat(8_000))));
    rows
}

/// Ids that nothing has, in the place of each id of the path.
pub(crate) fn ids(route: &Route) -> Vec<Row> {
    let words: Vec<&str> = route.target.split('/').collect();
    let is_id = |word: &str| word.len() == 36 && word.parse::<Uuid>().is_ok();
    let mut rows = Vec::new();
    // The word behind `idempotency-keys/…` is a key.
    let places = (0..words.len()).filter(|place| is_id(words[*place]) && words[*place - 2] != "idempotency-keys");
    for place in places {
        for odd in odd_ids(words[place]) {
            let mut target = words.clone();
            target[place] = &odd;
            let request = route.request().target(target.join("/"));
            rows.push(request.gets(format!("word {place} is {odd:.60}"), 404, "not_found"));
        }
    }
    rows
}

fn odd_ids(good: &str) -> Vec<String> {
    let bare = good.replace('-', "");
    let mut odd: Vec<String> = [
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
        "0190b8a0-0000-7000-8000-000000000000",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "0190b8a0_0000_7000_8000_000000000000",
        "0190b8ag-0000-7000-8000-000000000000",
        "%27%20OR%20%271%27=%271",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "{id}",
        "*",
    ]
    .map(str::to_owned)
    .to_vec();
    odd.push("9".repeat(8_000));
    // What it is called by its other names.
    odd.extend([
        format!("{good}%00"),
        format!("%20{good}"),
        format!("{good}%0a"),
        format!("{good},{good}"),
        format!("{good}%2f"),
        format!("%7B{good}%7D"),
        format!("urn:uuid:{good}"),
        format!("ord_{good}"),
        format!("{}-{}", &bare[..16], &bare[16..]),
        bare,
    ]);
    odd
}

/// Keys that nobody used, and what is no key.
pub(crate) fn keys(route: &Route) -> Vec<Row> {
    let (operation, good) = route.target["/v1/idempotency-keys/".len()..].split_once('/').expect("a key");
    let at = |place: &str| route.request().target(format!("/v1/idempotency-keys/{place}"));
    let mut rows = Vec::new();
    for place in [
        "orders.create/unused",
        "orders.delete/k",
        "orders/k",
        "charges/k",
        "ORDERS.CREATE/k",
        "%27/k",
        "%FF/k",
        "orders.create/a/b",
        "orders.create/%FF",
        "orders.create%2f/k",
        "/k",
        &format!("charges.create/{good}"),
        &format!("orders.refund/{good}"),
        &format!("{operation}%20/{good}"),
        &format!("{operation}/{good}."),
        &format!("{operation}/{good}/"),
        &format!("{operation}/{}", good.to_uppercase()),
        &format!("{operation}/x{}", &good[1..]),
    ] {
        rows.push(at(place).gets(format!("the state of {place}"), 404, "not_found"));
    }
    let long = "k".repeat(256);
    for operation in ["orders.create", "charges.create", "orders.refund"] {
        for key in [
            "two%20words",
            "a,b",
            "%22open",
            "%22%22",
            "%20",
            "%00",
            "%0d%0aX:1",
            "%7f",
            "sch%C3%BCssel",
            "%F0%9F%92%B3",
            "%22a%22;x=1",
            "a%22b",
            &long,
            &format!("%20{good}"),
            &format!("{good}%20"),
            &format!("{good}%00"),
            &format!("{good}%0a"),
            &format!("{good},{good}"),
        ] {
            let request = at(&format!("{operation}/{key}"));
            rows.push(request.gets(format!("the state of {operation}/{key:.60}"), 400, "idempotency_key_invalid"));
        }
    }
    rows
}

/// What is at its place and is not meant so.
pub(crate) fn strays(route: &Route) -> Vec<Row> {
    let with_body = route.request().method("GET").target("/v1/orders/1").framing(Framing::Chunked);
    vec![
        route.request().method("GET").target("/operator/requests").gets("the house's", 404, "not_found"),
        route.request().target("/v1/webhooks/gateway").gets(
            "a webhook nobody signed",
            400,
            "webhook_signature_invalid",
        ),
        with_body.gets("a GET with a body in chunks", 404, "not_found"),
    ]
}
