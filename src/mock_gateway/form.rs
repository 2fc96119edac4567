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

/// What official clients commonly send with a payment, and what would change nothing here: accepted without effect. In a
/// question nothing is: a filter that is ignored answers another question.
const ACCEPTED: [&str; 9] = [
    "automatic_payment_methods",
    "customer",
    "off_session",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "statement_descriptor",
    "statement_descriptor_suffix",
    "use_stripe_sdk",
];
/// Parameters that hold others, as `created[gte]=…` or `expand[0]=…`. Whoever knows one of them reads its inside too.
const NESTED: [&str; 4] = ["created", "expand", "metadata", "types"];

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

    /// The values of a list, as `name[]=value` or `name[0]=value`.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs().filter(move |(other, _)| top(other) == name && *other != name).map(|(_, value)| value)
    }

    /// Is this field asked for as a whole? Another one cannot be had.
    pub(super) fn expands(&self, field: &str) -> Result<bool, Refusal> {
        match self.list("expand").find(|asked| *asked != field) {
            Some(other) => {
                let message = format!("This property cannot be expanded ({other}): this gateway expands {field}.");
                Err(Refusal::parameter("parameter_invalid", "expand", message))
            }
            None => Ok(self.list("expand").next().is_some()),
        }
    }

    /// Refuses every name that is not among `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        self.refuse_unless(|name| is_known(name, known))
    }

    /// Refuses every name that is neither among `known` nor accepted without effect.
    pub(super) fn only_or_accepted(&self, known: &[&str]) -> Result<(), Refusal> {
        self.refuse_unless(|name| is_known(name, known) || ACCEPTED.contains(&top(name)))
    }

    fn refuse_unless(&self, fits: impl Fn(&str) -> bool) -> Result<(), Refusal> {
        match self.pairs().find(|(name, _)| !fits(name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Refusal::parameter("parameter_unknown", name, format!("Received unknown parameter: {name}")))
            }
        }
    }

    /// Refuses the other values of a parameter of which this gateway speaks one.
    pub(super) fn only_value(&self, name: &str, value: &str) -> Result<(), Refusal> {
        match self.get(name) {
            Some(other) if other != value => {
                let message = format!("This gateway has {name}={value} only.");
                Err(Refusal::parameter("parameter_invalid", name, message))
            }
            _ => Ok(()),
        }
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

/// `metadata` of `metadata[order_id]`.
fn top(name: &str) -> &str {
    name.split_once('[').map_or(name, |(top, _)| top)
}

fn is_known(name: &str, known: &[&str]) -> bool {
    known.contains(&top(name)) && (top(name) == name || NESTED.contains(&top(name)))
}
