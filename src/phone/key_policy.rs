//! Where an attempt's key comes from. Question: does a second attempt say that it is the second?

use std::borrow::Cow;

use uuid::Uuid;

/// The one decision that makes a correct server useful or useless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPolicy {
    /// Right: the key was made when the customer decided, and every attempt carries it. Whoever can be restarted keeps it with
    /// what is bought, or derives it from that.
    PerIntent(String),
    /// The bug that shipped: every request gets a key of its own. The header is there, the server is right, and each attempt
    /// is a purchase. Kept to show what it costs.
    PerAttempt,
}

impl KeyPolicy {
    /// A new intent: the customer tapped *Pay*.
    pub fn tap() -> Self {
        Self::PerIntent(Uuid::new_v4().to_string())
    }

    /// The key of the next attempt.
    pub fn key(&self) -> Cow<'_, str> {
        match self {
            Self::PerIntent(key) => Cow::Borrowed(key),
            Self::PerAttempt => Cow::Owned(Uuid::new_v4().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intent_has_one_key_and_another_intent_another() {
        let tap = KeyPolicy::tap();
        assert_eq!(tap.key(), tap.key());
        assert_ne!(tap.key(), KeyPolicy::tap().key());
    }

    #[test]
    fn the_bug_makes_a_key_per_attempt() {
        assert_ne!(KeyPolicy::PerAttempt.key(), KeyPolicy::PerAttempt.key());
    }
}
