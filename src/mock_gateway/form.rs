//! Request bodies and queries, as the dialect writes them: `metadata[order_id]=7&payment_method_types[0]=card`.
//!
//! Promise: `+` and `%20` are both a space, order means nothing, no name counts twice, and a parameter this gateway does not
//! know is refused rather than ignored, because ignoring it would change what the client asked for.

use std::borrow::Cow;

use super::{
    object::{Currency, Metadata},
    reply::Refusal,
};

/// Most pairs in one request: the dialect's 50 notes and every other parameter fit in.
const PAIRS_MAX: usize = 100;
const METADATA_PAIRS_MAX: usize = 50;
const METADATA_NAME_LENGTH_MAX: usize = 40;
const METADATA_VALUE_LENGTH_MAX: usize = 500;
const TEXT_LENGTH_MAX: usize = 1000;
pub(super) const AMOUNT_MAX: i64 = 99_999_999;

/// What official clients commonly send and this gateway accepts without effect. (A GET of intents does expand their latest
/// charge.)
const ACCEPTED: [&str; 10] = [
    "automatic_payment_methods",
    "customer",
    "expand",
    "off_session",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "statement_descriptor",
    "statement_descriptor_suffix",
    "use_stripe_sdk",
];

#[derive(Debug)]
pub(super) struct Form<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Form<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Refusal> {
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::with_capacity(8);
        for (name, value) in form_urlencoded::parse(text) {
            if pairs.len() == PAIRS_MAX {
                return Err(Refusal::invalid(format!("A request may have at most {PAIRS_MAX} parameters.")));
            }
            // `a[]=1&a[]=2` is a list; any other name twice is two requests in one.
            if !name.ends_with("[]") && pairs.iter().any(|(other, _)| *other == name) {
                return Err(Refusal::parameter("parameter_invalid", &name, format!("Received {name} twice.")));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Is this field asked for as a whole, as `expand[]=field` or `expand[0]=field`?
    pub(super) fn expands(&self, field: &str) -> bool {
        self.pairs().any(|(name, value)| name.starts_with("expand[") && value == field)
    }

    /// Refuses every name that is neither among `known` nor accepted without effect.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        for (name, _) in self.pairs() {
            let top = name.split_once('[').map_or(name, |(top, _)| top);
            let known = known.contains(&top) && (top == name || top == "metadata" || top == "created");
            if !known && !ACCEPTED.contains(&top) {
                return Err(Refusal::parameter(
                    "parameter_unknown",
                    name,
                    format!("Received unknown parameter: {name}"),
                ));
            }
        }
        Ok(())
    }

    pub(super) fn metadata(&self) -> Result<Metadata, Refusal> {
        let mut notes = Vec::new();
        for (name, value) in self.pairs() {
            let Some(note) = name.strip_prefix("metadata") else { continue };
            let note = note.strip_prefix('[').and_then(|note| note.strip_suffix(']')).filter(|note| !note.is_empty());
            let Some(note) = note else {
                return Err(Refusal::parameter(
                    "parameter_invalid",
                    name,
                    "Metadata is given as metadata[name]=value.",
                ));
            };
            if note.chars().count() > METADATA_NAME_LENGTH_MAX || value.chars().count() > METADATA_VALUE_LENGTH_MAX {
                let limits = "Metadata names have at most 40 characters and values at most 500.";
                return Err(Refusal::parameter("parameter_invalid", name, limits));
            }
            // PostgreSQL cannot keep it, and no client means it.
            if note.contains('\0') || value.contains('\0') {
                return Err(Refusal::parameter("parameter_invalid", name, "Metadata cannot hold a NUL character."));
            }
            if !value.is_empty() {
                notes.push((note.into(), value.into()));
            }
        }
        if notes.len() > METADATA_PAIRS_MAX {
            return Err(Refusal::parameter("parameter_invalid", "metadata", "Metadata holds at most 50 names."));
        }
        Ok(Metadata::new(notes))
    }

    pub(super) fn amount(&self) -> Result<i64, Refusal> {
        let text = self.required("amount")?;
        let amount: i64 = text.parse().map_err(|_| {
            Refusal::parameter("parameter_invalid_integer", "amount", format!("Invalid integer: {text}"))
        })?;
        match amount {
            ..=0 => Err(Refusal::parameter(
                "parameter_invalid_integer",
                "amount",
                "This value must be greater than or equal to 1.",
            )),
            1..=AMOUNT_MAX => Ok(amount),
            _ => Err(Refusal::parameter("amount_too_large", "amount", "Amount must be no more than 99999999.")),
        }
    }

    pub(super) fn currency(&self) -> Result<Currency, Refusal> {
        let text = self.required("currency")?;
        Currency::parse(text)
            .ok_or_else(|| Refusal::parameter("parameter_invalid", "currency", format!("Invalid currency: {text}")))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => Err(Refusal::parameter("parameter_invalid", name, format!("Invalid boolean: {text}"))),
        }
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let invalid = |text| Refusal::parameter("parameter_invalid_integer", name, format!("Invalid integer: {text}"));
        self.get(name).map(|text| text.parse().map_err(|_| invalid(text))).transpose()
    }

    /// Free text. The dialect takes an empty value for an absent one.
    pub(super) fn text(&self, name: &str) -> Result<Option<Box<str>>, Refusal> {
        match self.get(name) {
            Some(text) if text.contains('\0') || text.chars().count() > TEXT_LENGTH_MAX => {
                let limits = format!("{name} has at most {TEXT_LENGTH_MAX} characters and no NUL.");
                Err(Refusal::parameter("parameter_invalid", name, limits))
            }
            text => Ok(text.filter(|text| !text.is_empty()).map(Into::into)),
        }
    }

    fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| Refusal::parameter("parameter_missing", name, format!("Missing required param: {name}.")))
    }
}
