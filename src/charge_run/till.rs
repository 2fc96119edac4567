//! One line at the api. Question: charged now, charged before, declined, rejected, or unknown?

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Api, line::Line};
use crate::{
    credential::{Credentials, Subject},
    ids::CustomerId,
    money::Currency,
    phone::{Answer, Intent, KeyPolicy, KeyState, Outcome, Patience, Phone, Refusal, Told, heard},
    wire::problem::Retry,
};

const PATH: &str = "/v1/charges";
const OPERATION: &str = "charges.create";
/// Longer than the longest patience.
const TOKEN_TTL: Duration = Duration::from_secs(2 * 3600);

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) kind: Kind,
    pub(super) charge_id: Option<String>,
    pub(super) gateway_id: Option<String>,
    pub(super) attempts: usize,
    /// For a person: why, where that is a question.
    pub(super) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    ChargedNow,
    /// By an earlier run.
    ChargedBefore,
    Declined,
    /// By the file's own faults, or by the api for good.
    Rejected,
    Unknown,
    Repeated,
    NotSent,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::ChargedNow,
        Self::ChargedBefore,
        Self::Declined,
        Self::Rejected,
        Self::Unknown,
        Self::Repeated,
        Self::NotSent,
    ];

    /// As in the results file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ChargedNow => "charged_now",
            Self::ChargedBefore => "charged_before",
            Self::Declined => "declined",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Repeated => "repeated",
            Self::NotSent => "not_sent",
        }
    }
}

impl End {
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// Of a line that was never sent.
    pub(super) fn unsent(kind: Kind, detail: String) -> Self {
        Self::without_charge(kind, 0, detail)
    }

    fn without_charge(kind: Kind, attempts: usize, detail: String) -> Self {
        Self { kind, charge_id: None, gateway_id: None, attempts, detail }
    }
}

#[derive(Serialize)]
struct ChargeBody<'a> {
    amount: i64,
    currency: Currency,
    payment_method: &'a str,
    client_reference: String,
}

/// What a 201 tells, as far as it matters here.
#[derive(Deserialize)]
struct Charge {
    id: String,
    status: String,
    amount: i64,
    currency: String,
    gateway_id: String,
}

/// Speaks for every customer of the file.
#[derive(Debug)]
pub(super) struct Till {
    phone: Phone,
    api_url: String,
    credentials: Credentials,
    stop: CancellationToken,
}

impl Till {
    pub(super) fn new(api: &Api, patience_s: u64, stop: CancellationToken) -> anyhow::Result<Self> {
        // Nobody looks at a screen: as many attempts as fit, and where a customer's rate is limited, that may be many.
        let patience = Patience { attempts_max: u32::MAX, horizon: Duration::from_secs(patience_s), ..Patience::PHONE };
        Ok(Self {
            phone: Phone::new(&api.url, patience)?,
            api_url: api.url.clone(),
            credentials: Credentials::new(&api.secret)?,
            stop,
        })
    }

    /// One question before the first charge: is there an api, and does it believe our tokens?
    pub(super) async fn ask_whether_open(&self, line: &Line) -> anyhow::Result<()> {
        match self.phone.ask(OPERATION, &line.key(), &self.bearer(line.what.customer)?).await {
            KeyState::NotTold { why } => {
                let hint = if why.contains("unauthenticated") { ": is this its secret?" } else { "" };
                anyhow::bail!("the api at {} says {why}{hint}", self.api_url)
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn charge(&self, line: &Line) -> End {
        match self.try_charge(line).await {
            Ok(end) => end,
            // Before anything was sent: a token that cannot be signed.
            Err(error) => End::without_charge(Kind::Unknown, 0, format!("{error:#}")),
        }
    }

    async fn try_charge(&self, line: &Line) -> anyhow::Result<End> {
        let bearer = self.bearer(line.what.customer)?;
        let intent = Intent { path: PATH.to_owned(), bearer, body: body(line)? };
        let told = self.phone.send(&intent, &KeyPolicy::Kept(line.key()), &self.stop).await;
        let end = end(line, &told);
        if !end.is_unknown() || self.stop.is_cancelled() {
            return Ok(end);
        }
        // Perhaps only its answers are lost.
        let state = self.phone.ask(OPERATION, &line.key(), &intent.bearer).await;
        Ok(after_asking(line, &told, end, state))
    }

    fn bearer(&self, customer: CustomerId) -> anyhow::Result<String> {
        self.credentials.mint(Subject::Customer(customer), TOKEN_TTL)
    }
}

/// The same bytes for the same line, always.
fn body(line: &Line) -> anyhow::Result<Bytes> {
    let what = &line.what;
    let body = ChargeBody {
        amount: line.amount.amount_minor(),
        currency: line.amount.currency(),
        payment_method: &line.payment_method,
        // For people who look a charge up. The identity is the key.
        client_reference: format!("{}/{}/{}", what.customer, what.invoice_line, what.billing_period),
    };
    Ok(serde_json::to_vec(&body).context("cannot write a charge as JSON")?.into())
}

fn end(line: &Line, told: &Told) -> End {
    let attempts = told.history.len();
    match &told.outcome {
        Outcome::Ok(answer) => charged(line, answer, told),
        Outcome::Refused { refusal, problem, answer } => refused(*refusal, problem, answer, attempts),
        Outcome::Unknown(_) => {
            let last = told.history.last().map(|attempt| attempt.heard.sentence()).unwrap_or_default();
            End::without_charge(Kind::Unknown, attempts, last)
        }
    }
}

/// A success counts only when it is about this line's money.
fn charged(line: &Line, answer: &Answer, told: &Told) -> End {
    let attempts = told.history.len();
    match serde_json::from_slice::<Charge>(&answer.body) {
        Ok(charge)
            if charge.status == "succeeded"
                && charge.amount == line.amount.amount_minor()
                && charge.currency == line.amount.currency().code() =>
        {
            let kind = if is_of_this_run(answer, told) { Kind::ChargedNow } else { Kind::ChargedBefore };
            let (charge_id, gateway_id) = (Some(charge.id), Some(charge.gateway_id));
            End { kind, charge_id, gateway_id, attempts, detail: String::new() }
        }
        _ => End::without_charge(Kind::Unknown, attempts, "the api answered 201 about something else".to_owned()),
    }
}

/// A replay tells of an earlier run, unless an attempt of this one may have done it and lost its answer.
fn is_of_this_run(answer: &Answer, told: &Told) -> bool {
    !answer.replayed || told.history.iter().any(|attempt| attempt.heard.may_have_acted())
}

fn refused(refusal: Refusal, problem: &heard::Problem, answer: &Answer, attempts: usize) -> End {
    let said = |kind| End::without_charge(kind, attempts, format!("{}: {}", problem.code, problem.detail));
    match (refusal, problem.code.as_str()) {
        (_, "idempotency_key_expired") => {
            let charge_id = answer.location.as_deref().and_then(|location| location.rsplit('/').next());
            End { charge_id: charge_id.map(str::to_owned), ..said(Kind::ChargedBefore) }
        }
        (_, "idempotency_key_reused") => {
            let detail = "idempotency_key_reused: sent before with another amount, currency or payment method";
            End { detail: detail.to_owned(), ..said(Kind::Rejected) }
        }
        (Refusal::NewKey, _) => said(Kind::Declined),
        (Refusal::Never, _) => said(Kind::Rejected),
    }
}

/// What the key's state adds to an unknown end.
fn after_asking(line: &Line, told: &Told, end: End, state: KeyState) -> End {
    let attempts = end.attempts;
    let more = match state {
        KeyState::Final(answer) if answer.status == 201 => return charged(line, &answer, told),
        KeyState::Final(answer) => match heard::Heard::read(answer) {
            heard::Heard::Problem { problem, answer } => {
                let refusal = if problem.retry == Retry::Never { Refusal::Never } else { Refusal::NewKey };
                return refused(refusal, &problem, &answer, attempts);
            }
            heard => heard.sentence(),
        },
        KeyState::Expired { location } => {
            let charge_id = location.and_then(|location| location.rsplit('/').next().map(str::to_owned));
            return End { kind: Kind::ChargedBefore, charge_id, ..end };
        }
        KeyState::Open(state) => format!("its key is {state}"),
        KeyState::NeverUsed => "its key is not known to the api".to_owned(),
        KeyState::NotTold { why } => format!("and asked about its key: {why}"),
    };
    End { detail: format!("{}; {more}", end.detail), ..end }
}

#[cfg(test)]
mod tests;
