//! The API's contract as data: what can be asked, what is answered, and every way in which it can fail.
//!
//! One table, [`ROUTES`]. It feeds `/openapi.json` and `/docs`, and tests hold it against the router, against real answers and
//! against generated requests: nothing is undocumented, and nothing is documented that is not there.

pub mod example;
mod headers;
mod routes;
pub mod schema;

use serde_json::Value;

pub use self::{
    headers::{Header, Presence, headers_of},
    routes::ROUTES,
};
use crate::wire::problem::Code;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    Get,
    Post,
    Put,
}

impl Method {
    /// As HTTP spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// Whose word is taken, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    Nobody,
    /// A bearer token that speaks for a customer.
    Customer,
    /// A bearer token that speaks for the house.
    Operator,
    /// The gateway's signature over the raw body.
    Signature,
}

/// The chapters of the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    Orders,
    Charges,
    Keys,
    Customers,
    Webhooks,
    House,
}

impl Tag {
    pub const ALL: [Self; 6] = [Self::Orders, Self::Charges, Self::Keys, Self::Customers, Self::Webhooks, Self::House];

    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Charges => "charges",
            Self::Keys => "idempotency keys",
            Self::Customers => "customers",
            Self::Webhooks => "webhooks",
            Self::House => "the house",
        }
    }

    pub fn sentence(self) -> &'static str {
        match self {
            Self::Orders => "Buying, looking at what was bought, and giving money back.",
            Self::Charges => "Money without an order.",
            Self::Keys => "What became of a request whose answer was lost.",
            Self::Customers => "What a customer says of itself.",
            Self::Webhooks => "What the payment gateway tells by itself.",
            Self::House => "For whoever runs it: health, figures, this page.",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    Path,
    Query,
    Header,
}

#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub place: In,
    pub required: bool,
    pub description: &'static str,
    pub schema: fn() -> Value,
}

/// What a body looks like: a named schema and one example that is valid by it.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    Json {
        schema: &'static str,
        example: fn() -> Value,
    },
    /// Not JSON: its media type, and one sentence.
    Text {
        media_type: &'static str,
        sentence: &'static str,
    },
}

/// An answer that is not a problem.
#[derive(Debug, Clone, Copy)]
pub struct Success {
    pub status: u16,
    pub description: &'static str,
    pub headers: &'static [(Header, Presence)],
    pub body: Body,
    /// What can be asked next: the operation, its parameter, and where in this answer its value is.
    pub links: &'static [(&'static str, &'static str, &'static str)],
}

#[derive(Debug, Clone, Copy)]
pub struct Route {
    pub method: Method,
    /// As the router and OpenAPI both spell it.
    pub path: &'static str,
    /// OpenAPI's `operationId`: the name of a generated client's function.
    pub id: &'static str,
    pub tag: Tag,
    pub summary: &'static str,
    pub description: &'static str,
    pub auth: Auth,
    pub parameters: &'static [Parameter],
    pub request: Option<Body>,
    pub success: Success,
    problems: &'static [&'static [Code]],
}

impl Route {
    /// Every problem that this route can answer with, in the order of the catalogue.
    pub fn problems(&self) -> Vec<Code> {
        let said = |code: &Code| self.problems.iter().any(|group| group.contains(code));
        Code::ALL.iter().copied().filter(said).collect()
    }

    /// Whether it takes an `Idempotency-Key`.
    pub fn is_keyed(&self) -> bool {
        self.problems().contains(&Code::IdempotencyKeyMissing)
    }
}

/// What any path can answer, also one that is no route: no operation can be blamed for it.
pub const ANY_PATH: &[Code] = &[Code::NotFound, Code::MethodNotAllowed, Code::Internal];

#[cfg(test)]
mod tests;
