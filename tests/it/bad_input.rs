//! Bad input of every kind. Question: what does a wrong request get, and what does it leave behind?
//!
//! Each table is data: a name, the bytes that are sent, the exact status and `code`. After each row nothing may have been
//! written, to any table of ours or at the gateway, and the key must still do what a fresh one does. All rows of a table are
//! tried, and all that fail are named. Tables that fit every route of a kind are judged at each of them: a new route is one more
//! line of [`judge::routes`], and has to be there.

mod bodies;
mod cards;
mod credentials;
mod events;
mod fields;
mod judge;
mod keys;
mod literal;
mod places;
mod queries;
mod row;
mod sizes;
mod socket;
mod sockets;

use std::{collections::BTreeSet, time::Duration};

use checkout::{
    credential::{Credentials, Subject},
    http::contract::{Auth, ROUTES},
};

use self::judge::{judge, judge_at, kinds, routes};
use crate::support::{SECRET, answer};

const CARD: &str = "4242424242424242";

#[tokio::test]
async fn every_route_that_knows_who_asks_is_judged() {
    let shop = judge::open().await;
    let judged: BTreeSet<&str> = routes(&shop).await.iter().map(|route| route.id()).collect();
    let declared = ROUTES.iter().filter(|route| route.auth != Auth::Nobody).map(|route| route.id);
    assert_eq!(judged, declared.collect());
    shop.close().await;
}

#[tokio::test]
async fn what_is_no_idempotency_key_is_refused() {
    judge(kinds::keyed, keys::rows).await;
}

#[tokio::test]
async fn what_is_not_sent_as_json_is_refused() {
    judge(kinds::of_customers, bodies::media_types).await;
}

#[tokio::test]
async fn what_is_no_json_document_or_has_two_meanings_is_refused() {
    judge(kinds::with_body, bodies::documents).await;
}

#[tokio::test]
async fn a_document_of_another_shape_and_fields_nobody_asked_for_are_refused() {
    judge(kinds::of_customers, |route| [fields::shapes(route), fields::unknown(route)].concat()).await;
}

#[tokio::test]
async fn whole_numbers_are_whole_and_within_their_bounds() {
    judge(kinds::keyed, fields::whole_numbers).await;
}

#[tokio::test]
async fn the_fields_of_a_route_are_checked_one_by_one() {
    judge(kinds::of_customers, fields::own).await;
}

#[tokio::test]
async fn what_is_no_page_of_a_list_is_refused() {
    judge(kinds::list, queries::rows).await;
}

#[tokio::test]
async fn what_the_gateway_did_not_sign_and_what_is_no_event_is_refused() {
    judge(|route| route.is_signed(), |route| [events::signatures(route), events::bodies(route)].concat()).await;
}

#[tokio::test]
async fn who_cannot_say_who_it_is_gets_nothing() {
    judge(kinds::with_token, credentials::rows).await;
}

#[tokio::test]
async fn methods_and_other_spellings_of_a_path_lead_nowhere() {
    judge(kinds::every, |route| [places::methods(route), places::spellings(route)].concat()).await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    judge(kinds::every, |route| match route.id() {
        "createOrder" => [places::paths(route), places::strays(route)].concat(),
        "showIdempotencyKey" => places::keys(route),
        _ => places::ids(route),
    })
    .await;
}

#[tokio::test]
async fn a_body_has_the_length_it_says_and_no_more_than_it_may() {
    judge(kinds::with_body, sizes::rows).await;
}

#[tokio::test]
async fn what_two_readers_would_read_differently_is_refused_and_the_connection_closed() {
    judge(kinds::with_body, sockets::framings).await;
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_connection_closed() {
    judge(kinds::with_body, |route| [sockets::heads(route), sockets::unusual(route)].concat()).await;
}

#[tokio::test]
async fn a_card_number_is_refused_and_neither_kept_nor_told_nor_logged() {
    let shop = judge::open_with(vec![("RUST_LOG", "trace")]).await;
    let operator = Credentials::new(SECRET).unwrap().mint(Subject::Operator, Duration::from_secs(600)).unwrap();
    for route in routes(&shop).await {
        let rows = match route.id() {
            _ if kinds::list(&route) => queries::cards(&route),
            _ if !kinds::of_customers(&route) => continue,
            "setEmail" => cards::rows(&route),
            _ => [cards::rows(&route), keys::cards(&route), places::cards(&route)].concat(),
        };
        judge_at(&shop, &route, &rows).await;
        let log = answer(shop.http.get(format!("{}/operator/requests", shop.api_url)).bearer_auth(&operator)).await;
        assert!(log.json()["requests"].as_array().unwrap().len() > rows.len() && !log.text().contains(CARD));
    }
    let logged = shop.api.stderr();
    assert!(logged.contains("TRACE") && !logged.contains(CARD));
    let tables = "SELECT format('SELECT count(*) FROM %I AS t WHERE t::text LIKE %L', relname, '%4242424242424242%')
                  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&shop.pool).await.unwrap();
    let kept = sqlx::AssertSqlSafe(format!("SELECT sum(count)::bigint FROM ({}) AS kept", tables.join(" UNION ALL ")));
    assert_eq!(sqlx::query_scalar::<_, i64>(kept).fetch_one(&shop.pool).await.unwrap(), 0);
    shop.close().await;
}
