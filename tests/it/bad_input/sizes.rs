//! Bodies that are too long, or not as long as they say.

use super::row::{Framing, Request, Route, Row};

/// The largest body of an order, as of everything that customers send.
const BODY_BYTES_MAX: usize = 64 * 1024;
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// The largest body that this route takes.
pub(crate) fn bytes_max(route: &Route) -> usize {
    if route.is_signed() { EVENT_BYTES_MAX } else { BODY_BYTES_MAX }
}

/// The good body, made this long with white space.
pub(crate) fn of_length(route: &Route, length: usize) -> Request {
    let mut body = route.good_body().to_string();
    body.push_str(&" ".repeat(length - body.len()));
    route.request().body(body)
}

/// The good body with another length in its head.
fn told(route: &Route, length: impl std::fmt::Display) -> Request {
    route.request().with("Content-Length", length.to_string()).framing(Framing::AsTold)
}

pub(crate) fn rows(route: &Route) -> Vec<Row> {
    let too_large = |name: &str, request: Request| request.gets(name, 413, "payload_too_large");
    let chunked = |length| of_length(route, length).framing(Framing::Chunked);
    let (good, most) = (route.good_body().to_string(), bytes_max(route));
    let huge = format!("{{\"client_reference\":\"{}\"}}", "x".repeat(3 * 1024 * 1024));
    // Who asks is asked first; who signs has to be heard out.
    let (status, code) = if route.is_signed() { (413, "payload_too_large") } else { (401, "unauthenticated") };
    let of_nobody = of_length(route, most + 1).without("Authorization").unsigned();
    vec![
        too_large("a byte too many", of_length(route, most + 1)).open(),
        too_large("a byte too many in chunks", chunked(most + 1)).open(),
        too_large("1 MiB", of_length(route, 1024 * 1024)).open(),
        too_large("3 MiB", route.request().body(&huge)).closed(),
        too_large("3 MiB in chunks", route.request().body(&huge).framing(Framing::Chunked)).closed(),
        too_large("3 MiB that are no JSON", route.request().body("[".repeat(3 * 1024 * 1024))).closed(),
        of_nobody.gets("a byte too many of nobody's", status, code),
        told(route, good.len() + 1).gets("a byte fewer than told", 400, "malformed_json").finished().closed(),
        told(route, most).gets("far fewer than told", 400, "malformed_json").finished().closed(),
        // What is left over is no request.
        told(route, good.len() - 1).gets("a byte more than told", 400, route.not_as_meant()).closed(),
        told(route, 0).gets("a body that is told to be empty", 400, route.not_as_meant()).closed(),
        told(route, "-1").gets("a negative length", 400, "").closed(),
        told(route, "+9").gets("a length with a sign", 400, "").closed(),
        told(route, "0x10").gets("a length in hex", 400, "").closed(),
        told(route, "").gets("an empty length", 400, "").closed(),
        told(route, "9, 9").gets("a list of lengths", 400, "").closed(),
        told(route, u128::MAX).gets("a length beyond all numbers", 400, "").closed(),
        told(route, u64::MAX).gets("a length that is no length", 431, "").closed(),
        route.request().framing(Framing::AsTold).gets("no length at all", 400, route.not_as_meant()).closed(),
    ]
}
