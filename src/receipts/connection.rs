//! Kept connections to one HTTP service, and one request at a time on each.
//!
//! Promise: a request is written at most once. One that a dying connection returned unwritten goes over the next; whatever
//! ends after that is a failure for the caller to think about, because the other side may have acted on it.
//!
//! Receipts go out at thousands a second, and a general client costs several times what the exchange itself does. There is no
//! TLS in here: the service it speaks to stands beside us. For another one, `connect` is the place that wraps its stream.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Idle connections that are kept. As many as a worker sends at once; more of them come and go.
const IDLE_MAX: usize = 64;
/// Longest answer that is read. The service's largest is a list of a key's few mails.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// An HTTP answer, whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// No answer came. Nothing in here says whether the other side acted: that is what the key is for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the mail service did not answer in time")]
    TimedOut,
    #[error("no connection to the mail service: {0}")]
    NotConnected(std::io::Error),
    #[error("the connection to the mail service was lost: {0}")]
    Lost(hyper::Error),
    #[error("the answer of the mail service broke off or is too long")]
    AnswerCut,
    #[error("the request to the mail service cannot be written: {0}")]
    Unwritable(#[from] http::Error),
}

#[derive(Clone)]
pub(super) struct Connections(Arc<Inner>);

struct Inner {
    /// Host and port, as they are dialled.
    authority: String,
    host: HeaderValue,
    /// Path in front of every other.
    base: String,
    bearer: HeaderValue,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("authority", &self.0.authority).finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn to(url: &str, key: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL of a mail service"))?;
        anyhow::ensure!(
            uri.scheme_str() == Some("http"),
            "the mail service's URL must start with http://, and is {url:?}"
        );
        let host = uri.host().context("the mail service's URL names no host")?;
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {key}")).context("the mail service's key cannot be sent")?;
        bearer.set_sensitive(true);
        Ok(Self(Arc::new(Inner {
            authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            host: HeaderValue::from_str(uri.authority().map_or(host, |authority| authority.as_str()))?,
            base: uri.path().trim_end_matches('/').to_owned(),
            bearer,
            idle: Mutex::default(),
        })))
    }

    /// One exchange, in full, within `timeout`.
    pub(super) async fn exchange(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answer, Failure> {
        let request = self.0.request(method, path, key, body)?;
        // Given up, an exchange takes its connection along: what may still come over it belongs to nobody.
        match tokio::time::timeout(timeout, self.0.converse(request)).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure::TimedOut),
        }
    }
}

impl Inner {
    fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(HOST, &self.host)
            .header(AUTHORIZATION, &self.bearer);
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key).header(CONTENT_TYPE, "application/json");
        }
        Ok(request.body(Full::new(body))?)
    }

    async fn converse(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        loop {
            let (mut sender, kept) = match self.take() {
                Some(sender) => (sender, true),
                None => (self.connect().await?, false),
            };
            // The last answer has been read; its connection may need a turn to notice, or turn out to be over.
            if let Err(error) = sender.ready().await {
                if kept {
                    continue;
                }
                return Err(Failure::Lost(error));
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let status = response.status();
                    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
                    let body = body.map_err(|_| Failure::AnswerCut)?.to_bytes();
                    self.keep(sender);
                    return Ok(Answer { status, body });
                }
                Err(mut error) => match error.take_message() {
                    // Not a byte of it was written.
                    Some(unwritten) if kept => request = unwritten,
                    _ => return Err(Failure::Lost(error.into_error())),
                },
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = TcpStream::connect(&self.authority).await.map_err(Failure::NotConnected)?;
        // Nagle's algorithm and a delayed acknowledgement together cost 40 ms per answer.
        stream.set_nodelay(true).map_err(Failure::NotConnected)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::Lost)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the mail service ended early");
            }
        });
        Ok(sender)
    }

    /// The one used last: what is needed least grows old first.
    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }

    fn keep(&self, sender: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }
}

#[cfg(test)]
mod tests;
