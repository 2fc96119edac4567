//! Idempotency keys that are none, and strange ones that are.

use super::row::{Route, Row};

const KEY: &str = "Idempotency-Key";
const CARD: &str = "4242424242424242";

pub(crate) fn rows(route: &Route) -> Vec<Row> {
    let missing = route.request().without(KEY).gets("no key", 400, "idempotency_key_missing");
    let renamed = route.request().without(KEY).with("X-Idempotency-Key", "k");
    let mut rows = vec![missing, renamed.gets("a key under another name", 400, "idempotency_key_missing")];
    rows.extend(values().into_iter().map(|(name, value)| invalid(route, name, &value)));
    // Not a header at all: refused before anything of ours sees it.
    for (name, value) in [("NUL in a key", &b"a\0b"[..]), ("a control character", b"a\x01b"), ("DEL", b"a\x7fb")] {
        rows.push(route.request().set(KEY, value).gets(name, 400, "").closed());
    }
    for (name, first, second) in [("two equal keys", "k", "k"), ("two keys", "k", "l"), ("one of them empty", "k", "")]
    {
        let request = route.request().set(KEY, first).with(KEY, second);
        rows.push(request.gets(name, 400, "idempotency_key_invalid"));
    }
    rows
}

/// Card numbers as keys.
pub(crate) fn cards(route: &Route) -> Vec<Row> {
    let mut rows =
        vec![invalid(route, "a card number with dashes as a key", b"4242-4242-4242-4242").secret("4242-4242")];
    for (name, value) in [
        ("a card number as a key", CARD.to_owned()),
        ("a card number between quotes as a key", format!("\"{CARD}\"")),
        ("a card number with words around it as a key", format!("pay-{CARD}-now")),
    ] {
        rows.push(invalid(route, name, value.as_bytes()).secret(CARD));
    }
    rows
}

fn invalid(route: &Route, name: &str, value: &[u8]) -> Row {
    route.request().set(KEY, value).gets(name, 400, "idempotency_key_invalid")
}

fn values() -> Vec<(&'static str, Vec<u8>)> {
    let quoted = |inner: &str| format!("\"{inner}\"").into_bytes();
    vec![
        ("an empty key", Vec::new()),
        ("spaces", b"     ".to_vec()),
        ("empty quotes", quoted("")),
        ("quoted spaces", quoted("   ")),
        ("one quote", b"\"".to_vec()),
        ("a quote that is not closed", b"\"abc".to_vec()),
        ("a quote that is not opened", b"abc\"".to_vec()),
        ("a quote inside a bare key", b"a\"b".to_vec()),
        ("a quote inside quotes", quoted("a\"b")),
        ("an unknown escape", quoted("a\\x")),
        ("an escape at the end", quoted("a\\")),
        ("a parameter", b"\"a\";x=1".to_vec()),
        ("an inner list", b"(\"a\" \"b\")".to_vec()),
        ("two words", b"two words".to_vec()),
        ("two quoted words", quoted("two words")),
        ("a tab inside", b"a\tb".to_vec()),
        ("latin-1", b"schl\xfcssel".to_vec()),
        ("UTF-8", "schlüssel".as_bytes().to_vec()),
        ("an emoji", "💳".as_bytes().to_vec()),
        ("a byte that is no text", b"a\xff".to_vec()),
        ("256 characters", vec![b'k'; 256]),
        ("256 characters between quotes", quoted(&"k".repeat(256))),
        ("8 KiB", vec![b'k'; 8 * 1024]),
        ("a list", b"a,b".to_vec()),
        ("a list with a space", b"a, b".to_vec()),
        ("a quoted list", b"\"a\", \"b\"".to_vec()),
        ("a mixed list", b"\"a\",b".to_vec()),
        ("a list of one and nothing", b"a,".to_vec()),
    ]
}

/// What looks like an attack or a mistake and is a key all the same: the header, and the key it is.
pub(crate) fn good() -> Vec<(String, String)> {
    let mut keys: Vec<(String, String)> = [
        "k",
        "!",
        "~",
        "a:b",
        "a%00b",
        "../../etc/passwd",
        "%2e%2e%2f",
        "';DROP/**/TABLE/**/orders;--",
        "'||(SELECT/**/pg_sleep(60))||'",
        "1'/**/OR/**/'1'='1",
        "<script>alert(1)</script>",
        "{{7*7}}${7*7}",
        "$(reboot)",
        "null",
        "undefined",
        ":YWJj:",
        "?1",
        "*",
        "42424242-4242-4242-8242-424242424242",
        "1764543990122",
        "a;x=1",
    ]
    .into_iter()
    .map(|key| (key.to_owned(), key.to_owned()))
    .collect();
    let longest = "k".repeat(255);
    keys.push((longest.clone(), longest));
    let escaped = "\"".repeat(255);
    keys.push((format!("\"{}\"", "\\\"".repeat(255)), escaped));
    keys.push(("\"quoted\"".to_owned(), "quoted".to_owned()));
    keys.push(("\"a,b\"".to_owned(), "a,b".to_owned()));
    keys.push((r#""a\"b\\c""#.to_owned(), r#"a"b\c"#.to_owned()));
    keys
}
