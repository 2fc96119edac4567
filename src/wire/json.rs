//! JSON read strictly: what a payment may be made from. One meaning per document, and every fault with its place.
//!
//! A parser that takes the last of two `total`s, where a proxy or a log took the first, lets two parties read two amounts
//! in one request. So duplicate fields are refused, as are invalid UTF-8, NUL, and nesting that only an attack needs.

use std::{fmt, marker::PhantomData};

use serde::Serialize;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer,
};
use serde_json::{Map, Value};

use super::card_number;

/// Deepest nesting of arrays and objects. The deepest body of the contract has three levels.
pub const DEPTH_MAX: usize = 16;

/// Why bytes are no JSON document for us. The text is meant for whoever sent them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// Parses one document. Numbers keep what they are: `4299.0` stays a float, and is refused where an integer is wanted.
pub fn parse_strict(bytes: &[u8]) -> Result<Value, Malformed> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Malformed(format!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict { depth_left: DEPTH_MAX }.deserialize(&mut deserializer).map_err(malformed)?;
    deserializer.end().map_err(malformed)?;
    Ok(value)
}

fn malformed(error: serde_json::Error) -> Malformed {
    Malformed(error.to_string())
}

#[derive(Clone, Copy)]
struct Strict {
    depth_left: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left {
            0 => Err(E::custom(format_args!("nested deeper than {DEPTH_MAX} levels"))),
            left => Ok(Self { depth_left: left - 1 }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        without_nul(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            without_nul(&name)?;
            if object.contains_key(&name) {
                // Without its name, which may be anything: the place says which.
                return Err(A::Error::custom("a field appears twice"));
            }
            object.insert(name, fields.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

/// PostgreSQL's text cannot hold it, and nobody types it.
fn without_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a string contains NUL")) } else { Ok(()) }
}

/// Reads what must be an object. Left alone, serde also reads the fields of a struct off a list, in their order: two documents
/// of one meaning, and the other one is nobody's dialect.
pub fn object<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    serde_json::from_slice(bytes).map(|Object(object)| object)
}

/// A part of a document that must be an object, as [`object`] is for the whole.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnObject(PhantomData))
    }
}

struct AnObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for AnObject<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// A body as its operation knows it: read strictly from JSON, and written in the one canonical form that is fingerprinted.
pub trait TypedBody: Serialize + Sized {
    /// Takes the fields one by one and notes what is wrong with them; `None` if one that is needed is.
    fn take(body: Value, errors: &mut Vec<FieldError>) -> Option<Self>;

    /// Reads a body, or says everything that is wrong with it.
    fn read(body: Value) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        match Self::take(body, &mut errors) {
            Some(body) if errors.is_empty() => Ok(body),
            _ => Err(errors),
        }
    }

    /// Fields in their declared order, no white space, absent fields left out.
    fn canonical(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// Whether a card number stands anywhere in a document, the names of its fields included.
pub fn holds_card_number(document: &Value) -> bool {
    match document {
        Value::String(text) => card_number::holds_card_number(text),
        Value::Array(items) => items.iter().any(holds_card_number),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| card_number::holds_card_number(name) || holds_card_number(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// One thing wrong with one field: a JSON pointer (RFC 6901) and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    pub pointer: String,
    pub detail: String,
}

/// Reads the fields of an object one by one and gathers everything that is wrong with them, so that a client learns of all
/// its mistakes at once.
#[derive(Debug)]
pub struct Fields {
    pointer: String,
    object: Map<String, Value>,
}

impl Fields {
    /// `None`, with the error noted, when the value is no object.
    pub fn of(value: Value, pointer: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self { pointer: pointer.to_owned(), object }),
            _ => {
                errors.push(FieldError { pointer: pointer.to_owned(), detail: "must be an object".to_owned() });
                None
            }
        }
    }

    /// Takes a field. `null` and absent are the same.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.object.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field that must be there and must pass `read`; what is wrong is noted.
    pub fn require<T>(
        &mut self,
        name: &str,
        errors: &mut Vec<FieldError>,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Option<T> {
        match self.take(name) {
            None => self.refuse(name, "is required", errors),
            Some(value) => read(value).or_else(|detail| self.refuse(name, &detail, errors).ok_or(())).ok(),
        }
    }

    /// Takes a field that may be absent; the outer `None` means that it was there and wrong.
    pub fn allow<T>(
        &mut self,
        name: &str,
        errors: &mut Vec<FieldError>,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Option<Option<T>> {
        match self.take(name) {
            None => Some(None),
            Some(value) => match read(value) {
                Ok(value) => Some(Some(value)),
                Err(detail) => self.refuse(name, &detail, errors),
            },
        }
    }

    /// Whatever is left over is unknown. A misspelt `client_refrence` that is ignored is a surprise later.
    pub fn finish(self, errors: &mut Vec<FieldError>) {
        for name in self.object.keys() {
            errors.push(FieldError { pointer: self.at(name), detail: "is not a field of this request".to_owned() });
        }
    }

    pub fn at(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"))
    }

    fn refuse<T>(&self, name: &str, detail: &str, errors: &mut Vec<FieldError>) -> Option<T> {
        errors.push(FieldError { pointer: self.at(name), detail: detail.to_owned() });
        None
    }
}

/// A whole number from `min` to `max`. `1.0` and `1e0` are not whole numbers here: money is never a float.
pub fn integer(value: &Value, min: i64, max: i64) -> Result<i64, String> {
    match value.as_i64() {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a whole number from {min} to {max}")),
    }
}

/// A string of `min` to `max` characters, each allowed by `allowed`.
pub fn text(value: &Value, max: usize, what: &str, allowed: impl Fn(char) -> bool) -> Result<String, String> {
    match value.as_str() {
        Some(text) if (1..=max).contains(&text.chars().count()) && text.chars().all(allowed) => Ok(text.to_owned()),
        _ => Err(format!("must be a string of 1 to {max} {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_two_meanings_or_none_is_malformed() {
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1));
        let deepest = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        for bytes in [
            &b""[..],
            b"{",
            b"{} {}",
            b"nonsense",
            br#"{"a":1,"a":1}"#,
            br#"{"a":{"b":1,"b":2}}"#,
            br#"{"a":1,"\u0061":2}"#,
            br#"{"a":"\u0000"}"#,
            br#"{"\u0000":1}"#,
            br#"{"a":NaN}"#,
            br#"{"a":01}"#,
            br#"{"a":1e999}"#,
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\"\xed\xa0\x80\"}",
            br#"{"a":"\ud800"}"#,
            deep.as_bytes(),
        ] {
            assert!(parse_strict(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(parse_strict(deepest.as_bytes()).is_ok());
    }

    #[test]
    fn an_object_is_not_read_off_a_list() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Named {
            id: u8,
        }
        assert_eq!(object::<Named>(br#"{"id":1,"more":[]}"#).unwrap(), Named { id: 1 });
        for text in ["[1]", "[[1]]", "1", "null", r#"{"id":1,"id":1}"#, r#"{"id":1} x"#, "{}"] {
            assert!(object::<Named>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_card_number_is_found_wherever_it_stands() {
        let holds = |text: &str| holds_card_number(&parse_strict(text.as_bytes()).unwrap());
        assert!(holds(r#""4242424242424242""#));
        assert!(holds(r#"{"a":[1,{"b":"4242 4242 4242 4242"}]}"#));
        assert!(holds(r#"{"4242424242424242":1}"#));
        assert!(holds(r#"{"a":"\u0034242424242424242"}"#), "escaped is the same string");
        assert!(!holds(r#"{"a":["4242","4242","4242","4242"],"b":1764543990123}"#));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_words_of_the_sender() {
        let said = parse_strict(br#"{"secret":1,"secret":2}"#).unwrap_err().to_string();
        assert!(said.starts_with("a field appears twice at line 1 column") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn a_number_keeps_what_it_is() {
        let integer = |text: &str| integer(&parse_strict(text.as_bytes()).unwrap(), 1, 100);
        assert_eq!(integer("100"), Ok(100));
        for text in ["0", "101", "-1", "-0", "1.0", "1e1", "\"1\"", "true", "null", "[1]", "18446744073709551616"] {
            assert!(integer(text).is_err(), "{text}");
        }
    }
}
