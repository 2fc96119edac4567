//! The mail service over HTTP: send one mail, or ask what became of it.
//!
//! Promise: what an answer means is one of three, and never a guess. A mail that may have been sent is `Unavailable`, and is
//! sent again under the same key; only what the service said about this very mail is `Refused`.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::connection::{Answer, Connections};
use crate::{config::MailClientArgs, ids::EventId};

/// Whose name the receipts carry.
const FROM: &str = "Checkout <receipts@checkout.example>";

/// One mail to one customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The event behind it, which is the idempotency key at the mail service.
    pub key: EventId,
    pub to: String,
    pub subject: String,
    pub text: String,
    /// Notes for whoever reads the service's record, by name.
    pub tags: Vec<(&'static str, String)>,
}

/// What became of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sending {
    /// By this send or by an earlier one under the same key.
    Sent { mail_id: String },
    /// The service will not deliver this mail, however often it is sent.
    Refused { why: String },
    /// Everybody's problem, or not known: the same mail may be sent again later under the same key.
    Unavailable { why: String },
}

/// What the service's own record says about a key, however long ago it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Delivered { mail_id: String },
    NotDelivered,
    Unavailable { why: String },
}

#[derive(Debug, Clone)]
pub struct MailClient {
    connections: Connections,
}

impl MailClient {
    pub fn new(args: &MailClientArgs) -> anyhow::Result<Self> {
        Ok(Self { connections: Connections::to(&args.mail_url, &args.mail_key)? })
    }

    /// Sends the mail once and waits at most `timeout` for the whole answer.
    pub async fn send(&self, mail: &Mail, timeout: Duration) -> Sending {
        let key = mail.key.to_string();
        match self.connections.exchange(Method::POST, "/emails", Some(&key), mail.body().into(), timeout).await {
            Ok(answer) => sending(&answer),
            Err(failure) => Sending::Unavailable { why: failure.to_string() },
        }
    }

    /// Asks whether a mail was delivered under this key, without sending one.
    pub async fn find(&self, key: EventId, timeout: Duration) -> Found {
        let path = format!("/emails?idempotency_key={key}");
        match self.connections.exchange(Method::GET, &path, None, Bytes::new(), timeout).await {
            Ok(answer) => found(&answer),
            Err(failure) => Found::Unavailable { why: failure.to_string() },
        }
    }
}

impl Mail {
    /// The same bytes for the same mail, always: the service compares them.
    pub(super) fn body(&self) -> Vec<u8> {
        let body = Body {
            from: FROM,
            to: &self.to,
            subject: &self.subject,
            text: &self.text,
            tags: self.tags.iter().map(|(name, value)| Tag { name, value }).collect(),
        };
        // Only a map whose keys are not strings fails, and there is none.
        serde_json::to_vec(&body).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    from: &'a str,
    to: &'a str,
    subject: &'a str,
    text: &'a str,
    tags: Vec<Tag<'a>>,
}

#[derive(Serialize)]
struct Tag<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Deserialize)]
struct Sent {
    id: String,
}

#[derive(Deserialize)]
struct Listed {
    data: Vec<Sent>,
}

/// The service's own word for what is wrong.
#[derive(Default, Deserialize)]
struct Complaint {
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
}

fn sending(answer: &Answer) -> Sending {
    let unavailable = || Sending::Unavailable { why: said(answer) };
    match answer.status {
        StatusCode::OK => match serde_json::from_slice(&answer.body) {
            Ok(Sent { id }) => Sending::Sent { mail_id: id },
            // Sent, most likely; the next send under this key will tell its name.
            Err(_) => Sending::Unavailable { why: "the mail service answered 200 without an id".to_owned() },
        },
        // Our credentials, our address of the service, its patience or its load: nothing about this mail.
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS => unavailable(),
        // Of the two conflicts only one is final, and it says so.
        StatusCode::CONFLICT if complaint(answer).name != "invalid_idempotent_request" => unavailable(),
        status if status.is_client_error() => Sending::Refused { why: said(answer) },
        _ => unavailable(),
    }
}

fn found(answer: &Answer) -> Found {
    if answer.status != StatusCode::OK {
        return Found::Unavailable { why: said(answer) };
    }
    match serde_json::from_slice::<Listed>(&answer.body) {
        Ok(listed) => match listed.data.into_iter().next() {
            Some(Sent { id }) => Found::Delivered { mail_id: id },
            None => Found::NotDelivered,
        },
        Err(_) => Found::Unavailable { why: "the mail service's list is not readable".to_owned() },
    }
}

fn complaint(answer: &Answer) -> Complaint {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

/// One sentence for the log and for whoever asks later.
fn said(answer: &Answer) -> String {
    let Complaint { name, message } = complaint(answer);
    let why = format!("the mail service answered {} {name}: {message}", answer.status.as_u16());
    // Whatever the other side writes, ours stays a sentence, and a customer's address is nobody's to read in it.
    let words = why.split_inclusive(char::is_whitespace).map(|word| if word.contains('@') { "… " } else { word });
    words.flat_map(str::chars).filter(|letter| !letter.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests;
