//! The network between a phone and the api. Question: what becomes of this very attempt?
//!
//! A pure function of the seed, the tap, the attempt and the leg: no generator is shared, no order of calls matters, and every
//! client meets the same network. So what a client costs can be computed before anybody looks into a database, and two clients
//! can be compared tap by tap.
//!
//! Causes as they are known map to few fates. A collector pause or a slow query on the server, a phone in an elevator and a load
//! balancer's idle time-out after the work was done are all *an answer that is lost*; no signal at the moment of the tap is *a
//! request that is lost*. The phone is told neither: it sees [`Heard`](super::Heard), which has no word for the difference.

use std::time::Duration;

/// Chances, each from 0 to 1, of one attempt or one tap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Of each attempt: it never reaches the api.
    pub request_lost: f64,
    /// Of each attempt that was delivered: the api did its work, and its answer never arrives.
    pub answer_lost: f64,
    /// Of each attempt: the phone closes the connection while the api works.
    pub hang_up: f64,
    /// Of each attempt: something on the way cuts the connection just after the request has gone, and the phone notices at once.
    pub reset: f64,
    /// Of each attempt: the transport sends it twice, nearly at the same time.
    pub sent_twice: f64,
    /// Of each tap: the customer taps again at once, and means the same purchase.
    pub double_tap: f64,
    /// Of each tap: the app is killed after its first attempt was sent, and started again later.
    pub app_killed: f64,
    /// Of each tap: no signal at all for a while, from the first attempt on.
    pub tunnel: f64,
}

impl Profile {
    pub const NONE: Self = Self {
        request_lost: 0.0,
        answer_lost: 0.0,
        hang_up: 0.0,
        reset: 0.0,
        sent_twice: 0.0,
        double_tap: 0.0,
        app_killed: 0.0,
        tunnel: 0.0,
    };
    /// One attempt in a hundred times out, as often seen on phones: 0.4 % although the order was placed, 0.6 % because it never
    /// arrived.
    pub const PHONES: Self = Self { request_lost: 0.006, answer_lost: 0.004, ..Self::NONE };
    /// Everything that can go wrong, and often.
    pub const STRESS: Self = Self {
        request_lost: 0.1,
        answer_lost: 0.2,
        hang_up: 0.05,
        reset: 0.05,
        sent_twice: 0.05,
        double_tap: 0.05,
        app_killed: 0.02,
        tunnel: 0.02,
    };

    fn chance_mut(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "request_lost" => &mut self.request_lost,
            "answer_lost" => &mut self.answer_lost,
            "hang_up" => &mut self.hang_up,
            "reset" => &mut self.reset,
            "sent_twice" => &mut self.sent_twice,
            "double_tap" => &mut self.double_tap,
            "app_killed" => &mut self.app_killed,
            "tunnel" => &mut self.tunnel,
            _ => return None,
        })
    }

    /// Each chance with its name.
    pub fn chances(&self) -> [(&'static str, f64); 8] {
        [
            ("request_lost", self.request_lost),
            ("answer_lost", self.answer_lost),
            ("hang_up", self.hang_up),
            ("reset", self.reset),
            ("sent_twice", self.sent_twice),
            ("double_tap", self.double_tap),
            ("app_killed", self.app_killed),
            ("tunnel", self.tunnel),
        ]
    }
}

/// A name, and then what is different from it: `phones,answer_lost=0.05`.
impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut profile = Self::NONE;
        for part in text.split(',') {
            match (part, part.split_once('=')) {
                ("none", _) => profile = Self::NONE,
                ("phones", _) => profile = Self::PHONES,
                ("stress", _) => profile = Self::STRESS,
                (_, Some((name, chance))) => {
                    let place = profile.chance_mut(name);
                    let chance = chance.parse().ok().filter(|chance| (0.0..=1.0).contains(chance));
                    *place.ok_or_else(unknown)? = chance.ok_or_else(|| format!("{name} is not from 0 to 1"))?;
                }
                _ => return Err(unknown()),
            }
        }
        // Of the same draw, one beside the other.
        let beside = [profile.hang_up + profile.reset, profile.double_tap + profile.app_killed + profile.tunnel];
        if beside.iter().any(|sum| *sum > 1.0) {
            return Err("hang_up and reset, or double_tap, app_killed and tunnel, are more than 1 together".to_owned());
        }
        Ok(profile)
    }
}

fn unknown() -> String {
    let names = Profile::NONE.chances().map(|(name, _)| name).join(", ");
    format!("not none, phones or stress, nor a chance like answer_lost=0.05 ({names})")
}

/// What becomes of one attempt. The first two are decided here, so their effect is known; of the next two it depends on who is
/// quicker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// There and back.
    Answered,
    /// Never sent.
    RequestLost,
    /// Sent, executed, answered, and the answer thrown away.
    AnswerLost,
    /// The phone closes its connection so long after it has sent.
    HangUp { after: Duration },
    /// Cut right behind the request; the phone knows at once that it knows nothing.
    Reset,
    /// Two copies, nearly at once; the phone hears the first answer.
    SentTwice,
}

impl Fate {
    /// Whether the api executes it is decided by the network alone, not by who is quicker.
    pub fn is_decided(self) -> bool {
        !matches!(self, Self::HangUp { .. } | Self::Reset)
    }
}

/// What happens around a tap, beside its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turn {
    Calm,
    /// The same customer taps once more, so much later, for the same purchase.
    DoubleTap {
        after: Duration,
    },
    /// The app is gone so long after the tap, and is started again after a while.
    AppKilled {
        after: Duration,
        away: Duration,
    },
    /// Nothing is sent or heard for so long after the tap.
    Tunnel {
        lasting: Duration,
    },
}

/// What a draw is for. Each has a number of its own, so that a new kind of fault changes no other.
#[derive(Debug, Clone, Copy)]
enum Leg {
    Request = 1,
    Answer = 2,
    Cut = 3,
    CutAfter = 4,
    Copies = 5,
    Turn = 6,
    TurnAfter = 7,
    TurnLasting = 8,
    Jitter = 9,
    Gap = 10,
}

/// One seed's network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    pub seed: u64,
    pub profile: Profile,
}

impl Network {
    /// What becomes of this attempt, the first is 1. `tap` is one touch of the button.
    pub fn fate(&self, tap: u64, attempt: u32) -> Fate {
        let happens = |leg, chance: f64| self.luck(tap, attempt, leg) < chance;
        if happens(Leg::Request, self.profile.request_lost) {
            return Fate::RequestLost;
        }
        if happens(Leg::Answer, self.profile.answer_lost) {
            return Fate::AnswerLost;
        }
        let cut = self.luck(tap, attempt, Leg::Cut);
        if cut < self.profile.hang_up {
            return Fate::HangUp { after: self.between(tap, attempt, Leg::CutAfter, 0, 40) };
        }
        if cut < self.profile.hang_up + self.profile.reset {
            return Fate::Reset;
        }
        if happens(Leg::Copies, self.profile.sent_twice) { Fate::SentTwice } else { Fate::Answered }
    }

    /// What happens around this tap.
    pub fn turn(&self, tap: u64) -> Turn {
        let Profile { double_tap, app_killed, tunnel, .. } = self.profile;
        let luck = self.luck(tap, 0, Leg::Turn);
        if luck < double_tap {
            Turn::DoubleTap { after: self.between(tap, 0, Leg::TurnAfter, 80, 400) }
        } else if luck < double_tap + app_killed {
            let after = self.between(tap, 0, Leg::TurnAfter, 0, 3_000);
            Turn::AppKilled { after, away: self.between(tap, 0, Leg::TurnLasting, 5_000, 40_000) }
        } else if luck < double_tap + app_killed + tunnel {
            Turn::Tunnel { lasting: self.between(tap, 0, Leg::TurnLasting, 20_000, 120_000) }
        } else {
            Turn::Calm
        }
    }

    /// The phone's own dice for the pause after so many attempts, from 0 to 1.
    pub fn jitter(&self, tap: u64, attempt: u32) -> f64 {
        self.luck(tap, attempt, Leg::Jitter)
    }

    /// The dice for the gap before this tap, where taps come by chance; from 0 to just below 1.
    pub fn gap(&self, tap: u64) -> f64 {
        self.luck(tap, 0, Leg::Gap)
    }

    /// Stands for all fates of so many taps: equal for equal networks, whoever walks through them.
    pub fn fate_hash(&self, taps: u64, attempts_max: u32) -> String {
        let mut hash = mix(self.seed);
        for tap in 0..taps {
            let turn = match self.turn(tap) {
                Turn::Calm => 0,
                Turn::DoubleTap { after } => 1 + after.as_millis() as u64,
                Turn::AppKilled { after, away } => mix(after.as_millis() as u64) ^ away.as_millis() as u64,
                Turn::Tunnel { lasting } => mix(lasting.as_millis() as u64),
            };
            hash = mix(hash ^ turn);
            for attempt in 1..=attempts_max {
                let fate = match self.fate(tap, attempt) {
                    Fate::Answered => 0,
                    Fate::RequestLost => 1,
                    Fate::AnswerLost => 2,
                    Fate::Reset => 3,
                    Fate::SentTwice => 4,
                    Fate::HangUp { after } => 5 + after.as_millis() as u64,
                };
                hash = mix(hash ^ fate);
                // What follows an answer is met by nobody.
                if fate == 0 {
                    break;
                }
            }
        }
        format!("{hash:016x}")
    }

    fn between(&self, tap: u64, attempt: u32, leg: Leg, least_ms: u64, most_ms: u64) -> Duration {
        let span = (most_ms - least_ms) as f64;
        Duration::from_millis(least_ms + (self.luck(tap, attempt, leg) * span) as u64)
    }

    /// Evenly from 0 to just below 1.
    fn luck(&self, tap: u64, attempt: u32, leg: Leg) -> f64 {
        let drawn = mix(mix(mix(mix(self.seed) ^ tap) ^ u64::from(attempt)) ^ leg as u64);
        // The 53 bits that a double holds exactly.
        (drawn >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): its counter's step and its finalizer. Every bit of the input reaches every bit of
/// the result.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
