//! The catalogue of misbehaviour.
//!
//! Promise: each name says where the mail is. `_before`: nothing was sent (or not yet); `_after`: it was, and the answer suffers.

use serde::{Serialize, Serializer};

/// Longest pause a fault may make: past every sane client's patience, and bounded.
pub(super) const LATENCY_MS_MAX: u64 = 600_000;
/// A pause nobody gave a length.
const LATENCY_MS_DEFAULT: u64 = 1_000;

macro_rules! faults {
    ($($fault:ident = $name:literal, $meaning:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum FaultName { $(#[doc = $meaning] $fault),* }

        impl FaultName {
            pub(super) const ALL: &[Self] = &[$(Self::$fault),*];

            /// As an experiment asks for it.
            pub(super) fn name(self) -> &'static str { match self { $(Self::$fault => $name),* } }
            /// One sentence for whoever reads the catalogue over HTTP.
            pub(super) fn meaning(self) -> &'static str { match self { $(Self::$fault => $meaning),* } }
        }
    };
}

faults! {
    UnavailableBefore = "unavailable_before", "503 at once. Nothing is sent, nothing recorded.";
    DropBefore = "drop_before", "The connection ends without a byte. Nothing is sent.";
    LatencyBefore = "latency_before", "For latency_ms the key is in progress; then the mail is sent.";
    Reject = "reject", "422, for good: the same key is refused again whenever the fault is drawn by chance or by recipient.";
    DropAfter = "drop_after", "The mail is sent, and the connection ends without a byte of the answer.";
    Http500After = "http_500_after", "The mail is sent, and the answer is 500. The key is recorded: a retry gets the mail's id.";
    LatencyAfter = "latency_after", "The mail is sent, and the answer comes latency_ms late.";
    HangAfter = "hang_after", "The mail is sent, the answer never comes, and the connection stays open.";
    IgnoreIdempotency = "ignore_idempotency", "The mail is sent whatever its key says, and nothing is recorded.";
}

impl FaultName {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.name() == text)
    }
}

impl Serialize for FaultName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What will happen to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    pub(super) name: FaultName,
    pub(super) latency_ms: u64,
}

impl Fault {
    pub(super) fn new(name: FaultName, latency_ms: Option<u64>) -> Self {
        Self { name, latency_ms: latency_ms.unwrap_or(LATENCY_MS_DEFAULT).min(LATENCY_MS_MAX) }
    }
}
