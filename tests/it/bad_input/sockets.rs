//! What is no HTTP, or HTTP that two readers would read differently: refused, and the connection closed, so that nothing behind
//! it is taken for a request.

use super::{
    bodies::in_one_chunk,
    row::{Framing, Request, Route, Row},
};

/// A good request, hidden behind the first request.
fn smuggled(route: &Route) -> String {
    String::from_utf8(route.request_under("smuggled").bytes()).expect("text")
}

fn in_chunks(request: Request, body: impl AsRef<[u8]>) -> Request {
    request.with("Transfer-Encoding", "chunked").framing(Framing::AsTold).body(body)
}

/// Lengths and codings that contradict each other.
pub(crate) fn framings(route: &Route) -> Vec<Row> {
    let good = route.good_body().to_string();
    let (length, chunk) = (good.len().to_string(), in_one_chunk(&good));
    let coded = |coding: &str| route.request().with("Transfer-Encoding", coding).framing(Framing::AsTold).body(&chunk);
    let lengths = |one: &str, other: &str| {
        let request = route.request().with("Content-Length", one).with("Content-Length", other);
        request.framing(Framing::AsTold).body(&good)
    };
    let mut rows = vec![
        lengths(&length, "0").gets("two lengths", 400, "").closed(),
        lengths("0", &length).gets("two lengths, the other way round", 400, "").closed(),
        // By its length the first request ends early, and another is hidden behind it; by its coding it is empty.
        in_chunks(route.request().with("Content-Length", "5"), format!("0\r\n\r\n{}", smuggled(route)))
            .gets("a length and a coding", 400, route.not_as_meant())
            .closed(),
        in_chunks(route.request(), format!("0\r\n\r\n{}", smuggled(route)))
            .with("Content-Length", "5")
            .gets("a coding and a length", 400, route.not_as_meant())
            .closed(),
    ];
    for coding in ["xchunked", "identity", "gzip", "chunked, gzip", "\"chunked\"", "chunked;q=1", "", "chunked\u{b}"] {
        rows.push(coded(coding).gets(format!("the coding {coding:?}"), 400, "").closed());
    }
    for (name, body) in [
        ("a chunk size that is no number", format!("xyz\r\n{good}\r\n0\r\n\r\n")),
        ("a negative chunk size", format!("-1\r\n{good}\r\n0\r\n\r\n")),
        ("a chunk size with 0x", format!("0x{:x}\r\n{good}\r\n0\r\n\r\n", good.len())),
        ("a chunk size beyond all numbers", format!("fffffffffffffffff\r\n{good}\r\n0\r\n\r\n")),
        ("an empty chunk size", format!("\r\n{good}\r\n0\r\n\r\n")),
        ("a chunk longer than told", format!("{:x}\r\n{good}\r\n0\r\n\r\n", good.len() - 1)),
        ("a chunk without its end", format!("{:x}\r\n{good}0\r\n\r\n", good.len())),
        ("a chunk size ended by a bare LF", format!("{:x}\n{good}\r\n0\r\n\r\n", good.len())),
    ] {
        rows.push(in_chunks(route.request(), body).gets(name, 400, "malformed_json").closed());
    }
    let broken_off = in_chunks(route.request(), format!("{:x}\r\n{good}\r\n", good.len()));
    rows.push(broken_off.gets("chunks without an end", 400, "malformed_json").finished().closed());
    rows
}

/// Heads that are none.
pub(crate) fn heads(route: &Route) -> Vec<Row> {
    let bad = |name: &str, bytes: Vec<u8>| Row::of(name, bytes, 400, "").closed();
    let good = String::from_utf8(route.request().bytes()).expect("text");
    let changed = |name: &str, from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        bad(name, good.replacen(from, to, 1).into_bytes())
    };
    let many = |count: usize| {
        let request = route.request();
        (request.lines()..count).fold(request, |request, n| request.with(&format!("X-{n}"), "1"))
    };
    let (method, target) = (route.method(), route.target.as_str());
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: shop\r\n\r\n").into_bytes();
    vec![
        changed("NUL in a header", "Host: ", "X: a\0b\r\nHost: "),
        changed("NUL in a header's name", "Host: ", "X\0: 1\r\nHost: "),
        changed("a space before the colon", "Host: ", "Host : "),
        changed("a header folded onto a second line", "Host: ", "X: a\r\n b\r\nHost: "),
        changed("a header without a colon", "Host: ", "nonsense\r\nHost: "),
        changed("a header without a name", "Host: ", ": 1\r\nHost: "),
        changed("a bare CR in a header", "Host: ", "X: a\rb\r\nHost: "),
        changed("a bare CR at the end of a line", "HTTP/1.1\r\n", "HTTP/1.1\r"),
        changed("a space before the first header", "HTTP/1.1\r\n", "HTTP/1.1\r\n "),
        changed("two spaces in the first line", &format!("{method} /"), &format!("{method}  /")),
        changed("no target", &format!("{method} {target} "), &format!("{method} ")),
        changed("a method that is none", method, &format!("{method}(")),
        changed("NUL in the target", target, &format!("{target}\0")),
        changed("a space in the target", "/v1/", "/v1 /"),
        changed("HTTP/1.2", "HTTP/1.1", "HTTP/1.2"),
        changed("HTTP/3.0", "HTTP/1.1", "HTTP/3.0"),
        changed("no version", " HTTP/1.1", ""),
        changed("another protocol", "HTTP/1.1", "RTSP/1.0"),
        bad("HTTP/0.9", format!("{method} {target}\r\n\r\n").into_bytes()),
        bad("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        bad("nonsense", b"\x00\x01\x02\x03\r\n\r\n".to_vec()),
        bad("a mail", b"EHLO shop\r\nMAIL FROM:<a@b>\r\n\r\n".to_vec()),
        Row::of("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), 0, "").closed(),
        Row::of("101 headers", many(101).bytes(), 431, "").closed(),
        Row::of("a header of 65 KiB", route.request().with("X-Long", "a".repeat(65 * 1024)).bytes(), 431, "").closed(),
        Row::of("a target of 70,000 characters", get(&format!("/{}", "a".repeat(70_000))), 431, "").closed(),
        Row::of("half a head", good.as_bytes()[..40].to_vec(), 0, "").finished(),
        Row::of("nothing", Vec::new(), 0, "").finished(),
    ]
}

/// HTTP that one may send, but not to us.
pub(crate) fn unusual(route: &Route) -> Vec<Row> {
    let connect = |target: &str| route.request().method("CONNECT").target(target).framing(Framing::AsTold).body("");
    vec![
        connect("shop:443").gets("CONNECT to a host", 404, "not_found"),
        connect("gateway:80").gets("CONNECT to the gateway", 404, "not_found"),
        route.request().method("OPTIONS").target("*").gets("OPTIONS to everything", 404, "not_found"),
        route.request().target("http://elsewhere/v1/nothing").gets(
            "an absolute target that is not there",
            404,
            "not_found",
        ),
        route.request().with("Expect", "100-continue").body("{").gets(
            "100-continue and nonsense",
            400,
            "malformed_json",
        ),
        route.request().with("Connection", "Upgrade, HTTP2-Settings").with("Upgrade", "h2c").body("{").gets(
            "an upgrade to HTTP/2",
            400,
            "malformed_json",
        ),
        route
            .request()
            .with("Connection", "close, Idempotency-Key")
            .body("{")
            .gets("a connection that is to be closed", 400, "malformed_json")
            .closed(),
    ]
}
