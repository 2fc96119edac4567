use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::{schema::named, *};

#[test]
fn every_operation_has_a_name_and_a_place_of_its_own() {
    let ids: HashSet<_> = ROUTES.iter().map(|route| route.id).collect();
    let places: HashSet<_> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
    assert_eq!((ids.len(), places.len()), (ROUTES.len(), ROUTES.len()));
    for route in ROUTES {
        assert!(!route.summary.is_empty() && !route.summary.ends_with('.'), "{}", route.id);
        assert_eq!(
            route.auth == Auth::Customer || route.auth == Auth::Operator,
            speaks_of_credentials(route),
            "{}",
            route.id
        );
        let braces: Vec<&str> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
        let said: Vec<&str> =
            route.parameters.iter().filter(|it| it.place == In::Path).map(|parameter| parameter.name).collect();
        assert_eq!(braces, said, "{}", route.id);
        for (operation, parameter, _) in route.success.links {
            let next = ROUTES.iter().find(|route| route.id == *operation).expect("an operation");
            assert!(next.parameters.iter().any(|it| it.name == *parameter), "{} leads to {operation}", route.id);
        }
    }
}

fn speaks_of_credentials(route: &Route) -> bool {
    route.problems().contains(&Code::Unauthenticated)
}

/// What is required is known, what is shown is known, and all of it is shown at least once.
#[test]
fn examples_fit_their_schemas_and_leave_no_field_out() {
    for route in ROUTES {
        for body in route.request.iter().chain([&route.success.body]) {
            let Body::Json { schema, example } = body else { continue };
            fits(&schema_of(schema), &example(), &format!("{}: {schema}", route.id));
        }
    }
    for code in Code::ALL {
        fits(&schema_of("Problem"), &example::problem(*code), code.name());
    }
    for (name, request) in [("OrderRequest", example::order_request()), ("Order", example::order())] {
        assert_eq!(keys(&request), keys(&schema_of(name)["properties"]), "{name}");
    }
}

fn schema_of(name: &str) -> Value {
    named().into_iter().find(|(its, _)| *its == name).unwrap_or_else(|| panic!("no schema {name}")).1
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().expect("an object").keys().cloned().collect()
}

fn fits(schema: &Value, value: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        return fits(&schema_of(reference.rsplit('/').next().unwrap()), value, place);
    }
    if let Some(items) = value.as_array() {
        return items.iter().for_each(|item| fits(&schema["items"], item, place));
    }
    let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object()) else { return };
    for name in schema["required"].as_array().expect("what is required") {
        assert!(object.contains_key(name.as_str().unwrap()), "{place}: {name} is missing");
    }
    for (name, value) in object {
        let schema = properties.get(name).unwrap_or_else(|| panic!("{place}: {name} is not documented"));
        fits(schema, value, &format!("{place}/{name}"));
    }
}

/// Said once more where it matters: a program that obeys `retry` must be told when.
#[test]
fn whoever_is_to_come_back_is_told_when() {
    for code in Code::ALL.iter().filter(|code| code.retry() == crate::wire::problem::Retry::SameKey) {
        let told = headers_of(*code).iter().any(|(header, _)| *header == Header::RetryAfter);
        assert!(told || *code == Code::Unauthenticated, "{}", code.name());
    }
}
