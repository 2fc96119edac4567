//! The pages as values, already in the words of a reader. The templates escape every one of them.

use askama::Template;
use serde_json::Value;

use super::fields::{Field, field, fields};
use crate::{
    http::contract::{Auth, Body, Header, In, Parameter, Presence, ROUTES, Route, Tag, headers_of, schema::named},
    wire::problem::{Code, Retry},
};

#[derive(Debug, Template)]
#[template(path = "docs.html")]
struct Contract {
    chapters: Vec<Chapter>,
    schemas: Vec<Schema>,
    problems: Vec<Problem>,
    headers: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Template)]
#[template(path = "problems.html")]
struct Problems {
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Chapter {
    name: &'static str,
    sentence: &'static str,
    routes: Vec<Shown>,
}

#[derive(Debug)]
struct Shown {
    id: &'static str,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    description: &'static str,
    auth: &'static str,
    parameters: Vec<(&'static str, Field)>,
    request: Option<Example>,
    status: u16,
    answered: &'static str,
    headers: Vec<String>,
    answer: Example,
    problems: Vec<Problem>,
}

/// What a body looks like: the schema's name, or the words for what is not JSON.
#[derive(Debug)]
struct Example {
    schema: Option<&'static str>,
    text: String,
}

#[derive(Debug)]
struct Schema {
    name: &'static str,
    description: String,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Problem {
    name: &'static str,
    status: u16,
    title: &'static str,
    retry: &'static str,
    advice: &'static str,
    headers: Vec<String>,
    routes: Vec<&'static Route>,
}

pub(super) fn contract() -> askama::Result<String> {
    let chapters = Tag::ALL.into_iter().map(|tag| Chapter {
        name: tag.name(),
        sentence: tag.sentence(),
        routes: ROUTES.iter().filter(|route| route.tag == tag).map(shown).collect(),
    });
    let schemas = named().into_iter().map(|(name, schema)| Schema {
        name,
        description: schema["description"].as_str().unwrap_or_default().to_owned(),
        fields: fields(&schema),
    });
    let page = Contract {
        chapters: chapters.collect(),
        schemas: schemas.collect(),
        problems: Code::ALL.iter().copied().map(problem).collect(),
        headers: Header::ALL.iter().map(|header| (header.name(), header.sentence())).collect(),
    };
    page.render()
}

pub(super) fn problems() -> askama::Result<String> {
    Problems { problems: Code::ALL.iter().copied().map(problem).collect() }.render()
}

fn shown(route: &Route) -> Shown {
    Shown {
        id: route.id,
        method: route.method.name(),
        path: route.path,
        summary: route.summary,
        description: route.description,
        auth: match route.auth {
            Auth::Nobody => "for anybody",
            Auth::Customer => "with a customer's bearer token",
            Auth::Operator => "with an operator's bearer token",
            Auth::Signature => "signed by the gateway in Stripe-Signature",
        },
        parameters: route.parameters.iter().map(parameter).collect(),
        request: route.request.map(example),
        status: route.success.status,
        answered: route.success.description,
        headers: header_names(route.success.headers),
        answer: example(route.success.body),
        problems: route.problems().into_iter().map(problem).collect(),
    }
}

fn parameter(parameter: &Parameter) -> (&'static str, Field) {
    let place = match parameter.place {
        In::Path => "path",
        In::Query => "query",
        In::Header => "header",
    };
    let told = field(parameter.name, parameter.required, &(parameter.schema)());
    (place, Field { description: parameter.description.to_owned(), ..told })
}

fn example(body: Body) -> Example {
    match body {
        Body::Json { schema, example } => Example { schema: Some(schema), text: pretty(&example()) },
        Body::Text { media_type, sentence } => Example { schema: None, text: format!("{media_type}: {sentence}") },
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

fn header_names(headers: &[(Header, Presence)]) -> Vec<String> {
    let told = |(header, presence): &(Header, Presence)| match presence {
        Presence::Always => header.name().to_owned(),
        Presence::Sometimes => format!("{} (not always)", header.name()),
    };
    headers.iter().map(told).collect()
}

fn problem(code: Code) -> Problem {
    let (retry, advice) = match code.retry() {
        Retry::SameKey => ("same_key", "again, unchanged, under the same key"),
        Retry::NewKey => ("new_key", "under a new key, and only after the customer changed something"),
        Retry::Never => ("never", "sending it again cannot help"),
    };
    Problem {
        name: code.name(),
        status: code.status(),
        title: code.title(),
        retry,
        advice,
        headers: header_names(headers_of(code)),
        routes: ROUTES.iter().filter(|route| route.problems().contains(&code)).collect(),
    }
}
