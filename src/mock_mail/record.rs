//! `/_mock/mails`: every mail really delivered, streamed.
//!
//! Promise: one line per delivery, so a key that executed twice shows twice; and the answer needs one page of memory however
//! many mails there are.
//! It answers: who heard from us, how often, and under which key?

use std::{fmt::Write as _, sync::Arc};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::{
    Service,
    reply::{Cut, Reply, ReplyBody},
};

const PAGE: usize = 1_000;

pub(super) fn answer(service: &Arc<Service>) -> Reply {
    // One page waits while the next is read.
    let (pages, body) = mpsc::channel(1);
    let service = Arc::clone(service);
    tokio::spawn(async move {
        if let Err(error) = write(&service, &pages).await {
            tracing::error!(error = format!("{error:#}"), "the record of mails cannot be read");
            // The status has been sent: all that is left is not to end well.
            drop(pages.send(Err(Cut)).await);
        }
    });
    Reply::new(StatusCode::OK, ReplyBody::Pages(body))
}

async fn write(service: &Service, pages: &mpsc::Sender<Result<Bytes, Cut>>) -> anyhow::Result<()> {
    let (mut after, mut count) = (0, 0_u64);
    let mut page = String::from("{\"mails\":[");
    loop {
        let mails = service.books.page(after, PAGE).await?;
        for (serial, mail) in &mails {
            if count > 0 {
                page.push(',');
            }
            page.push_str(&serde_json::to_string(&mail.line())?);
            count += 1;
            after = *serial;
        }
        let last = mails.len() < PAGE;
        if last {
            write!(page, "],\"count\":{count}}}")?;
        }
        if pages.send(Ok(Bytes::from(std::mem::take(&mut page)))).await.is_err() || last {
            return Ok(());
        }
    }
}
