//! A path as it may be remembered and shown. Question: what did the client put where an id belongs?
//!
//! Clients make mistakes, and then a token, an address or a card number stands in a path. So of a path only what is ours is
//! shown: the words of the route, and ids in the form in which we give them out. The rest is named, or left out.

use axum::http::Method;
use uuid::Uuid;

/// Longest word that is shown of a path that no route takes.
const WORD_LENGTH_MAX: usize = 24;
const LEFT_OUT: &str = "…";

/// `route`: as it is written in the router, if one took it.
pub(super) fn shown_path(path: &str, route: Option<&str>) -> String {
    match route {
        Some(route) => {
            let parts = path.split('/').zip(route.split('/'));
            let shown: Vec<&str> = parts.map(|(part, name)| if is_id(part) { part } else { name }).collect();
            shown.join("/")
        }
        None => path
            .split('/')
            .take(8)
            .map(|part| if is_word(part) { part } else { LEFT_OUT })
            .collect::<Vec<_>>()
            .join("/"),
    }
}

fn is_id(part: &str) -> bool {
    part.len() == 36 && Uuid::try_parse(part).is_ok()
}

/// What a misspelt route is made of, and nothing secret is.
fn is_word(part: &str) -> bool {
    let letters = part.strip_prefix("v1").unwrap_or(part);
    part.len() <= WORD_LENGTH_MAX && letters.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

/// A client may send any word as a method, and it would be shown, and counted as a series of its own.
pub(super) fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"];
    KNOWN.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_only_what_is_ours_is_shown() {
        let id = "01900000-0000-7000-8000-00000000000a";
        for (path, route, shown) in [
            ("/v1/orders", Some("/v1/orders"), "/v1/orders"),
            (&format!("/v1/orders/{id}"), Some("/v1/orders/{id}"), &format!("/v1/orders/{id}")),
            ("/v1/orders/4242424242424242", Some("/v1/orders/{id}"), "/v1/orders/{id}"),
            ("/v1/orders/ada@example.org", Some("/v1/orders/{id}"), "/v1/orders/{id}"),
            ("/v1/order", None, "/v1/order"),
            ("/v1/orders/eyJhbGciOiJIUzI1NiJ9.e30.x/refunds", None, "/v1/orders/…/refunds"),
            ("/4242424242424242", None, "/…"),
            ("/a/b/c/d/e/f/g/h/i", None, "/a/b/c/d/e/f/g"),
        ] {
            assert_eq!(shown_path(path, route), shown, "{path}");
        }
    }

    #[test]
    fn a_word_that_is_no_method_is_not_repeated() {
        let odd: Method = "4242424242424242".parse().unwrap();
        assert_eq!((known(&Method::POST), known(&odd)), ("POST", "other"));
    }
}
