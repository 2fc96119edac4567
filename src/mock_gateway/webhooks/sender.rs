//! The sender: one task that takes events in, and a bounded number of attempts that carry them out.
//!
//! Promise: it knows a bounded number of events at once, and reads the others from the books, by what is pending, when it has
//! room. Whatever it forgets - by a kill, or because it could not keep up - it finds there again.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use reqwest::{Client, header::CONTENT_TYPE, redirect, retry};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Endpoint,
    schedule::{Job, Schedule, Sending},
    signature,
};
use crate::mock_gateway::{
    Gateway,
    clock::EventId,
    events::{Event, KeptEvent},
    faults::WebhookFaultName,
    reply::json,
};

/// Attempts under way at once.
const ATTEMPTS_MAX: usize = 64;
/// Events known at once.
const KNOWN_MAX: usize = 10_000;
/// An endpoint that takes longer did not hear.
const ANSWER: Duration = Duration::from_secs(5);
/// After so long, by the gateway's clock, an event is given up.
const GIVE_UP_MS: i64 = 3 * 86_400_000;
/// Longest that an event is held for another one to overtake it.
const HELD_MAX: Duration = Duration::from_secs(60);
/// Pause before the books are asked again after they failed.
const BOOKS_PAUSE: Duration = Duration::from_secs(1);

/// How an attempt ended.
struct Ended {
    job: Job,
    heard: bool,
}

pub(in crate::mock_gateway) struct Sender {
    gateway: Arc<Gateway>,
    http: Client,
    news: mpsc::Receiver<Arc<Event>>,
    endpoint: watch::Receiver<Option<Arc<Endpoint>>>,
    schedule: Schedule,
    attempts: JoinSet<Ended>,
    /// When to read from the books what we do not know of, if there may be any.
    catch_up_at: Option<Instant>,
}

impl Sender {
    pub(in crate::mock_gateway) fn new(
        gateway: Arc<Gateway>,
        news: mpsc::Receiver<Arc<Event>>,
    ) -> anyhow::Result<Self> {
        // An error means that a provider is installed already, which is all we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder()
            .no_proxy()
            .retry(retry::never())
            .redirect(redirect::Policy::none())
            .timeout(ANSWER)
            .build()
            .context("cannot set up the webhook sender")?;
        let endpoint = gateway.webhooks.endpoint.subscribe();
        // A predecessor may have left something.
        let catch_up_at = Some(Instant::now());
        Ok(Self { gateway, http, news, endpoint, schedule: Schedule::default(), attempts: JoinSet::new(), catch_up_at })
    }

    /// Sends until the gateway stops. What is under way then counts as not heard.
    pub(in crate::mock_gateway) async fn run(mut self) {
        let stop = self.gateway.stop.clone();
        let gateway = Arc::clone(&self.gateway);
        while !stop.is_cancelled() {
            self.catch_up().await;
            self.start_attempts();
            let room = self.schedule.len() < KNOWN_MAX / 2;
            let catch_up = self.catch_up_at.filter(|_| room && self.endpoint.borrow().is_some());
            let due = self.schedule.next_due().filter(|_| self.attempts.len() < ATTEMPTS_MAX);
            let wake = catch_up.into_iter().chain(due).min();
            tokio::select! {
                () = stop.cancelled() => {}
                Some(event) = self.news.recv() => self.hear(event).await,
                Some(ended) = self.attempts.join_next() => self.conclude(ended.ok()).await,
                Ok(()) = self.endpoint.changed() => self.start_over(),
                () = gateway.webhooks.missed.notified() => self.catch_up_at = Some(Instant::now()),
                () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {}
            }
        }
    }

    /// Another endpoint, or none, or empty books: what we know is void, and the books say what is left.
    fn start_over(&mut self) {
        self.attempts = JoinSet::new();
        self.schedule = Schedule::default();
        while self.news.try_recv().is_ok() {}
        self.catch_up_at = Some(Instant::now());
    }

    /// Reads what is pending and unknown, when that is due and there is room.
    async fn catch_up(&mut self) {
        let now = Instant::now();
        let due = self.catch_up_at.is_some_and(|at| at <= now);
        if !due || self.schedule.len() >= KNOWN_MAX / 2 || self.endpoint.borrow().is_none() {
            return;
        }
        // The known ones are among those, so at least the room that is left gets filled.
        let most = KNOWN_MAX + self.schedule.len();
        match self.gateway.books.pending_events(most).await {
            Ok(pending) => {
                self.catch_up_at = (pending.len() == most).then_some(now);
                let (unknown, full) = (pending.into_iter(), KNOWN_MAX);
                let unknown: Vec<_> = unknown.filter(|event| !self.schedule.knows(event.id)).take(full).collect();
                for event in unknown {
                    self.hear(event).await;
                }
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "what webhooks are pending cannot be read");
                self.catch_up_at = Some(now + BOOKS_PAUSE);
            }
        }
    }

    /// An event comes in, and meets its fate.
    async fn hear(&mut self, event: Arc<Event>) {
        if self.endpoint.borrow().is_none() || self.schedule.knows(event.id) {
            return;
        }
        if self.schedule.len() >= KNOWN_MAX {
            self.catch_up_at = Some(Instant::now());
            return;
        }
        let now = Instant::now();
        let job = |sending| Job { event: Arc::clone(&event), failures: 0, sending };
        let Some(fault) = self.gateway.faults.draw_for_event(&event) else {
            self.schedule.add(job(Sending::Properly), now);
            return;
        };
        match fault.name {
            WebhookFaultName::Drop => {
                self.gateway.fired_at_event(fault.name, &event);
                self.settle(&[event.id]).await;
            }
            WebhookFaultName::Delay => {
                self.gateway.fired_at_event(fault.name, &event);
                self.schedule.add(job(Sending::Properly), now + Duration::from_millis(fault.latency_ms));
            }
            // These three fire when they are felt.
            WebhookFaultName::Duplicate => drop(self.schedule.add(job(Sending::FirstOfTwo), now)),
            WebhookFaultName::BadSignature => drop(self.schedule.add(job(Sending::WronglySigned), now)),
            WebhookFaultName::Reorder => self.schedule.hold(job(Sending::Properly), now + HELD_MAX),
        }
    }

    fn start_attempts(&mut self) {
        let Some(endpoint) = self.endpoint.borrow().clone() else { return };
        let now = Instant::now();
        while self.attempts.len() < ATTEMPTS_MAX {
            let Some(job) = self.schedule.next(now) else { return };
            if job.sending == Sending::WronglySigned {
                self.gateway.fired_at_event(WebhookFaultName::BadSignature, &job.event);
            }
            // The time on the wall: an experiment that pushes the gateway's clock must not spoil its signatures.
            let at_s = self.gateway.clock.wall_ms() / 1000;
            self.attempts.spawn(attempt(self.http.clone(), Arc::clone(&endpoint), job, at_s));
        }
    }

    /// One attempt has ended, and whichever else has.
    async fn conclude(&mut self, first: Option<Ended>) {
        let mut all: Vec<Option<Ended>> = vec![first];
        while let Some(ended) = self.attempts.try_join_next() {
            all.push(ended.ok());
        }
        let mut settled = Vec::new();
        let mut delivered = 0;
        for ended in all {
            match ended {
                Some(Ended { job, heard: true }) => {
                    delivered += 1;
                    settled.extend(self.heard(job));
                }
                Some(Ended { job, heard: false }) => settled.extend(self.not_heard(job)),
                // An attempt panicked and took its job along: the books still have it.
                None => return self.start_over(),
            }
        }
        self.settle(&settled).await;
        (0..delivered).for_each(|_| self.gateway.webhooks.delivered());
    }

    /// Returns the event if nothing more is to be done for it.
    fn heard(&mut self, job: Job) -> Option<EventId> {
        let now = Instant::now();
        let (id, intent) = (job.event.id, job.event.intent());
        for overtaken in self.schedule.release(now) {
            self.gateway.fired_at_event(WebhookFaultName::Reorder, &overtaken);
        }
        let again = job.sending == Sending::FirstOfTwo;
        if again {
            self.gateway.fired_at_event(WebhookFaultName::Duplicate, &job.event);
            self.schedule.add(Job { sending: Sending::Properly, ..job }, now);
        }
        self.schedule.ended(intent, now);
        (!again).then_some(id)
    }

    fn not_heard(&mut self, job: Job) -> Option<EventId> {
        let now = Instant::now();
        let (id, intent) = (job.event.id, job.event.intent());
        self.gateway.webhooks.failed();
        let sending = if job.sending == Sending::WronglySigned { Sending::Properly } else { job.sending };
        let job = Job { failures: job.failures.saturating_add(1), sending, ..job };
        let given_up = self.gateway.clock.now_ms() - id.created_ms() >= GIVE_UP_MS;
        if given_up {
            tracing::warn!(event = %id, attempts = job.failures, "a webhook is given up");
            self.gateway.webhooks.gave_up();
        } else {
            let due = now + job.backoff();
            self.schedule.add(job, due);
        }
        self.schedule.ended(intent, now);
        given_up.then_some(id)
    }

    /// Nothing more is to be done for these, as the books must know.
    async fn settle(&mut self, ids: &[EventId]) {
        if ids.is_empty() {
            return;
        }
        if let Err(error) = self.gateway.books.settle_events(ids).await {
            // Still pending in the books, so they will be sent once more: at least once is what is promised.
            tracing::error!(error = format!("{error:#}"), "delivered webhooks cannot be marked");
            self.catch_up_at = Some(Instant::now() + BOOKS_PAUSE);
        }
        ids.iter().for_each(|id| self.schedule.forget(*id));
    }
}

async fn attempt(http: Client, endpoint: Arc<Endpoint>, job: Job, at_s: i64) -> Ended {
    let body = json(&KeptEvent { event: Arc::clone(&job.event), pending: true });
    let wrong = job.sending == Sending::WronglySigned;
    let secret = if wrong { "whsec_somebody_else" } else { &endpoint.secret };
    let send = http
        .post(endpoint.url.clone())
        .header(CONTENT_TYPE, "application/json; charset=utf-8")
        .header("Stripe-Signature", signature::header(secret, at_s, &body))
        .body(body);
    let heard = match send.send().await {
        Ok(answer) => answer.status().is_success(),
        Err(error) => {
            tracing::debug!(%error, event = %job.event.id, "a webhook did not arrive");
            false
        }
    };
    Ended { heard: heard && !wrong, job }
}
