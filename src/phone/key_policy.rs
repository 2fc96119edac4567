//! Where an attempt's key comes from. Question: does a second attempt say that it is the second?
//!
//! How long a client keeps a key is the one decision that makes a correct server useful or useless. Only [`Mode::PerIntent`] is
//! right; the others are clients that have shipped, each with what it costs.

use std::borrow::Cow;

use uuid::Uuid;

/// The keys of one tap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPolicy {
    /// No key at all: nobody can tell a retry from a purchase.
    None,
    /// The bug that shipped: every request gets a key of its own. The header is there, the server is right, and each attempt
    /// is a purchase. Kept to show what it costs.
    PerAttempt,
    /// This one, with every attempt. Made when the customer decided, and kept by whoever can be restarted, or derived from what
    /// is bought.
    Kept(String),
}

impl KeyPolicy {
    /// A new intent: the customer tapped *Pay*.
    pub fn tap() -> Self {
        Self::Kept(fresh())
    }

    /// The key of the next attempt.
    pub fn key(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::None => None,
            Self::PerAttempt => Some(Cow::Owned(fresh())),
            Self::Kept(key) => Some(Cow::Borrowed(key)),
        }
    }
}

fn fresh() -> String {
    Uuid::new_v4().to_string()
}

/// A client, by what it does with its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Sends none, and retries: what there was before keys.
    None,
    /// The bug that shipped: a new key with every retry.
    PerAttempt,
    /// A key for each touch of the button, in memory: lost with the app, and a second touch has another.
    PerTap,
    /// Right: a key for what is bought, written down before the first send, kept through restarts, replaced when the purchase
    /// is changed.
    PerIntent,
    /// Sends once and calls silence a failure. Its customers decide themselves whether to tap again.
    NeverRetry,
    /// A key for the cart, kept even when what is in the cart has changed.
    Sticky,
}

impl Mode {
    pub const ALL: [Self; 6] =
        [Self::None, Self::PerAttempt, Self::PerTap, Self::PerIntent, Self::NeverRetry, Self::Sticky];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PerAttempt => "per-attempt",
            Self::PerTap => "per-tap",
            Self::PerIntent => "per-intent",
            Self::NeverRetry => "never-retry",
            Self::Sticky => "sticky",
        }
    }

    /// The keys of one tap for an intent that keeps this key.
    pub fn policy(self, of_intent: &str) -> KeyPolicy {
        match self {
            Self::None => KeyPolicy::None,
            Self::PerAttempt => KeyPolicy::PerAttempt,
            Self::PerTap | Self::NeverRetry => KeyPolicy::tap(),
            Self::PerIntent | Self::Sticky => KeyPolicy::Kept(of_intent.to_owned()),
        }
    }

    /// Does it send again what was not answered?
    pub fn retries(self) -> bool {
        !matches!(self, Self::NeverRetry)
    }

    /// Does it know its key again after the app was killed?
    pub fn survives_a_restart(self) -> bool {
        matches!(self, Self::PerIntent | Self::Sticky)
    }

    /// Does a purchase that was changed get another key? Without that the server refuses it: the key says "the same", and the
    /// body does not.
    pub fn rotates_on_change(self) -> bool {
        !matches!(self, Self::Sticky)
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("not one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(mode: Mode, of_intent: &str) -> [Option<String>; 2] {
        let tap = mode.policy(of_intent);
        [tap.key(), tap.key()].map(|key| key.map(Cow::into_owned))
    }

    #[test]
    fn a_key_lives_as_long_as_its_client_keeps_it() {
        for mode in Mode::ALL {
            let ([first, second], [third, _]) = (keys(mode, "cart-1"), keys(mode, "cart-1"));
            let another_attempt = first == second;
            let another_tap = first == third;
            let expected = match mode {
                Mode::None | Mode::PerIntent | Mode::Sticky => (true, true),
                Mode::PerTap | Mode::NeverRetry => (true, false),
                Mode::PerAttempt => (false, false),
            };
            assert_eq!((another_attempt, another_tap), expected, "{mode}");
            assert_eq!(first.is_none(), mode == Mode::None);
        }
        assert_eq!(keys(Mode::PerIntent, "cart-1")[0].as_deref(), Some("cart-1"));
    }

    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("per-click".parse::<Mode>().unwrap_err().contains("per-attempt"));
    }
}
