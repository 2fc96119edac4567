//! The table: one entry per method and path. What does each route take, and what can it answer?

use serde_json::{Value, json};

use super::{
    Auth, Body, Header, In, Method, Parameter, Presence, Route, Success, Tag, example,
    schema::{id, operation},
};
use crate::{
    http::paging::{LIMIT_DEFAULT, LIMIT_MAX},
    idempotency::key::KEY_LENGTH_MAX,
    metrics,
    wire::problem::Code,
};

use Presence::{Always, Sometimes};

/// Every route, in the order of the documentation.
pub const ROUTES: &[Route] = &[
    Route {
        id: "createOrder",
        path: "/v1/orders",
        tag: Tag::Orders,
        summary: "Place an order and charge for it, once",
        description: "However often it is sent under one key: at most one charge, at most one order, and always the same bytes.",
        request: Some(Body::Json { schema: "OrderRequest", example: example::order_request }),
        success: Success {
            body: Body::Json { schema: "Order", example: example::order },
            links: &[
                ("showOrder", "id", "$response.body#/id"),
                ("createRefund", "id", "$response.body#/id"),
                ("listRefunds", "id", "$response.body#/id"),
            ],
            ..CREATED
        },
        problems: &[MADE_UNDER_A_KEY, AUTHENTICATED, BODY, CARD],
        ..KEYED_POST
    },
    Route {
        id: "listOrders",
        path: "/v1/orders",
        tag: Tag::Orders,
        summary: "List one's own orders, newest first",
        parameters: &[LIMIT, STARTING_AFTER],
        success: Success { body: Body::Json { schema: "OrderList", example: example::order_list }, ..SHOWN },
        problems: &[AUTHENTICATED, &[Code::ValidationFailed]],
        ..READ
    },
    Route {
        id: "showOrder",
        path: "/v1/orders/{id}",
        tag: Tag::Orders,
        summary: "Show an order",
        description: "An order of one's own; anybody else's is not there.",
        parameters: &[ORDER_ID],
        success: Success { body: Body::Json { schema: "Order", example: example::order_shown }, ..SHOWN },
        ..READ
    },
    Route {
        id: "createRefund",
        path: "/v1/orders/{id}/refunds",
        tag: Tag::Orders,
        summary: "Refund all or part of an order, once",
        description: "An operation of its own with keys of its own. Its amount is reserved while the outcome is open.",
        parameters: &[ORDER_ID, IDEMPOTENCY_KEY],
        request: Some(Body::Json { schema: "RefundRequest", example: example::refund_request }),
        success: Success { body: Body::Json { schema: "Refund", example: example::refund }, ..CREATED },
        problems: &[
            MADE_UNDER_A_KEY,
            AUTHENTICATED,
            BODY,
            &[Code::NotFound, Code::RefundExceedsBalance, Code::RefundRefused],
        ],
        ..KEYED_POST
    },
    Route {
        id: "listRefunds",
        path: "/v1/orders/{id}/refunds",
        tag: Tag::Orders,
        summary: "List the refunds of an order",
        parameters: &[ORDER_ID, LIMIT, STARTING_AFTER],
        success: Success { body: Body::Json { schema: "RefundList", example: example::refund_list }, ..SHOWN },
        problems: &[AUTHENTICATED, &[Code::ValidationFailed, Code::NotFound]],
        ..READ
    },
    Route {
        id: "showRefund",
        path: "/v1/orders/{id}/refunds/{refund_id}",
        tag: Tag::Orders,
        summary: "Show a refund",
        parameters: &[ORDER_ID, parameter("refund_id", In::Path, "The refund's name.", || id("The refund's name."))],
        success: Success { body: Body::Json { schema: "Refund", example: example::refund_shown }, ..SHOWN },
        ..READ
    },
    Route {
        id: "createCharge",
        path: "/v1/charges",
        tag: Tag::Charges,
        summary: "Take money, once, without an order",
        request: Some(Body::Json { schema: "ChargeRequest", example: example::charge_request }),
        success: Success {
            body: Body::Json { schema: "Charge", example: example::charge },
            links: &[("showCharge", "id", "$response.body#/id")],
            ..CREATED
        },
        problems: &[MADE_UNDER_A_KEY, AUTHENTICATED, BODY, CARD],
        ..KEYED_POST
    },
    Route {
        id: "listCharges",
        path: "/v1/charges",
        tag: Tag::Charges,
        summary: "List one's own charges, newest first",
        parameters: &[LIMIT, STARTING_AFTER],
        success: Success { body: Body::Json { schema: "ChargeList", example: example::charge_list }, ..SHOWN },
        problems: &[AUTHENTICATED, &[Code::ValidationFailed]],
        ..READ
    },
    Route {
        id: "showCharge",
        path: "/v1/charges/{id}",
        tag: Tag::Charges,
        summary: "Show a charge",
        description: "A charge of one's own, an order's or one that stands alone.",
        parameters: &[parameter("id", In::Path, "The charge's name.", || id("The charge's name."))],
        success: Success { body: Body::Json { schema: "Charge", example: example::charge_shown }, ..SHOWN },
        ..READ
    },
    Route {
        id: "showIdempotencyKey",
        path: "/v1/idempotency-keys/{operation}/{key}",
        tag: Tag::Keys,
        summary: "Show what became of a key",
        description: "What a client asks before it dares to start anew.",
        parameters: &[
            parameter("operation", In::Path, "What was done under it.", operation),
            parameter("key", In::Path, "The key as it was sent.", key),
        ],
        success: Success { body: Body::Json { schema: "KeyRecord", example: example::key_record }, ..SHOWN },
        problems: &[AUTHENTICATED, &[Code::NotFound, Code::IdempotencyKeyInvalid]],
        ..READ
    },
    Route {
        id: "setEmail",
        method: Method::Put,
        path: "/v1/customers/me/email",
        tag: Tag::Customers,
        summary: "Say where receipts are sent",
        description: "Receipts that are made out from now on go there. Twice is as good as once: no key is needed, and none is \
                      looked at.",
        request: Some(Body::Json { schema: "EmailRequest", example: example::email_request }),
        success: Success { body: Body::Json { schema: "Email", example: example::email }, ..SHOWN },
        problems: &[AUTHENTICATED, BODY],
        ..READ
    },
    Route {
        id: "showEmail",
        path: "/v1/customers/me/email",
        tag: Tag::Customers,
        summary: "Show where receipts are sent",
        success: Success { body: Body::Json { schema: "Email", example: example::email }, ..SHOWN },
        ..READ
    },
    Route {
        id: "receiveGatewayEvent",
        method: Method::Post,
        path: "/v1/webhooks/gateway",
        tag: Tag::Webhooks,
        summary: "Receive an event of the payment gateway",
        description: "Believed by its signature over the raw bytes, kept, and only then acknowledged.",
        auth: Auth::Signature,
        request: Some(Body::Json { schema: "GatewayEvent", example: example::gateway_event }),
        success: Success { body: Body::Json { schema: "Received", example: example::received }, ..SHOWN },
        problems: &[&[
            Code::WebhookSignatureInvalid,
            Code::MalformedJson,
            Code::NotFound,
            Code::RequestTimeout,
            Code::PayloadTooLarge,
            Code::Internal,
            Code::Unavailable,
        ]],
        ..READ
    },
    Route {
        id: "listRequests",
        path: "/operator/requests",
        summary: "List the latest requests",
        description: "For an operator's token; a customer is told that there is no such path.",
        auth: Auth::Operator,
        success: Success { body: Body::Json { schema: "RequestLog", example: example::request_log }, ..SHOWN },
        problems: &[OPERATED, &[Code::NotFound]],
        ..READ
    },
    Route {
        id: "isAlive",
        path: "/livez",
        summary: "Is the process alive?",
        success: Success { body: text("text/plain; charset=utf-8", "One word."), ..SHOWN },
        ..PUBLIC
    },
    Route {
        id: "isReady",
        path: "/readyz",
        summary: "May it be sent traffic?",
        description: "Only while the database answers and there is a day to claim keys in.",
        success: Success { body: Body::Json { schema: "Ready", example: example::ready }, ..SHOWN },
        problems: &[&[Code::Internal, Code::Unavailable]],
        ..PUBLIC
    },
    Route {
        id: "scrapeMetrics",
        path: "/metrics",
        summary: "Figures for Prometheus",
        success: Success { body: text(metrics::CONTENT_TYPE, "Prometheus' text format."), ..SHOWN },
        ..PUBLIC
    },
    Route {
        id: "openApi",
        path: "/openapi.json",
        summary: "This contract for programs",
        description: "OpenAPI 3.1.",
        success: Success { body: Body::Json { schema: "OpenApi", example: example::open_api }, ..SHOWN },
        ..PUBLIC
    },
    Route {
        id: "docs",
        path: "/docs",
        summary: "This contract for people",
        success: Success { body: text("text/html; charset=utf-8", "A page."), ..SHOWN },
        ..PUBLIC
    },
    Route {
        id: "problems",
        path: "/docs/problems",
        summary: "The catalogue of problems for people",
        description: "Where the type of every problem leads.",
        success: Success { body: text("text/html; charset=utf-8", "A page."), ..SHOWN },
        ..PUBLIC
    },
];

/// What most routes have in common; each says the rest.
const READ: Route = Route {
    method: Method::Get,
    path: "",
    id: "",
    tag: Tag::House,
    summary: "",
    description: "",
    auth: Auth::Customer,
    parameters: &[],
    request: None,
    success: SHOWN,
    problems: &[AUTHENTICATED, &[Code::NotFound]],
};
const PUBLIC: Route = Route { auth: Auth::Nobody, problems: &[&[Code::Internal]], ..READ };
const KEYED_POST: Route = Route { method: Method::Post, parameters: &[IDEMPOTENCY_KEY], ..READ };

const SHOWN: Success =
    Success { status: 200, description: "Here it is.", headers: &[], body: text("", ""), links: &[] };
const CREATED: Success = Success {
    status: 201,
    description: "Done, by this request or by an earlier one under the same key.",
    headers: &[(Header::Location, Always), (Header::IdempotentReplayed, Sometimes)],
    ..SHOWN
};

const fn text(media_type: &'static str, sentence: &'static str) -> Body {
    Body::Text { media_type, sentence }
}

const OPERATED: &[Code] = &[Code::Unauthenticated, Code::Internal];
/// Whose own things are kept in the database.
const AUTHENTICATED: &[Code] = &[Code::Unauthenticated, Code::RateLimited, Code::Internal, Code::Unavailable];
const BODY: &[Code] = &[
    Code::MalformedJson,
    Code::RequestTimeout,
    Code::PayloadTooLarge,
    Code::UnsupportedMediaType,
    Code::ValidationFailed,
    Code::CardDataNotAccepted,
];
const CARD: &[Code] = &[Code::CardDeclined];
const MADE_UNDER_A_KEY: &[Code] = &[
    Code::IdempotencyKeyMissing,
    Code::IdempotencyKeyInvalid,
    Code::RequestInProgress,
    Code::IdempotencyKeyExpired,
    Code::IdempotencyKeyReused,
    Code::KeyQuotaExceeded,
    Code::GatewayUnavailable,
    Code::Overloaded,
    Code::OutcomeUnknown,
];

const fn parameter(name: &'static str, place: In, description: &'static str, schema: fn() -> Value) -> Parameter {
    Parameter { name, place, required: matches!(place, In::Path | In::Header), description, schema }
}

const ORDER_ID: Parameter = parameter("id", In::Path, "The order's name.", || id("The order's name."));

const IDEMPOTENCY_KEY: Parameter = parameter(
    "Idempotency-Key",
    In::Header,
    "Names what the customer wants to do: a fresh UUID made when the customer taps, kept, and the same on every retry. Bare \
     or as an RFC 8941 string: \"k\" and k are the same key. Its answer is replayed for 72 hours, unless the server says otherwise. What looks like a card number, \
     a bearer token or a secret key is refused with idempotency_key_invalid, and not kept.",
    key,
);

fn key() -> Value {
    // A comma outside quotes may have made one line of two keys.
    let bare = format!(r"[!#-+\--~]{{1,{KEY_LENGTH_MAX}}}");
    let quoted = format!(r#""([!#-\[\]-~]|\\["\\]){{1,{KEY_LENGTH_MAX}}}""#);
    json!({"type": "string", "pattern": format!("^({bare}|{quoted})$"), "examples": [example::KEY]})
}

const LIMIT: Parameter = parameter(
    "limit",
    In::Query,
    "Entries of one page.",
    || json!({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}),
);

const STARTING_AFTER: Parameter =
    parameter("starting_after", In::Query, "The page behind this entry: what an earlier page called next.", || {
        id("An entry of one's own.")
    });
