//! `/_mock/ledger`: every capture, streamed.
//!
//! Promise: each captured intent is listed by itself, so an intent that was paid for twice shows twice; and the answer needs
//! one page of memory however long the ledger is.
//! It answers: whose money moved, how often, and under which key?

use std::{fmt::Write as _, sync::Arc};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::{
    Gateway,
    books::Capture,
    clock::IntentId,
    reply::{Cut, Reply, ReplyBody},
};

const PAGE: usize = 1_000;

pub(super) fn answer(gateway: &Arc<Gateway>, reference: Option<Box<str>>) -> Reply {
    // One page waits while the next is read.
    let (pages, body) = mpsc::channel(1);
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move {
        if let Err(error) = write(&gateway, reference.as_deref(), &pages).await {
            tracing::error!(error = format!("{error:#}"), "the ledger cannot be read");
            // The status has been sent: all that is left is not to end well.
            drop(pages.send(Err(Cut)).await);
        }
    });
    Reply { body: ReplyBody::Pages(body), ..Reply::new(StatusCode::OK, Bytes::new()) }
}

async fn write(
    gateway: &Gateway,
    reference: Option<&str>,
    pages: &mpsc::Sender<Result<Bytes, Cut>>,
) -> anyhow::Result<()> {
    let (mut after, mut count, mut amount) = (IntentId(0), 0_u64, 0_i64);
    let mut page = String::from("{\"captures\":[");
    loop {
        let captures: Vec<Capture> = gateway.books.captures(after, PAGE, reference).await?;
        for capture in &captures {
            if count > 0 {
                page.push(',');
            }
            page.push_str(&serde_json::to_string(capture)?);
            count += 1;
            amount += capture.amount;
            after = capture.payment_intent;
        }
        let last = captures.len() < PAGE;
        if last {
            write!(page, "],\"count\":{count},\"amount\":{amount}}}")?;
        }
        if pages.send(Ok(Bytes::from(std::mem::take(&mut page)))).await.is_err() || last {
            return Ok(());
        }
    }
}
