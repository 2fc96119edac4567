//! Bad input of every kind. Question: what does a wrong request get, and what does it leave behind?
//!
//! Each table is data: a name, the bytes that are sent, the exact status and `code`. After each row nothing may have been
//! written, to any table of ours or at the gateway, and the key must still do what a fresh one does. All rows of a table are
//! tried, and all that fail are named. A new route is one more [`row::Route`], and gets the tables that fit every route.

mod bodies;
mod cards;
mod credentials;
mod fields;
mod judge;
mod keys;
mod literal;
mod places;
mod row;
mod sizes;
mod socket;
mod sockets;

use std::time::Duration;

use checkout::credential::{Credentials, Subject};

use self::judge::{judge, judge_at, orders};
use crate::support::{Opening, SECRET, Shop, answer};

const CARD: &str = "4242424242424242";

#[tokio::test]
async fn what_is_no_idempotency_key_is_refused() {
    judge(keys::rows).await;
}

#[tokio::test]
async fn what_is_not_sent_as_json_is_refused() {
    judge(bodies::media_types).await;
}

#[tokio::test]
async fn what_is_no_json_document_or_has_two_meanings_is_refused() {
    judge(bodies::documents).await;
}

#[tokio::test]
async fn a_document_of_another_shape_and_fields_nobody_asked_for_are_refused() {
    judge(|route| [fields::shapes(route), fields::unknown(route)].concat()).await;
}

#[tokio::test]
async fn whole_numbers_are_whole_and_within_their_bounds() {
    judge(|route| {
        let totals = fields::whole_number(route, "/total", 4_299, 100_000_000);
        [totals, fields::whole_number(route, "/items/0/quantity", 1, 100)].concat()
    })
    .await;
}

#[tokio::test]
async fn the_fields_of_an_order_are_checked_one_by_one() {
    judge(fields::of_orders).await;
}

#[tokio::test]
async fn who_cannot_say_who_it_is_gets_nothing() {
    judge(credentials::rows).await;
}

#[tokio::test]
async fn methods_and_paths_that_lead_nowhere_lead_nowhere() {
    judge(|route| [places::methods(route), places::paths(route)].concat()).await;
}

#[tokio::test]
async fn a_body_has_the_length_it_says_and_no_more_than_it_may() {
    judge(sizes::rows).await;
}

#[tokio::test]
async fn what_two_readers_would_read_differently_is_refused_and_the_connection_closed() {
    judge(sockets::framings).await;
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_connection_closed() {
    judge(|route| [sockets::heads(route), sockets::unusual(route)].concat()).await;
}

#[tokio::test]
async fn a_card_number_is_refused_and_neither_kept_nor_told_nor_logged() {
    let environment = vec![("RUST_LOG", "trace")];
    let shop = Shop::open_with(Opening { gateway_in_memory: true, environment, ..Opening::default() }).await;
    let route = orders(&shop);
    let rows = [cards::rows(&route), keys::cards(&route), places::cards(&route)].concat();
    judge_at(&shop, &route, &rows).await;

    let operator = Credentials::new(SECRET).unwrap().mint(Subject::Operator, Duration::from_secs(60)).unwrap();
    let log = answer(shop.http.get(format!("{}/operator/requests", shop.api_url)).bearer_auth(operator)).await;
    assert!(log.json()["requests"].as_array().unwrap().len() > rows.len(), "{}", log.text());
    let logged = shop.api.stderr();
    assert!(logged.contains("TRACE") && !log.text().contains(CARD) && !logged.contains(CARD));
    let tables = "SELECT format('SELECT count(*) FROM %I AS t WHERE t::text LIKE %L', relname, '%4242424242424242%')
                  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&shop.pool).await.unwrap();
    let kept = sqlx::AssertSqlSafe(format!("SELECT sum(count)::bigint FROM ({}) AS kept", tables.join(" UNION ALL ")));
    assert_eq!(sqlx::query_scalar::<_, i64>(kept).fetch_one(&shop.pool).await.unwrap(), 0);
    shop.close().await;
}
