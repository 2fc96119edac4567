//! A valid mail, and the key it came under.
//!
//! Promise: strict. Unknown, missing and repeated fields are refused, and so is whatever could end a header line early.
//! It answers: what may be sent, and when are two requests the same?

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

use super::reply::Refusal;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The dialect's limit on a key, in characters.
const KEY_LENGTH_MAX: usize = 256;
/// The limits of an address (RFC 5321) and of a header line (RFC 5322).
const ADDRESS_LENGTH_MAX: usize = 320;
const SUBJECT_LENGTH_MAX: usize = 998;
const TAGS_MAX: usize = 50;
const TAG_LENGTH_MAX: usize = 256;

/// The sender's notes on a mail by name, as a JSON object: kept far more often than read.
pub(super) type Tags = Box<RawValue>;

/// One mail to one recipient, as its sender asked for it.
#[derive(Debug)]
pub(super) struct Email {
    pub(super) from: Box<str>,
    pub(super) to: Box<str>,
    pub(super) subject: Box<str>,
    pub(super) text: Box<str>,
    pub(super) tags: Tags,
    pub(super) keyed: Option<Keyed>,
}

/// A key, and what must match when it comes again.
#[derive(Debug, Clone)]
pub(super) struct Keyed {
    pub(super) key: Arc<str>,
    /// Over the bytes as they came: a sender that builds the same mail twice must build the same bytes.
    pub(super) fingerprint: [u8; 32],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    from: Box<str>,
    to: Box<str>,
    subject: Box<str>,
    text: Box<str>,
    #[serde(default)]
    tags: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tag {
    name: Box<str>,
    value: Box<str>,
}

impl Email {
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let keyed = key(headers)?.map(|key| Keyed { key, fingerprint: Sha256::digest(body).into() });
        let asked: Asked = object(body, "the body")?;
        address("from", &asked.from)?;
        address("to", &asked.to)?;
        line("subject", &asked.subject, SUBJECT_LENGTH_MAX)?;
        if asked.text.is_empty() || asked.text.contains('\0') {
            return Err(Refusal::invalid("text must not be empty, and must not contain NUL."));
        }
        if asked.tags.len() > TAGS_MAX {
            return Err(Refusal::invalid(format!("A mail has at most {TAGS_MAX} tags.")));
        }
        let mut tags = BTreeMap::<Box<str>, Box<str>>::new();
        for tag in &asked.tags {
            let Tag { name, value } = object(tag.get().as_bytes(), "a tag")?;
            tag_text(&name)?;
            tag_text(&value)?;
            if let Some(_twice) = tags.insert(name, value) {
                return Err(Refusal::invalid("Two tags have the same name."));
            }
        }
        // Only a map whose keys are not strings fails.
        let tags = to_raw_value(&tags).map_err(|_| Refusal::internal())?;
        Ok(Self { from: asked.from, to: asked.to, subject: asked.subject, text: asked.text, tags, keyed })
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.keyed.as_ref().map(|keyed| &*keyed.key)
    }
}

fn key(headers: &HeaderMap) -> Result<Option<Arc<str>>, Refusal> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let key = first.to_str().unwrap_or_default();
    let good = (1..=KEY_LENGTH_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if !good || given.next().is_some() {
        let message = format!("Idempotency-Key must be one header of 1 to {KEY_LENGTH_MAX} visible ASCII characters.");
        return Err(Refusal::invalid(message));
    }
    Ok(Some(key.into()))
}

/// A struct would also be read from an array of its fields in order; here it is an object or nothing.
fn object<T: DeserializeOwned>(json: &[u8], what: &str) -> Result<T, Refusal> {
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err(Refusal::invalid(format!("What {what} must be is a JSON object.")));
    }
    serde_json::from_slice(json).map_err(|error| Refusal::invalid(format!("Wrong in {what}: {error}.")))
}

/// `name@host`, or `Some Name <name@host>`.
fn address(field: &str, text: &str) -> Result<(), Refusal> {
    line(field, text, ADDRESS_LENGTH_MAX)?;
    let bare = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((_name, bare)) => bare,
        None => text,
    };
    let good = bare.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && !host.is_empty() && !host.contains('@') && !bare.contains([' ', '<', '>', ','])
    });
    if good { Ok(()) } else { Err(Refusal::invalid(format!("{field} must be one mail address."))) }
}

fn line(field: &str, text: &str, max: usize) -> Result<(), Refusal> {
    if (1..=max).contains(&text.chars().count()) && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(format!("{field} must have 1 to {max} characters and no control character.")))
}

fn tag_text(text: &str) -> Result<(), Refusal> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=TAG_LENGTH_MAX).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(());
    }
    let message = format!("Names and values of tags are 1 to {TAG_LENGTH_MAX} ASCII letters, digits, _ and -.");
    Err(Refusal::invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Email, Refusal> {
        Email::read(&HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn what_is_not_exactly_one_mail_is_refused() {
        let good =
            r#"{"from":"Shop <a@b.c>","to":"d@e.f","subject":"s","text":"t","tags":[{"name":"n","value":"v-1"}]}"#;
        assert!(read(good).is_ok());
        let bent = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            good.replacen(from, to, 1)
        };
        for wrong in [
            r#"["a@b.c","d@e.f","s","t",[]]"#.to_owned(),
            String::new(),
            bent(r#""subject":"s","#, ""),
            bent(r#""subject":"s""#, r#""subject":"s","subject":"s""#),
            bent(r#""subject":"s""#, r#""subject":"s","html":"h""#),
            bent(r#""subject":"s""#, r#""subject":7"#),
            bent(r#""subject":"s""#, r#""subject":"s\nBcc: x@y.z""#),
            bent(r#""text":"t""#, r#""text":"""#),
            bent(r#""text":"t""#, r#""text":"a\u0000""#),
            bent("d@e.f", "d"),
            bent("d@e.f", "@e.f"),
            bent("d@e.f", "d@e.f,g@h.i"),
            bent(r#"[{"name":"n","value":"v-1"}]"#, r#"[["n","v-1"]]"#),
            bent(r#"{"name":"n","value":"v-1"}"#, r#"{"name":"n","value":"v 1"}"#),
            bent(r#"{"name":"n","value":"v-1"}"#, r#"{"name":"n","value":"1"},{"name":"n","value":"2"}"#),
            format!("{good}x"),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
