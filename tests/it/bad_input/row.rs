//! A row of the tables: a request that is wrong in one place, and what it gets.

use std::time::{SystemTime, UNIX_EPOCH};

use checkout::http::contract::{self, Auth, ROUTES};
use serde_json::Value;

use crate::support::{CUSTOMER, Shop, WEBHOOK_SECRET, fresh_key, sign};

/// Where the gateway's signature stands.
pub(crate) const SIGNATURE: &str = "Stripe-Signature";

/// A route, and a request to it that is good. The tables that fit every route of a kind are made for one of these.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) declared: &'static contract::Route,
    pub(crate) target: String,
    /// What it takes, if it takes a body.
    takes: Option<Value>,
    pub(crate) host: String,
    pub(crate) token: String,
}

impl Route {
    /// The route of this name in the contract.
    pub(crate) fn of(shop: &Shop, id: &str, target: String, takes: Option<Value>) -> Self {
        let declared = ROUTES.iter().find(|route| route.id == id).expect("a route");
        assert_eq!(declared.request.is_some(), takes.is_some(), "{id}");
        let token = if declared.auth == Auth::Operator { shop.operator_token() } else { shop.token(CUSTOMER) };
        Self { declared, target, takes, host: shop.api_url.trim_start_matches("http://").to_owned(), token }
    }

    pub(crate) fn id(&self) -> &'static str {
        self.declared.id
    }

    pub(crate) fn method(&self) -> &'static str {
        self.declared.method.name()
    }

    pub(crate) fn is_signed(&self) -> bool {
        self.declared.auth == Auth::Signature
    }

    pub(crate) fn good_status(&self) -> u16 {
        self.declared.success.status
    }

    /// What it takes; an event has a name of its own every time.
    pub(crate) fn good_body(&self) -> Value {
        let mut body = self.takes.clone().expect("a route that takes a body");
        if self.is_signed() {
            body["id"] = format!("evt_{}", fresh_key()).into();
        }
        body
    }

    /// What is answered to a body that is another one than the client meant to send.
    pub(crate) fn not_as_meant(&self) -> &'static str {
        if self.is_signed() { "webhook_signature_invalid" } else { "malformed_json" }
    }

    /// A good request under a fresh key.
    pub(crate) fn request(&self) -> Request {
        self.request_under(&fresh_key())
    }

    pub(crate) fn request_under(&self, key: &str) -> Request {
        let mut request = Request {
            key: key.to_owned(),
            method: self.method().to_owned(),
            target: self.target.clone(),
            headers: vec![("Host".to_owned(), self.host.clone().into_bytes())],
            body: Vec::new(),
            framing: Framing::AsTold,
            signed: self.is_signed(),
        };
        if !self.is_signed() {
            request = request.with("Authorization", format!("Bearer {}", self.token));
        }
        if self.declared.is_keyed() {
            request = request.with("Idempotency-Key", key);
        }
        if self.takes.is_some() {
            let body = self.good_body().to_string();
            request = request.with("Content-Type", "application/json").framing(Framing::Length).body(body);
        }
        request
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    /// As the headers say, whatever that is.
    AsTold,
}

/// A request before it is bytes.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The key it was made with, whatever became of its header.
    key: String,
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    framing: Framing,
    /// Whatever the body is in the end, the gateway signs it.
    signed: bool,
}

impl Request {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    pub(crate) fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// One more header line.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// This header line in the place of those of its name.
    pub(crate) fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).with(name, value)
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub(crate) fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// The body.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn unsigned(mut self) -> Self {
        self.signed = false;
        self
    }

    /// Header lines as they are sent.
    pub(crate) fn lines(&self) -> usize {
        self.headers.len() + usize::from(self.signed) + usize::from(self.framing != Framing::AsTold)
    }

    /// Sets a field of the body, named by a JSON pointer, to exactly this JSON text.
    pub(crate) fn field(self, pointer: &str, json: &str) -> Self {
        const HERE: &str = "\u{1}here";
        let mut body: Value = serde_json::from_slice(&self.body).expect("a good body");
        let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
        match body.pointer_mut(parent).expect("its parent") {
            Value::Array(items) => items[name.parse::<usize>().expect("a place")] = HERE.into(),
            object => object[name.replace("~1", "/").replace("~0", "~")] = HERE.into(),
        }
        let text = body.to_string().replace(&Value::from(HERE).to_string(), json);
        self.body(text)
    }

    /// Takes a field away.
    pub(crate) fn no_field(self, name: &str) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).expect("a good body");
        body.as_object_mut().expect("an object").remove(name).expect("the field");
        self.body(body.to_string())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        if self.signed {
            bytes.extend(format!("{SIGNATURE}: {}\r\n", signature(WEBHOOK_SECRET, 0, &self.body)).bytes());
        }
        match self.framing {
            Framing::Length => bytes.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).bytes()),
            Framing::Chunked => bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n"),
            Framing::AsTold => bytes.extend(b"\r\n"),
        }
        if self.framing == Framing::Chunked {
            for chunk in self.body.chunks(8 * 1024) {
                bytes.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            bytes.extend(&self.body);
        }
        bytes
    }

    /// This request gets this answer.
    pub(crate) fn gets(self, name: impl Into<String>, status: u16, code: &'static str) -> Row {
        Row { key: self.key.clone(), ..Row::of(name, self.bytes(), status, code) }
    }
}

/// The gateway's signature of a body, made so many seconds from now.
pub(crate) fn signature(secret: &str, from_now_s: i64, body: &[u8]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time since 1970").as_secs();
    sign(secret, i64::try_from(now).expect("seconds") + from_now_s, body)
}

/// What must be true of the connection afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Whatever,
    Closed,
    Open,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Afterwards a good request under it must be the first one.
    pub(crate) key: String,
    /// 0: the connection ends without an answer.
    pub(crate) status: u16,
    /// Empty: refused before anything of ours saw it, so without a problem.
    pub(crate) code: &'static str,
    /// A header that must be there, and its value.
    pub(crate) header: Option<(&'static str, String)>,
    /// Where the first invalid field is.
    pub(crate) pointer: Option<String>,
    /// Words of the request that nobody may find anywhere afterwards.
    pub(crate) secret: Option<&'static str>,
    pub(crate) after: After,
    /// The client says that it has said everything.
    pub(crate) finish: bool,
}

impl Row {
    pub(crate) fn of(name: impl Into<String>, bytes: Vec<u8>, status: u16, code: &'static str) -> Self {
        Self {
            name: name.into(),
            bytes,
            key: fresh_key(),
            status,
            code,
            header: None,
            pointer: None,
            secret: None,
            after: After::Whatever,
            finish: false,
        }
    }

    pub(crate) fn at(self, pointer: impl Into<String>) -> Self {
        Self { pointer: Some(pointer.into()), ..self }
    }

    pub(crate) fn header(self, name: &'static str, value: impl Into<String>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    pub(crate) fn secret(self, words: &'static str) -> Self {
        Self { secret: Some(words), ..self }
    }

    pub(crate) fn closed(self) -> Self {
        Self { after: After::Closed, ..self }
    }

    pub(crate) fn open(self) -> Self {
        Self { after: After::Open, ..self }
    }

    pub(crate) fn finished(self) -> Self {
        Self { finish: true, ..self }
    }
}
