//! What an answer of the gateway means: one table, [`Situation::meaning`].
//!
//! Reading comes first ([`Answer::situation`]: which row is it?), judging second. The one question that matters is where the
//! money stands: taken, not taken, or not known.

use std::{collections::HashMap, time::Duration};

use serde::Deserialize;

use super::{ChargeRequest, Outcome};
use crate::wire::json;

/// An HTTP answer as it arrived, whole.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// `Stripe-Should-Retry`: the gateway's own word on whether sending again can change anything.
    pub should_retry: Option<bool>,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

/// Every situation after a send, whether an answer came or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Situation {
    Succeeded,
    Refunded,
    CardDeclined,
    ChallengeRequired,
    PaymentMethodUnknown,
    NeverConnected,
    RateLimited,
    KeyInUse,
    KeyReused,
    StillProcessing,
    OtherAmount,
    OtherAmountTaken,
    OtherAmountGivenBack,
    ServerError,
    ServerErrorRecorded,
    TimedOut,
    ConnectionLost,
    AnswerCut,
    AnswerUnreadable,
    Unauthorised,
    RequestRefused,
}

/// Where the money stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    Approved,
    Declined,
    NotSent,
    Unknown,
    /// Unknown, and the gateway has recorded an answer that will say so for ever.
    UnknownRecorded,
    Misconfigured,
}

impl Situation {
    pub const ALL: [Self; 21] = [
        Self::Succeeded,
        Self::Refunded,
        Self::CardDeclined,
        Self::ChallengeRequired,
        Self::PaymentMethodUnknown,
        Self::NeverConnected,
        Self::RateLimited,
        Self::KeyInUse,
        Self::KeyReused,
        Self::StillProcessing,
        Self::OtherAmount,
        Self::OtherAmountTaken,
        Self::OtherAmountGivenBack,
        Self::ServerError,
        Self::ServerErrorRecorded,
        Self::TimedOut,
        Self::ConnectionLost,
        Self::AnswerCut,
        Self::AnswerUnreadable,
        Self::Unauthorised,
        Self::RequestRefused,
    ];

    /// The table.
    pub fn meaning(self) -> Meaning {
        match self {
            Self::Succeeded => Meaning::Approved,

            // Results: recorded by the gateway and replayed for ever. A challenge cannot be passed from here.
            Self::CardDeclined | Self::ChallengeRequired => Meaning::Declined,
            // The customer has all of the money back, for good: a new key may take it anew.
            Self::Refunded => Meaning::Declined,
            // Refused while the parameters were read, before anything ran.
            Self::PaymentMethodUnknown => Meaning::Declined,

            // No byte of the request left, or the limiter stood before everything else.
            Self::NeverConnected | Self::RateLimited => Meaning::NotSent,

            // Somebody, perhaps an earlier send of ours, is executing under this key.
            Self::KeyInUse => Meaning::Unknown,
            // The key did something else than we believe. A new key would be a second charge: look first.
            Self::KeyReused => Meaning::Unknown,
            Self::StillProcessing => Meaning::Unknown,
            Self::OtherAmount => Meaning::Unknown,
            // Money was taken under our key for something else: whatever is sent now can only take more.
            Self::OtherAmountTaken => Meaning::UnknownRecorded,
            // And whatever is sent now could only give more back.
            Self::OtherAmountGivenBack => Meaning::UnknownRecorded,
            // A proxy answers 502 after the upstream executed; a 500 may come after the charge.
            Self::ServerError => Meaning::Unknown,
            Self::ServerErrorRecorded => Meaning::UnknownRecorded,
            Self::TimedOut | Self::ConnectionLost | Self::AnswerCut | Self::AnswerUnreadable => Meaning::Unknown,

            Self::Unauthorised | Self::RequestRefused => Meaning::Misconfigured,
        }
    }

    /// One sentence for the log and for whoever asks later.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Succeeded => "the gateway took the money",
            Self::Refunded => "the gateway took the money and gave all of it back",
            Self::CardDeclined => "the card was declined",
            Self::ChallengeRequired => "the card asks its holder for a challenge that cannot be passed here",
            Self::PaymentMethodUnknown => "the gateway does not know this payment method",
            Self::NeverConnected => "no connection to the gateway",
            Self::RateLimited => "the gateway's rate limiter refused",
            Self::KeyInUse => "a request under the same key is still running at the gateway",
            Self::KeyReused => "the gateway knows the key from another request",
            Self::StillProcessing => "the gateway is still processing",
            Self::OtherAmount => "the gateway answered with another amount",
            Self::OtherAmountTaken => "the gateway took another amount under our key",
            Self::OtherAmountGivenBack => "the gateway gave another amount back under our key",
            Self::ServerError => "the gateway failed",
            Self::ServerErrorRecorded => "the gateway failed and recorded the failure",
            Self::TimedOut => "the gateway did not answer in time",
            Self::ConnectionLost => "the connection broke before an answer",
            Self::AnswerCut => "the answer broke off",
            Self::AnswerUnreadable => "the answer cannot be read",
            Self::Unauthorised => "the gateway does not accept our credentials",
            Self::RequestRefused => "the gateway does not accept this kind of request",
        }
    }
}

/// Another company's words are stored and shown: as much of them as a customer would read, and nothing PostgreSQL refuses.
const MESSAGE_CHARS_MAX: usize = 500;
const CODE_CHARS_MAX: usize = 100;

/// What may be the gateway's name for something: it is stored, and put into paths.
pub(super) fn is_id(id: &str) -> bool {
    (1..=255).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn told(text: &str, chars_max: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(chars_max).collect()
}

#[derive(Debug, Deserialize)]
pub(super) struct PaymentIntent {
    pub id: String,
    pub status: String,
    pub amount: i64,
    pub currency: String,
    pub last_payment_error: Option<GatewayError>,
    #[serde(default)]
    pub latest_charge: Option<LatestCharge>,
    /// Seconds since 1970, by the gateway's clock.
    #[serde(default)]
    pub created: i64,
    #[serde(default)]
    pub metadata: HashMap<String, String>,
}

/// A lookup asks for the whole charge; the answer to a charge carries its name alone, and tells nothing of later refunds.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum LatestCharge {
    Name(#[expect(dead_code, reason = "only its kind matters")] String),
    Whole { amount_refunded: i64 },
}

#[derive(Debug, Deserialize)]
pub(super) struct GatewayError {
    pub r#type: Option<String>,
    pub code: Option<String>,
    pub decline_code: Option<String>,
    pub message: Option<String>,
    pub param: Option<String>,
    pub payment_intent: Option<PaymentIntentId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PaymentIntentId {
    pub id: String,
}

#[derive(Debug, Deserialize)]
struct ErrorEnvelope {
    error: GatewayError,
}

/// What a body says of a failure, if it is in the gateway's own envelope.
pub(super) fn error_of(answer: &Answer) -> Option<GatewayError> {
    json::object::<ErrorEnvelope>(&answer.body).map(|envelope| envelope.error).ok()
}

impl Answer {
    /// What this answer to `request` means.
    pub fn outcome(&self, request: &ChargeRequest) -> Outcome {
        if self.status == 200 {
            return match json::object::<PaymentIntent>(&self.body) {
                Ok(intent) => intent.outcome(request),
                Err(_) => Situation::AnswerUnreadable.plain(),
            };
        }
        let error = error_of(self);
        let situation = self.situation(error.as_ref());
        match (situation.meaning(), error) {
            (Meaning::Declined, Some(error)) => error.declined(situation),
            _ => self.plain(situation),
        }
    }

    /// The outcome of a situation that carries nothing but itself, and when the gateway says to come back.
    pub(super) fn plain(&self, situation: Situation) -> Outcome {
        match situation.plain() {
            Outcome::NotSent { why, .. } => Outcome::NotSent { why, retry_after: self.retry_after },
            outcome => outcome,
        }
    }

    /// Which row of the table an answer other than 200 is.
    pub(super) fn situation(&self, error: Option<&GatewayError>) -> Situation {
        let kind = error.and_then(|error| error.r#type.as_deref());
        let code = error.and_then(|error| error.code.as_deref());
        let param = error.and_then(|error| error.param.as_deref());
        match (self.status, kind, code) {
            (402, Some("card_error"), Some("authentication_required")) => Situation::ChallengeRequired,
            (402, Some("card_error"), _) => Situation::CardDeclined,
            (429, ..) => Situation::RateLimited,
            (409, ..) => Situation::KeyInUse,
            (400, Some("idempotency_error"), _) => Situation::KeyReused,
            (400 | 404, _, Some("resource_missing")) if param == Some("payment_method") => {
                Situation::PaymentMethodUnknown
            }
            (401 | 403, ..) => Situation::Unauthorised,
            // Without the gateway's own envelope somebody between us answered, and knows nothing of the money.
            (400..=499, Some(_), _) => Situation::RequestRefused,
            (500..=599, ..) if self.should_retry == Some(false) => Situation::ServerErrorRecorded,
            (500..=599, ..) => Situation::ServerError,
            _ => Situation::AnswerUnreadable,
        }
    }
}

impl PaymentIntent {
    /// What went back to the customer, as far as this answer tells.
    pub(super) fn amount_refunded(&self) -> i64 {
        match self.latest_charge {
            Some(LatestCharge::Whole { amount_refunded }) => amount_refunded,
            Some(LatestCharge::Name(_)) | None => 0,
        }
    }

    /// Did it take money that it still has, at least in part?
    pub(super) fn holds_money(&self) -> bool {
        self.status == "succeeded" && self.amount_refunded() < self.amount
    }

    /// Did it take money, and has none of it any more?
    pub(super) fn gave_back(&self) -> bool {
        self.status == "succeeded" && !self.holds_money()
    }

    /// Did it take money, and keep it, for something else than this?
    pub(super) fn took_another_amount(&self, request: &ChargeRequest) -> bool {
        self.holds_money() && !self.is_amount_of(request) && is_id(&self.id)
    }

    fn is_amount_of(&self, request: &ChargeRequest) -> bool {
        self.amount == request.amount.amount_minor() && self.currency == request.amount.currency().code()
    }

    /// What the gateway's own record of our charge says.
    pub(super) fn outcome(self, request: &ChargeRequest) -> Outcome {
        let same_money = self.is_amount_of(request);
        let refunded = !self.holds_money();
        let (situation, decline) = match (self.status.as_str(), self.last_payment_error) {
            _ if !same_money && !refunded => (Situation::OtherAmountTaken, None),
            _ if !same_money => (Situation::OtherAmount, None),
            _ if !is_id(&self.id) => (Situation::AnswerUnreadable, None),
            ("succeeded", _) if refunded => (Situation::Refunded, None),
            ("succeeded", _) => return Outcome::Approved { gateway_id: self.id },
            ("requires_action", _) => (Situation::ChallengeRequired, None),
            ("requires_payment_method", Some(error)) => (Situation::CardDeclined, Some(error)),
            _ => (Situation::StillProcessing, None),
        };
        if situation.meaning() != Meaning::Declined {
            return situation.plain();
        }
        let (decline_code, message) = match decline {
            Some(error) => (error.reason(), error.sentence()),
            None if situation == Situation::Refunded => (Some("refunded".to_owned()), None),
            None => (Some("authentication_required".to_owned()), None),
        };
        Outcome::Declined {
            gateway_id: Some(self.id),
            decline_code: decline_code.unwrap_or_else(|| "card_declined".to_owned()),
            message: message.unwrap_or_else(|| situation.sentence().to_owned()),
        }
    }
}

impl GatewayError {
    fn reason(&self) -> Option<String> {
        self.decline_code.as_deref().or(self.code.as_deref()).map(|code| told(code, CODE_CHARS_MAX))
    }

    pub(super) fn sentence(&self) -> Option<String> {
        self.message.as_deref().map(|message| told(message, MESSAGE_CHARS_MAX))
    }

    fn declined(self, situation: Situation) -> Outcome {
        let decline_code = match situation {
            Situation::PaymentMethodUnknown => "payment_method_unknown".to_owned(),
            _ => self.reason().unwrap_or_else(|| "card_declined".to_owned()),
        };
        Outcome::Declined {
            decline_code,
            message: self.sentence().unwrap_or_else(|| situation.sentence().to_owned()),
            gateway_id: self.payment_intent.map(|intent| intent.id).filter(|id| is_id(id)),
        }
    }
}

impl Situation {
    /// The outcome of a situation that carries nothing but itself.
    pub(super) fn plain(self) -> Outcome {
        let why = self.sentence().to_owned();
        match self.meaning() {
            Meaning::NotSent => Outcome::NotSent { why, retry_after: None },
            Meaning::Misconfigured => Outcome::Misconfigured { why },
            Meaning::UnknownRecorded => Outcome::Unknown { why, frozen: true },
            // An approval or a decline without its particulars cannot be acted upon.
            Meaning::Unknown | Meaning::Approved | Meaning::Declined => Outcome::Unknown { why, frozen: false },
        }
    }

    /// What a failed exchange means. Only a connection that never came to be proves that nothing was sent.
    pub(super) fn of_failure(error: &reqwest::Error) -> Self {
        if error.is_connect() {
            Self::NeverConnected
        } else if error.is_timeout() {
            Self::TimedOut
        } else if error.is_body() || error.is_decode() {
            Self::AnswerCut
        } else {
            Self::ConnectionLost
        }
    }
}
