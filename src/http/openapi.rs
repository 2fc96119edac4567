//! `GET /openapi.json`: the contract for programs, written from its table.
//!
//! Written as JSON and not with an OpenAPI crate's types: those know no `required` on a response's header, and no `const`, and
//! both are promises that generated tests hold us to.

use std::{collections::BTreeMap, sync::LazyLock};

use axum::{
    body::Bytes,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::contract::{
    ANY_PATH, Auth, Body, Header, In, Parameter, Presence, ROUTES, Route, Tag, example, headers_of,
    schema::{self, reference},
};
use crate::wire::problem::{self, Code};

pub(super) async fn document() -> Response {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec_pretty(&openapi()).unwrap_or_default().into());
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

const ABOUT: &str = "A reference for idempotent payments: one tap, one order, one charge.\n\n\
    Send an Idempotency-Key with every POST that moves money, and the same key with every retry. Errors are \
    application/problem+json (RFC 9457): match on `code`, obey `retry`. Money is in integer minor units.\n\n\
    A path that does not exist answers 404 `not_found`; a method that a path does not know answers 405 `method_not_allowed` \
    with `Allow` (see components/responses). What is no HTTP/1.1 request is refused below, with an empty body and the end of the \
    connection: 400, or 431 for a head of more than 64 KiB or 100 header fields or for a length beyond any measure.";

/// The whole document.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name().to_lowercase()] = operation(route);
    }
    let tags: Vec<Value> =
        Tag::ALL.iter().map(|tag| json!({"name": tag.name(), "description": tag.sentence()})).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Checkout", "version": "1", "description": ABOUT},
        // Wherever this document was found.
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schema::named().into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect::<Map<_, _>>(),
            "headers": Header::ALL.iter().map(|header| (header.name().to_owned(), described(*header))).collect::<Map<_, _>>(),
            "responses": ANY_PATH.iter().map(|code| (code.name().to_owned(), refusal(&[*code]))).collect::<Map<_, _>>(),
            "securitySchemes": {
                "customer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Speaks for one customer."},
                "operator": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Speaks for the house."},
                "gateway": {"type": "apiKey", "in": "header", "name": "Stripe-Signature",
                            "description": "t=<seconds>,v1=<hex of HMAC-SHA256 over \"t.body\">, at most 300 s old."},
            }
        }
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.id,
        "tags": [route.tag.name()],
        "summary": route.summary,
        "security": security(route.auth),
        "responses": responses(route),
    });
    if !route.description.is_empty() {
        operation["description"] = json!(route.description);
    }
    if !route.parameters.is_empty() {
        operation["parameters"] = route.parameters.iter().map(parameter).collect();
    }
    if let Some(request) = route.request {
        operation["requestBody"] = json!({"required": true, "content": content(request)});
    }
    operation
}

fn security(auth: Auth) -> Value {
    match auth {
        Auth::Nobody => json!([]),
        Auth::Customer => json!([{"customer": []}]),
        Auth::Operator => json!([{"operator": []}]),
        Auth::Signature => json!([{"gateway": []}]),
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        In::Path => "path",
        In::Query => "query",
        In::Header => "header",
    };
    json!({
        "name": parameter.name, "in": place, "required": parameter.required, "description": parameter.description,
        "schema": (parameter.schema)()
    })
}

fn responses(route: &Route) -> Value {
    let success = &route.success;
    let mut answer = json!({
        "description": success.description, "headers": headers(success.headers), "content": content(success.body)
    });
    for (operation, parameter, from) in success.links {
        answer["links"][operation] = json!({"operationId": operation, "parameters": {*parameter: from}});
    }
    let mut responses = Map::from_iter([(success.status.to_string(), answer)]);
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in route.problems() {
        by_status.entry(code.status()).or_default().push(code);
    }
    responses.extend(by_status.into_iter().map(|(status, codes)| (status.to_string(), refusal(&codes))));
    Value::Object(responses)
}

/// One status, and every problem that has it.
fn refusal(codes: &[Code]) -> Value {
    let titles: Vec<&str> = codes.iter().map(|code| code.title()).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let example =
        |code: &Code| (code.name().to_owned(), json!({"summary": code.title(), "value": example::problem(*code)}));
    json!({
        "description": titles.join("; or: "),
        "headers": headers(&headers_of_all(codes)),
        "content": {problem::CONTENT_TYPE: {
            "schema": {"allOf": [reference("Problem"), {"properties": {
                "code": {"enum": names},
                "status": {"const": codes.first().map(|code| code.status())},
            }}]},
            "examples": codes.iter().map(example).collect::<Map<_, _>>(),
        }}
    })
}

/// A header is always there only if it is there with every one of them.
fn headers_of_all(codes: &[Code]) -> Vec<(Header, Presence)> {
    let presence = |header: Header| {
        let of = |code: &Code| headers_of(*code).iter().find(|(its, _)| *its == header).map(|(_, presence)| *presence);
        let said: Vec<Option<Presence>> = codes.iter().map(of).collect();
        match said.iter().flatten().min() {
            Some(_) if said.contains(&None) => Some(Presence::Sometimes),
            least => least.copied(),
        }
    };
    Header::ALL.into_iter().filter_map(|header| Some((header, presence(header)?))).collect()
}

/// These, and the one that every answer has.
fn headers(headers: &[(Header, Presence)]) -> Value {
    let every = [(Header::RequestId, Presence::Always)];
    let of = |(header, presence): &(Header, Presence)| {
        let mut described = described(*header);
        described["required"] = json!(*presence == Presence::Always);
        (header.name().to_owned(), described)
    };
    every.iter().chain(headers).map(of).collect::<Map<_, _>>().into()
}

fn described(header: Header) -> Value {
    json!({"description": header.sentence(), "schema": header.schema()})
}

fn content(body: Body) -> Value {
    match body {
        Body::Json { schema, example } => {
            json!({"application/json": {"schema": reference(schema), "example": example()}})
        }
        Body::Text { media_type, sentence } => {
            json!({media_type: {"schema": {"type": "string", "description": sentence}}})
        }
    }
}
