//! A JSON schema in the words of a reader. Question: what may stand in this field?

use serde_json::Value;

/// One field of an object, or one parameter.
#[derive(Debug)]
pub(super) struct Field {
    pub name: String,
    pub required: bool,
    pub kind: Kind,
    pub limits: String,
    pub pattern: String,
    pub description: String,
}

/// A type: words, and the name of the schema that they speak of.
#[derive(Debug)]
pub(super) struct Kind {
    pub words: String,
    pub schema: Option<String>,
}

/// The fields of an object, those of objects inside it with a dot. What must be there comes first.
pub(super) fn fields(object: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    add(object, "", &mut fields);
    fields
}

fn add(object: &Value, prefix: &str, fields: &mut Vec<Field>) {
    let Some(properties) = object["properties"].as_object() else { return };
    let required = |name: &str| object["required"].as_array().is_some_and(|names| names.iter().any(|its| its == name));
    let (first, then): (Vec<_>, Vec<_>) = properties.iter().partition(|(name, _)| required(name));
    for (name, schema) in in_order(object, first).into_iter().chain(then) {
        let path = format!("{prefix}{name}");
        fields.push(field(&path, required(name), schema));
        add(schema, &format!("{path}."), fields);
    }
}

/// As the list of what is required has it: that is written by a person, and the properties are not kept in order.
fn in_order<'a>(object: &Value, mut some: Vec<(&'a String, &'a Value)>) -> Vec<(&'a String, &'a Value)> {
    let place = |name: &str| object["required"].as_array().and_then(|names| names.iter().position(|its| its == name));
    some.sort_by_key(|(name, _)| place(name));
    some
}

pub(super) fn field(name: &str, required: bool, schema: &Value) -> Field {
    Field {
        name: name.to_owned(),
        required,
        kind: kind(schema),
        limits: limits(schema),
        pattern: schema["pattern"].as_str().unwrap_or_default().to_owned(),
        description: schema["description"].as_str().unwrap_or_default().to_owned(),
    }
}

fn kind(schema: &Value) -> Kind {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return Kind { words: name.to_owned(), schema: Some(name.to_owned()) };
    }
    if schema["type"] == "array" {
        let Kind { words, schema } = kind(&schema["items"]);
        return Kind { words: format!("list of {words}"), schema };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let words = match schema["format"].as_str() {
        Some("uuid") => "UUID".to_owned(),
        Some("date-time") => "time (RFC 3339)".to_owned(),
        Some("email") => "e-mail address".to_owned(),
        Some("uri-reference") => "path".to_owned(),
        _ => types.join(" or "),
    };
    Kind { words, schema: None }
}

/// What a type alone does not say.
fn limits(schema: &Value) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut said = Vec::new();
    said.extend(schema["enum"].as_array().map(|values| values.iter().map(shown).collect::<Vec<_>>().join(", ")));
    said.extend(schema.get("const").map(shown));
    for (from, to, of) in
        [("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " entries")]
    {
        match (schema.get(from), schema.get(to)) {
            (Some(from), Some(to)) => said.push(format!("{from} to {to}{of}")),
            (Some(from), None) => said.push(format!("{from} or more{of}")),
            (None, Some(to)) => said.push(format!("at most {to}{of}")),
            (None, None) => {}
        }
    }
    said.extend(schema.get("default").map(|value| format!("{} if it is not said", shown(value))));
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_told_in_words_and_in_the_order_of_what_is_required() {
        let object = json!({
            "required": ["z", "b"],
            "properties": {
                "a": {"type": ["string", "null"], "maxLength": 9},
                "b": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"$ref": "#/components/schemas/Item"}},
                "z": {"type": "object", "required": [], "properties": {"inner": {"type": "integer", "minimum": 1}}},
            }
        });
        let told: Vec<_> = fields(&object)
            .into_iter()
            .map(|field| format!("{} {} [{}] {}", field.name, field.kind.words, field.limits, field.required))
            .collect();
        assert_eq!(
            told,
            [
                "z object [] true",
                "z.inner integer [1 or more] false",
                "b list of Item [1 to 50 entries] true",
                "a string or null [at most 9 characters] false"
            ]
        );
    }
}
