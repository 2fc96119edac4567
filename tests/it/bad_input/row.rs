//! A row of the tables: a request that is wrong in one place, and what it gets.

use serde_json::Value;

use crate::support::fresh_key;

/// A route that takes a body, and a request to it that is good. The tables that fit every route are made for one of these.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) good_body: Value,
    pub(crate) good_status: u16,
    pub(crate) host: String,
    pub(crate) token: String,
}

impl Route {
    /// A good request under a fresh key.
    pub(crate) fn request(&self) -> Request {
        self.request_under(&fresh_key())
    }

    pub(crate) fn request_under(&self, key: &str) -> Request {
        Request {
            key: key.to_owned(),
            method: self.method.to_owned(),
            target: self.target.clone(),
            headers: vec![("Host".to_owned(), self.host.clone().into_bytes())],
            body: self.good_body.to_string().into_bytes(),
            framing: Framing::Length,
        }
        .with("Authorization", format!("Bearer {}", self.token))
        .with("Idempotency-Key", key)
        .with("Content-Type", "application/json")
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
    pub(crate) header: Option<(&'static str, &'static str)>,
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

    pub(crate) fn header(self, name: &'static str, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
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
