//! Bodies that are no JSON document, or not sent as one. The same for every route that takes a body.

use serde_json::Value;

use super::row::{Framing, Route, Row};

const TYPE: &str = "Content-Type";
const ENCODING: &str = "Content-Encoding";

/// How a body is labelled.
pub(crate) fn media_types(route: &Route) -> Vec<Row> {
    let refused = |name: &str, request: super::row::Request| request.gets(name, 415, "unsupported_media_type");
    let mut rows = vec![refused("no media type", route.request().without(TYPE))];
    for media_type in [
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
        "application/json; charset=utf-16",
        "application/json; boundary=x",
        "application/jsonp",
        "application/json-patch+json",
        "application/vnd.api+json",
        "application/json, text/plain",
        "*/*",
        "json",
    ] {
        rows.push(refused(&format!("media type {media_type:?}"), route.request().set(TYPE, media_type)));
    }
    rows.push(refused("two media types", route.request().with(TYPE, "application/json")));
    rows.push(refused("a media type that is no text", route.request().set(TYPE, b"application/json\xff")));
    for coding in ["gzip", "br", "deflate", "identity", "x-none"] {
        rows.push(refused(&format!("encoded as {coding}"), route.request().with(ENCODING, coding)));
    }
    let form = route.request().set(TYPE, "application/x-www-form-urlencoded").body("total=4299&currency=eur");
    rows.push(refused("a form", form));
    for (name, coding) in [("chunks of gzip", "gzip, chunked"), ("chunks in chunks", "chunked, chunked")] {
        let request = route.request().with("Transfer-Encoding", coding).framing(Framing::AsTold);
        rows.push(refused(name, request.body(in_one_chunk(&route.good_body().to_string()))));
    }
    rows
}

pub(crate) fn in_one_chunk(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// Bytes that are no document, or more than one, or one with two meanings.
pub(crate) fn documents(route: &Route) -> Vec<Row> {
    let refused = |(name, body): (String, Vec<u8>)| route.request().body(body).gets(name, 400, "malformed_json");
    texts(&route.good_body().to_string())
        .into_iter()
        // The gateway's own: what nobody reads of its event may be there twice.
        .filter(|(name, _)| !(route.is_signed() && *name == "a field twice"))
        .map(|(name, text)| (name.to_owned(), text.into_bytes()))
        .chain(encodings(&route.good_body()).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)))
        .chain(
            numbers().into_iter().map(|number| (format!("the number {number}"), format!("{{\"a\":{number}}}").into())),
        )
        .map(refused)
        .collect()
}

fn texts(good: &str) -> Vec<(&'static str, String)> {
    let inside = &good[1..good.len() - 1];
    let deep = |open: &str, close: &str, levels: usize| open.repeat(levels) + &close.repeat(levels);
    vec![
        ("nothing", String::new()),
        ("white space", " \r\n\t ".to_owned()),
        ("an open brace", "{".to_owned()),
        ("a broken end", good[..good.len() - 1].to_owned()),
        ("junk after it", format!("{good} x")),
        ("two documents", format!("{good}{good}")),
        ("a comma at the end", format!("{{{inside},}}")),
        ("single quotes", good.replace('"', "'")),
        ("names without quotes", "{total:1}".to_owned()),
        ("a comment", format!("/* pay */{good}")),
        ("words", "undefined".to_owned()),
        ("a word in capitals", "{\"a\":True}".to_owned()),
        ("HTML", "<html><body>oops</body></html>".to_owned()),
        ("a field twice", format!("{{\"total\":1,{inside},\"total\":1}}")),
        ("a field twice in depth", "{\"a\":{\"b\":1,\"b\":1}}".to_owned()),
        ("a field twice, once escaped", "{\"total\":1,\"\\u0074otal\":1}".to_owned()),
        ("NUL in a string", "{\"a\":\"x\\u0000\"}".to_owned()),
        ("NUL in a name", "{\"a\\u0000\":1}".to_owned()),
        ("a bare NUL", "{\"a\":\"x\0\"}".to_owned()),
        ("a line break in a string", "{\"a\":\"x\ny\"}".to_owned()),
        ("a lone high surrogate", "{\"a\":\"\\ud800\"}".to_owned()),
        ("a lone low surrogate", "{\"a\":\"\\udc00\"}".to_owned()),
        ("surrogates in the wrong order", "{\"a\":\"\\udc00\\ud800\"}".to_owned()),
        ("an unknown escape in a string", "{\"a\":\"\\x41\"}".to_owned()),
        ("17 levels", deep("[", "]", 17)),
        ("200 levels", deep("[", "]", 200)),
        ("30,000 levels", deep("[", "]", 30_000)),
        ("30,000 levels that do not end", "[".repeat(30_000)),
        ("10,000 levels of objects", deep("{\"a\":", "}", 10_000)),
    ]
}

fn encodings(good: &Value) -> Vec<(&'static str, Vec<u8>)> {
    let good = good.to_string();
    let wide = |bytes: fn(u16) -> [u8; 2]| good.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    vec![
        ("a byte order mark", [b"\xef\xbb\xbf", good.as_bytes()].concat()),
        ("UTF-16, little end first", [b"\xff\xfe".to_vec(), wide(u16::to_le_bytes)].concat()),
        ("UTF-16, big end first, unmarked", wide(u16::to_be_bytes)),
        ("UTF-32", good.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect()),
        ("latin-1", b"{\"a\":\"\xe9\"}".to_vec()),
        ("an overlong slash", b"{\"a\":\"\xc0\xaf\"}".to_vec()),
        ("an encoded surrogate", b"{\"a\":\"\xed\xa0\x80\"}".to_vec()),
        ("beyond Unicode", b"{\"a\":\"\xf4\x90\x80\x80\"}".to_vec()),
        ("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00".to_vec()),
    ]
}

fn numbers() -> [&'static str; 13] {
    ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0x10", "01", "-01", "+1", ".5", "1.", "1_000", "--1"]
}
