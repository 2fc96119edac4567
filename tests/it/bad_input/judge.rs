//! Sends every row of a table, and says of all that failed what was wrong. Question: what did the wrong request leave behind?

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    row::{After, Route, Row},
    socket::{Heard, Socket},
};
use crate::support::{Opening, Shop, fresh_key, grinder};

/// What is written anywhere, by place: how many rows, and what they say. A wrong request changes none of it.
type Traces = BTreeMap<String, String>;

/// A shop whose customers may look as often as they like.
pub(crate) async fn open() -> Shop {
    open_with(Vec::new()).await
}

pub(crate) async fn open_with(mut environment: Vec<(&'static str, &'static str)>) -> Shop {
    environment.push(("CHECKOUT_CUSTOMER_READS_PER_S", "0"));
    Shop::open_with(Opening { gateway_in_memory: true, environment, ..Opening::default() }).await
}

/// `POST /v1/orders` of a shop.
pub(crate) fn orders(shop: &Shop) -> Route {
    Route::of(shop, "createOrder", "/v1/orders".to_owned(), Some(grinder("pm_card_visa")))
}

fn charges(shop: &Shop) -> Route {
    let charge = json!({"amount": 4299, "currency": "eur", "payment_method": "pm_card_visa"});
    Route::of(shop, "createCharge", "/v1/charges".to_owned(), Some(charge))
}

/// Every route that knows who asks, with a good request to each: what it asks for is there.
pub(crate) async fn routes(shop: &Shop) -> Vec<Route> {
    let order = json!({"items": [{"sku": "grinder", "quantity": 99}], "total": 425_601, "currency": "eur",
                       "payment_method": "pm_card_visa"});
    let (key, event) = (fresh_key(), json!({"id": "", "type": "customer.updated", "data": {"object": {}}}));
    let order = format!("/v1/orders/{}", shop.order(&key, &order).await.expect_order());
    let refunds = format!("{order}/refunds");
    let refund = shop.post(&refunds, &fresh_key(), &json!({"amount": 1})).await.location.expect("a refund");
    let orders = orders(shop);
    let charges = charges(shop);
    let charge = shop.post(&charges.target, &fresh_key(), &charges.good_body()).await.location.expect("a charge");
    let email = "/v1/customers/me/email".to_owned();
    let set_email = Route::of(shop, "setEmail", email.clone(), Some(json!({"email": "ada@example.org"})));
    let set = heard(&set_email.host, &set_email.request().bytes()).await;
    assert_eq!(set.status, 200, "{}", set.text());
    let state = format!("/v1/idempotency-keys/orders.create/{key}");
    let get = |id, target: &str| Route::of(shop, id, target.to_owned(), None);
    vec![
        Route::of(shop, "createRefund", refunds.clone(), Some(json!({"amount": 1}))),
        Route::of(shop, "receiveGatewayEvent", "/v1/webhooks/gateway".to_owned(), Some(event)),
        set_email,
        get("listOrders", &orders.target),
        get("listCharges", &charges.target),
        get("listRefunds", &refunds),
        get("showOrder", &order),
        get("showRefund", &refund),
        get("showCharge", &charge),
        get("showEmail", &email),
        get("showIdempotencyKey", &state),
        get("listRequests", "/operator/requests"),
        orders,
        charges,
    ]
}

/// The kinds of routes that a table can be for.
pub(crate) mod kinds {
    use super::Route;

    pub(crate) fn every(_: &Route) -> bool {
        true
    }

    /// Made under a key.
    pub(crate) fn keyed(route: &Route) -> bool {
        route.declared.is_keyed()
    }

    /// Takes a body, from whomever.
    pub(crate) fn with_body(route: &Route) -> bool {
        route.declared.request.is_some()
    }

    /// Takes a body of a customer's.
    pub(crate) fn of_customers(route: &Route) -> bool {
        with_body(route) && !route.is_signed()
    }

    /// A bearer token says who asks.
    pub(crate) fn with_token(route: &Route) -> bool {
        !route.is_signed()
    }

    pub(crate) fn list(route: &Route) -> bool {
        ["listOrders", "listCharges", "listRefunds"].contains(&route.id())
    }
}

/// Judges the rows of a table at each route of a kind, in a shop of their own.
pub(crate) async fn judge(kind: fn(&Route) -> bool, rows: impl Fn(&Route) -> Vec<Row>) {
    let shop = open().await;
    let mut failures = Vec::new();
    let mut judged = 0;
    for route in routes(&shop).await.into_iter().filter(kind) {
        let rows = rows(&route);
        failures.extend(failures_at(&shop, &route, &rows).await);
        judged += rows.len();
    }
    assert!(judged > 0, "no route is of this kind");
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
    shop.close().await;
}

/// What is answered to these bytes.
pub(crate) async fn heard(host: &str, bytes: &[u8]) -> Heard {
    let mut socket = Socket::open(host).await;
    socket.send(bytes).await;
    socket.answer().await.expect("an answer")
}

/// Judges rows whose good request is `route`'s.
pub(crate) async fn judge_at(shop: &Shop, route: &Route, rows: &[Row]) {
    let failures = failures_at(shop, route, rows).await;
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

async fn failures_at(shop: &Shop, route: &Route, rows: &[Row]) -> Vec<String> {
    let mut failures = Vec::new();
    println!("{}: {} rows", route.id(), rows.len());
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        failures.push(format!("two rows are called {:?}", pair[0]));
    }
    for row in rows {
        let told = try_row(shop, route, row).await;
        failures.extend(told.into_iter().map(|what| format!("{}: {}: {what}", route.id(), row.name)));
    }
    failures
}

/// Sends a row, and says everything that is not as it should be.
async fn try_row(shop: &Shop, route: &Route, row: &Row) -> Vec<String> {
    let before = traces(shop).await;
    let mut socket = Socket::open(&route.host).await;
    socket.send(&row.bytes).await;
    if row.finish {
        socket.finish().await;
    }
    let heard = socket.answer().await;
    let mut wrong = wrong_with(row, heard.as_ref());
    match (row.after, heard.is_none()) {
        (After::Whatever, _) | (After::Closed, true) => {}
        (After::Open, true) => wrong.push("the connection is closed".to_owned()),
        (after, false) => {
            let closed = socket.ends().await;
            if closed != (after == After::Closed) {
                wrong.push(format!("the connection is {}", if closed { "closed" } else { "still open" }));
            }
        }
    }
    let after = traces(shop).await;
    for (place, now) in after.iter().filter(|(place, now)| before.get(*place) != Some(now)) {
        wrong.push(format!("{place}: {now} instead of {:?}", before.get(place)));
    }
    wrong.extend(is_no_longer_good(route, &row.key).await);
    wrong
}

fn wrong_with(row: &Row, heard: Option<&Heard>) -> Vec<String> {
    let Some(heard) = heard else {
        return if row.status == 0 { Vec::new() } else { vec![format!("no answer instead of {}", row.status)] };
    };
    let mut wrong = Vec::new();
    if (heard.status, heard.code().as_str()) != (row.status, row.code) {
        wrong.push(format!(
            "{} {:?} instead of {} {:?}: {:.300}",
            heard.status,
            heard.code(),
            row.status,
            row.code,
            heard.text()
        ));
    }
    if !row.code.is_empty() && heard.code() == row.code {
        wrong.extend(wrong_with_problem(heard));
    }
    if let Some((name, value)) = &row.header
        && heard.header(name) != Some(value.as_str())
    {
        wrong.push(format!("{name}: {:?} instead of {value:?}", heard.header(name)));
    }
    if let Some(pointer) = &row.pointer
        && heard.json()["errors"][0]["pointer"] != pointer.as_str()
    {
        wrong.push(format!("not at {pointer}: {}", heard.text()));
    }
    if let Some(secret) = row.secret
        && (heard.text().contains(secret) || heard.headers().any(|(_, value)| value.contains(secret)))
    {
        wrong.push(format!("it is echoed: {}", heard.text()));
    }
    wrong
}

/// RFC 9457, and what the contract adds.
fn wrong_with_problem(heard: &Heard) -> Option<String> {
    let problem = heard.json();
    let good = heard.header("content-type") == Some("application/problem+json")
        && problem["status"] == heard.status
        && problem["type"] == format!("/docs/problems#{}", heard.code())
        && ["title", "detail", "retry", "request_id"].iter().all(|name| problem[name].is_string())
        && heard.header("request-id") == problem["request_id"].as_str()
        && (heard.status != 401 || heard.header("www-authenticate") == Some("Bearer"))
        && heard.header("idempotent-replayed").is_none();
    (!good).then(|| format!("no proper problem: {heard:?}"))
}

/// Whether a good request is no longer what it was: under the same key, where there is one, it must do what a fresh one does.
async fn is_no_longer_good(route: &Route, key: &str) -> Option<String> {
    let mut socket = Socket::open(&route.host).await;
    socket.send(&route.request_under(key).bytes()).await;
    let Some(heard) = socket.answer().await else { return Some("a good request gets no answer".to_owned()) };
    let first = heard.status == route.good_status() && heard.header("idempotent-replayed").is_none();
    (!first).then(|| format!("a good request is not what it was: {} {:.300}", heard.status, heard.text()))
}

/// Every table of ours, and everything the gateway did. Not the count of live keys: it follows seconds behind.
pub(crate) async fn traces(shop: &Shop) -> Traces {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('SELECT %L, concat(count(*), '' rows, '', sum(hashtext(t::text))) FROM %I AS t', relname, relname)
         FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
           AND relname <> 'live_keys'",
    )
    .fetch_all(&shop.pool)
    .await
    .expect("the tables");
    let reading = sqlx::AssertSqlSafe(tables.join(" UNION ALL "));
    let read: Vec<(String, String)> = sqlx::query_as(reading).fetch_all(&shop.pool).await.expect("what they say");
    assert!(read.iter().any(|(table, _)| table == "idempotency_records"), "{read:?}");
    let stats = shop.stats().await;
    let of_the_gateway = ["executions", "replays", "conflicts", "mismatches"]
        .map(|name| (format!("{name} at the gateway"), stats[name].to_string()));
    let captures = ("captures".to_owned(), shop.captures().await.to_string());
    read.into_iter().chain(of_the_gateway).chain([captures]).collect()
}
