//! Lists: what is no page of one.

use super::row::{Route, Row};

const INVALID: &str = "validation_failed";
const ID: &str = "0190b8a0-0000-7000-8000-000000000000";
const CARD: &str = "4242424242424242";

fn asking(route: &Route, query: &str) -> super::row::Request {
    route.request().target(format!("{}?{query}", route.target))
}

pub(crate) fn rows(route: &Route) -> Vec<Row> {
    let refused = |query: &str, at: &str| asking(route, query).gets(format!("?{query:.60}"), 422, INVALID).at(at);
    let limits = limits().into_iter().map(|limit| refused(&format!("limit={limit}"), "limit"));
    let cursors = cursors();
    let cursors = cursors.iter().map(|cursor| refused(&format!("starting_after={cursor}"), "starting_after"));
    let twice = [
        ("limit=1&limit=1".to_owned(), "limit"),
        ("limit=1&limit=2".to_owned(), "limit"),
        ("limit=1&%6Cimit=1".to_owned(), "limit"),
        ("limit=0&limit=1".to_owned(), "limit"),
        ("limit=1&&limit=".to_owned(), "limit"),
        ("limit".to_owned(), "limit"),
        ("limit=1;starting_after=x".to_owned(), "limit"),
        ("limit=1?limit=1".to_owned(), "limit"),
        (format!("starting_after={ID}&starting_after={ID}"), "starting_after"),
        (format!("starting_after={ID}&limit=1&starting%5fafter={ID}"), "starting_after"),
    ];
    let twice = twice.iter().map(|(query, at)| refused(query, at));
    let unknown = unknown().into_iter().map(|(name, at)| refused(&format!("{name}=1"), at));
    let mut rows: Vec<Row> = limits.chain(cursors).chain(twice).chain(unknown).collect();
    rows.push(refused(&format!("{}=1", "x".repeat(8_000)), &"x".repeat(8_000)));
    rows.push(refused(&vec!["x"; 20_000].join("&"), "x").at("x"));
    rows
}

/// Card numbers in a query.
pub(crate) fn cards(route: &Route) -> Vec<Row> {
    let refused = |query: String| {
        let name = format!("?{query}");
        asking(route, &query).gets(name, 422, INVALID).secret(CARD)
    };
    vec![
        refused(format!("{CARD}=1")),
        refused(format!("card={CARD}")),
        refused(format!("limit={CARD}")),
        refused(format!("starting_after={CARD}")),
        refused(format!("card-{CARD}")),
        refused(format!("limit={CARD}&limit=1")),
        refused("4242%204242%204242%204242=1".to_owned()).secret("4242 4242"),
    ]
}

fn limits() -> Vec<&'static str> {
    vec![
        "",
        "0",
        "-1",
        "101",
        "1000",
        "18446744073709551616",
        "100000000000000000000000000000000",
        "1.0",
        "1.5",
        "1e1",
        "0x10",
        "01",
        "007",
        "+5",
        "%2B5",
        "%205",
        "5%20",
        "5%00",
        "%00",
        "%FF",
        "%EF%BC%95",
        "%D9%A5",
        "1_0",
        "1,2",
        "null",
        "true",
        "all",
        "NaN",
        "[]",
        "{}",
        "%27",
        "1%27%20OR%20%271%27=%271",
        "1%0d%0aX:1",
        "%",
        "%2",
        "%zz",
        "1%",
    ]
}

fn cursors() -> Vec<String> {
    let bare = ID.replace('-', "");
    let mut cursors: Vec<String> =
        ["", "0", "1", "-1", "null", "%00", "%FF", "latest", "%27", "*", "{id}", "pi_1"].map(str::to_owned).to_vec();
    cursors.extend([
        ID[1..].to_owned(),
        format!("{ID}0"),
        format!("{ID}%00"),
        format!("{ID}%20"),
        format!("%20{ID}"),
        format!("+{ID}"),
        format!("{ID},{ID}"),
        format!("{ID}%27--"),
        format!("%7B{ID}%7D"),
        format!("urn:uuid:{ID}"),
        format!("ord_{ID}"),
        ID.replace('8', "g"),
        "9".repeat(8_000),
        bare,
    ]);
    cursors
}

/// Names as they are sent, and as they are told.
fn unknown() -> Vec<(&'static str, &'static str)> {
    vec![
        ("page", "page"),
        ("offset", "offset"),
        ("cursor", "cursor"),
        ("after", "after"),
        ("ending_before", "ending_before"),
        ("Limit", "Limit"),
        ("LIMIT", "LIMIT"),
        ("limits", "limits"),
        ("limit%20", "limit "),
        ("limit+", "limit "),
        ("limit%00", "limit\0"),
        ("limit[]", "limit[]"),
        ("limit%5B%5D", "limit[]"),
        ("limit%FF", "limit\u{fffd}"),
        ("startingAfter", "startingAfter"),
        ("starting-after", "starting-after"),
        ("sort", "sort"),
        ("status", "status"),
        ("expand[]", "expand[]"),
        ("customer", "customer"),
        ("customer_id", "customer_id"),
        ("tenant_id", "tenant_id"),
        ("order_id", "order_id"),
        ("access_token", "access_token"),
        ("_method", "_method"),
        ("__proto__", "__proto__"),
        ("1%27%20OR%20%271%27", "1' OR '1'"),
        ("%3Cscript%3E", "<script>"),
        // A parameter without a name has none to be told by.
        ("", "?"),
        ("%25", "%"),
        ("%F0%9F%92%B3", "\u{1f4b3}"),
    ]
}
