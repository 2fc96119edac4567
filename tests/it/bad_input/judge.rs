//! Sends every row of a table, and says of all that failed what was wrong. Question: what did the wrong request leave behind?

use std::collections::BTreeMap;

use super::{
    row::{After, Route, Row},
    socket::{Heard, Socket},
};
use crate::support::{CUSTOMER, Shop, grinder};

/// What is written anywhere, by place. A wrong request changes none of it.
type Traces = BTreeMap<String, i64>;

/// `POST /v1/orders` of a shop.
pub(crate) fn orders(shop: &Shop) -> Route {
    Route {
        method: "POST",
        target: "/v1/orders".to_owned(),
        good_body: grinder("pm_card_visa"),
        good_status: 201,
        host: shop.api_url.trim_start_matches("http://").to_owned(),
        token: shop.token(CUSTOMER),
    }
}

/// Judges the rows of a table made for orders, in a shop of their own.
pub(crate) async fn judge(rows: impl FnOnce(&Route) -> Vec<Row>) {
    let shop = Shop::open().await;
    let route = orders(&shop);
    let rows = rows(&route);
    judge_at(&shop, &route, &rows).await;
    shop.close().await;
}

/// Judges rows whose good request is `route`'s.
pub(crate) async fn judge_at(shop: &Shop, route: &Route, rows: &[Row]) {
    let mut failures = Vec::new();
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        failures.push(format!("two rows are called {:?}", pair[0]));
    }
    for row in rows {
        let told = try_row(shop, route, row).await;
        failures.extend(told.into_iter().map(|what| format!("{}: {what}", row.name)));
    }
    println!("{} rows, {} failures", rows.len(), failures.len());
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
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
    for (place, count) in after.iter().filter(|(place, count)| before.get(*place) != Some(count)) {
        wrong.push(format!("{place}: {count} instead of {}", before.get(place).copied().unwrap_or_default()));
    }
    wrong.extend(key_is_not_free(route, &row.key).await);
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
    if let Some((name, value)) = row.header
        && heard.header(name) != Some(value)
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

/// Whether the same key still does what a fresh one does.
async fn key_is_not_free(route: &Route, key: &str) -> Option<String> {
    let mut socket = Socket::open(&route.host).await;
    socket.send(&route.request_under(key).bytes()).await;
    let Some(heard) = socket.answer().await else { return Some("a good request gets no answer".to_owned()) };
    let first = heard.status == route.good_status && heard.header("idempotent-replayed").is_none();
    (!first).then(|| format!("the key is burned: {} {:.300}", heard.status, heard.text()))
}

/// Rows of every table of ours, and everything the gateway did. Not the count of live keys: it follows seconds behind.
pub(crate) async fn traces(shop: &Shop) -> Traces {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('SELECT %L, count(*) FROM %I', relname, relname) FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
           AND relname <> 'live_keys'",
    )
    .fetch_all(&shop.pool)
    .await
    .expect("the tables");
    let counting = sqlx::AssertSqlSafe(tables.join(" UNION ALL "));
    let counted: Vec<(String, i64)> = sqlx::query_as(counting).fetch_all(&shop.pool).await.expect("the counts");
    assert!(counted.iter().any(|(table, _)| table == "idempotency_records"), "{counted:?}");
    let stats = shop.stats().await;
    let of_the_gateway = ["executions", "replays", "conflicts", "mismatches"]
        .map(|name| (format!("{name} at the gateway"), stats[name].as_i64().expect("a count")));
    let captures = ("captures".to_owned(), i64::try_from(shop.captures().await).expect("a count"));
    counted.into_iter().chain(of_the_gateway).chain([captures]).collect()
}
