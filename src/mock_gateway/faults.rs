//! The catalogue of misbehaviour.
//!
//! Promise: each name says where the money stands. `_before`: nothing was executed; `_after`: it was, and the answer suffers;
//! `webhook_`: it is as the answer says, and the news of it suffers. The first two meet requests ([`FaultName`]), the last meets
//! events ([`WebhookFaultName`]): neither can be drawn for the other.

use serde::{Serialize, Serializer};

/// Longest pause a fault may make: past every sane client's patience, and bounded.
pub(super) const LATENCY_MS_MAX: u64 = 600_000;
/// A pause nobody gave a length.
const LATENCY_MS_DEFAULT: u64 = 1_000;

/// Faults of one kind: what they are called, and what they do.
pub(super) trait Misbehaviour: Copy + PartialEq + Serialize + 'static {
    const EVERY: &'static [Self];
    fn name(self) -> &'static str;
    /// One sentence for whoever reads the catalogue over HTTP.
    fn meaning(self) -> &'static str;

    fn parse(text: &str) -> Option<Self> {
        Self::EVERY.iter().copied().find(|fault| fault.name() == text)
    }
}

/// What meets a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultName {
    /// The port is closed for a while: connections are refused. Only the control plane can ask for it.
    Refuse,
    /// The key is in progress for a while, then the request executes.
    LatencyBefore,
    /// Unavailable. Nothing executed, nothing recorded.
    Http503Before,
    /// Too many requests. Nothing executed, nothing recorded.
    Http429Before,
    /// Another request holds the object, and the client is advised to retry. Nothing executed, nothing recorded.
    LockTimeoutBefore,
    /// The execution fails: no money moves, and the 500 is recorded.
    Http500Before,
    /// The connection ends without a byte. Nothing executed.
    DropBefore,
    /// The money moves, and a 500 is recorded.
    Http500After,
    /// The answer comes late.
    LatencyAfter,
    /// The answer never comes, and the connection stays.
    HangAfter,
    /// The connection ends (FIN) without a byte of the answer.
    DropAfter,
    /// The connection is reset (RST) without a byte of the answer.
    RstAfter,
    /// Half of the answer comes, then the connection ends.
    TruncateAfter,
    /// The request executes whatever its key says, and nothing is recorded.
    IgnoreIdempotency,
}

impl FaultName {
    pub(super) const ALL: [Self; 14] = [
        Self::Refuse,
        Self::LatencyBefore,
        Self::Http503Before,
        Self::Http429Before,
        Self::LockTimeoutBefore,
        Self::Http500Before,
        Self::DropBefore,
        Self::Http500After,
        Self::LatencyAfter,
        Self::HangAfter,
        Self::DropAfter,
        Self::RstAfter,
        Self::TruncateAfter,
        Self::IgnoreIdempotency,
    ];
}

impl Misbehaviour for FaultName {
    const EVERY: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::LatencyBefore => "latency_before",
            Self::Http503Before => "http_503_before",
            Self::Http429Before => "http_429_before",
            Self::LockTimeoutBefore => "lock_timeout_before",
            Self::Http500Before => "http_500_before",
            Self::DropBefore => "drop_before",
            Self::Http500After => "http_500_after",
            Self::LatencyAfter => "latency_after",
            Self::HangAfter => "hang_after",
            Self::DropAfter => "drop_after",
            Self::RstAfter => "rst_after",
            Self::TruncateAfter => "truncate_after",
            Self::IgnoreIdempotency => "ignore_idempotency",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Refuse => {
                "For latency_ms the port is closed and every connection refused, this control plane's too. Strikes at once."
            }
            Self::LatencyBefore => "For latency_ms the key is in progress; then the request executes.",
            Self::Http503Before => "503 at once. Nothing is executed, nothing recorded.",
            Self::Http429Before => "429 at once. Nothing is executed, nothing recorded.",
            Self::LockTimeoutBefore => {
                "429 lock_timeout at once, with the advice to retry. Nothing is executed, nothing recorded."
            }
            Self::Http500Before => "500, and no money moves. The 500 is recorded and replayed.",
            Self::DropBefore => "The connection ends without a byte. Nothing is executed.",
            Self::Http500After => "The money moves, and a 500 is recorded and replayed.",
            Self::LatencyAfter => "The money moves, and the answer comes latency_ms late.",
            Self::HangAfter => "The money moves, the answer never comes, and the connection stays open.",
            Self::DropAfter => "The money moves, and the connection ends (FIN) without a byte of the answer.",
            Self::RstAfter => "The money moves, and the connection is reset (RST) without a byte of the answer.",
            Self::TruncateAfter => "The money moves, and half of the answer comes before the connection ends.",
            Self::IgnoreIdempotency => "The request executes whatever its key says, and nothing is recorded.",
        }
    }
}

/// What meets the delivery of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookFaultName {
    Drop,
    Duplicate,
    Delay,
    Reorder,
    BadSignature,
}

impl WebhookFaultName {
    pub(super) const ALL: [Self; 5] = [Self::Drop, Self::Duplicate, Self::Delay, Self::Reorder, Self::BadSignature];
}

impl Misbehaviour for WebhookFaultName {
    const EVERY: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        match self {
            Self::Drop => "webhook_drop",
            Self::Duplicate => "webhook_duplicate",
            Self::Delay => "webhook_delay",
            Self::Reorder => "webhook_reorder",
            Self::BadSignature => "webhook_bad_signature",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Drop => "The event is never sent, and stays lost.",
            Self::Duplicate => "The event is sent once more after it was delivered.",
            Self::Delay => "The event is sent latency_ms late.",
            Self::Reorder => "The event is held until another one was delivered, for at most a minute.",
            Self::BadSignature => "The event is sent with a wrong signature once, then properly.",
        }
    }
}

impl Serialize for WebhookFaultName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for FaultName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What will happen to one request, or to one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Fault<N = FaultName> {
    pub(super) name: N,
    pub(super) latency_ms: u64,
}

impl<N> Fault<N> {
    pub(super) fn new(name: N, latency_ms: Option<u64>) -> Self {
        Self { name, latency_ms: latency_ms.unwrap_or(LATENCY_MS_DEFAULT).min(LATENCY_MS_MAX) }
    }
}

/// What one arrival drew.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    pub(super) fault: Option<Fault>,
    pub(super) ignores_key: bool,
}

impl Fate {
    pub(super) fn is(&self, name: FaultName) -> bool {
        self.fault.is_some_and(|fault| fault.name == name)
    }
}

/// A fault the request asked for itself, as `drop_after`, `drop_after_always`, `latency_after_800` or `latency_after:800`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) fault: Fault,
    /// Otherwise it strikes the first arrival of its key only, and the retry gets through.
    pub(super) always: bool,
}

impl Asked {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, always) = match text.strip_suffix("_always") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (name, latency_ms) = text.split_at(text.len() - digits);
        let latency_ms = if digits == 0 { None } else { Some(latency_ms.parse().ok()?) };
        let name = if digits == 0 { name } else { name.strip_suffix(['_', ':'])? };
        match FaultName::parse(name)? {
            FaultName::Refuse => None,
            name => Some(Self { fault: Fault::new(name, latency_ms), always }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_asked_for_except_the_one_that_closes_the_port() {
        for name in FaultName::ALL {
            let asked = Asked::parse(name.name());
            let expected = Asked { fault: Fault::new(name, None), always: false };
            assert_eq!(asked, (name != FaultName::Refuse).then_some(expected), "{}", name.name());
        }
    }

    #[test]
    fn a_fault_may_carry_its_length_and_insist() {
        let latency = |ms, always| Some(Asked { fault: Fault::new(FaultName::LatencyAfter, Some(ms)), always });
        assert_eq!(Asked::parse("latency_after_800"), latency(800, false));
        assert_eq!(Asked::parse("latency_after:800_always"), latency(800, true));
        assert_eq!(Asked::parse("latency_after_999999999"), latency(LATENCY_MS_MAX, false));
        for wrong in ["", "_always", "800", "latency_after800", "latency_after_", "latency_after_99999999999999999999"]
        {
            assert_eq!(Asked::parse(wrong), None, "{wrong}");
        }
    }
}
