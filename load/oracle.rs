//! What must come of it, computed before anybody looks. Question: how many orders does this client make in this network?
//!
//! Where the network alone decides what becomes of an attempt, the number of orders of each purchase is known exactly, from the
//! seed. Where two things race (a hang-up against the server's work), it is not, and that is said.

use checkout::phone::{Fate, Mode, Turn};

use crate::swarm::{NEXT_TAP, Plan};

/// Of one purchase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreseen {
    /// Exactly as many orders.
    Orders(u64),
    /// A matter of who is quicker.
    Race,
}

/// Walks through what the phones of this purchase will do.
pub(crate) fn foresee(plan: &Plan, intent: u64) -> Foreseen {
    let first = walk(plan, intent);
    let (first, second) = match plan.network.turn(intent) {
        Turn::Calm => match first {
            Walk { told: false, .. } if plan.taps_again(intent) => (first, Some(walk(plan, intent + NEXT_TAP))),
            _ => (first, None),
        },
        Turn::DoubleTap { .. } => (first, Some(walk(plan, intent + NEXT_TAP))),
        // When the app is killed, or the tunnel ends, is a moment; what was under way then is not known from here.
        Turn::AppKilled { .. } | Turn::Tunnel { .. } => return Foreseen::Race,
    };
    let taps = [Some(first), second];
    if taps.iter().flatten().any(|walk| walk.raced) {
        return Foreseen::Race;
    }
    let of = |count: fn(&Walk) -> u64| taps.each_ref().map(|walk| walk.as_ref().map_or(0, count));
    Foreseen::Orders(orders_of(plan.mode, of(|walk| walk.attempts), of(|walk| walk.copies)))
}

/// What a server that is right makes of what arrives of an intent's two touches: attempts, and requests, of which some
/// attempts have two.
pub(crate) fn orders_of(mode: Mode, attempts: [u64; 2], requests: [u64; 2]) -> u64 {
    match mode {
        Mode::None => requests.iter().sum(),
        Mode::PerAttempt => attempts.iter().sum(),
        // One key, one order: if any of its attempts arrived.
        Mode::PerTap | Mode::NeverRetry => attempts.map(|of_tap| of_tap.min(1)).iter().sum(),
        Mode::PerIntent | Mode::Sticky => attempts.iter().sum::<u64>().min(1),
    }
}

/// What arrives of one tap.
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// Attempts that are executed.
    attempts: u64,
    /// Requests that are executed: some attempts are sent twice.
    copies: u64,
    raced: bool,
    /// The phone hears an answer.
    told: bool,
}

fn walk(plan: &Plan, tap: u64) -> Walk {
    let mut walk = Walk { attempts: 0, copies: 0, raced: false, told: false };
    for attempt in 1..=plan.patience().attempts_max {
        let fate = plan.network.fate(tap, attempt);
        walk.raced |= !fate.is_decided();
        walk.attempts += u64::from(fate != Fate::RequestLost);
        walk.copies += match fate {
            Fate::RequestLost => 0,
            Fate::SentTwice => 2,
            Fate::Answered | Fate::AnswerLost | Fate::HangUp { .. } | Fate::Reset => 1,
        };
        if matches!(fate, Fate::Answered | Fate::SentTwice) {
            walk.told = true;
            break;
        }
    }
    walk
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use checkout::phone::{Network, Patience, Profile};

    use super::*;

    const TAPS: u64 = 100_000;

    fn plan(mode: Mode, profile: Profile) -> Plan {
        Plan {
            mode,
            network: Network { seed: 42, profile },
            patience: Patience::PHONE,
            time_scale: 1,
            manual_retap: 0.5,
            retry_budget: None,
            warmup: Duration::ZERO,
            open_max: 1,
        }
    }

    fn orders(mode: Mode, profile: Profile) -> Vec<u64> {
        let plan = plan(mode, profile);
        let foreseen = (0..TAPS).map(|tap| match foresee(&plan, tap) {
            Foreseen::Orders(orders) => orders,
            Foreseen::Race => panic!("this network decides everything"),
        });
        foreseen.collect()
    }

    #[test]
    fn a_fresh_key_for_every_attempt_is_as_good_as_none() {
        let none = orders(Mode::None, Profile::PHONES);
        assert_eq!(none, orders(Mode::PerAttempt, Profile::PHONES), "order by order");
        let extra = none.iter().sum::<u64>() - TAPS;
        // p / (1 - p) of the taps, 402 of them, give or take four standard deviations.
        assert!((320..=484).contains(&extra), "{extra}");
        assert!(none.iter().all(|orders| *orders >= 1), "and nobody goes without");
    }

    #[test]
    fn one_key_is_one_order_and_a_client_that_gives_up_sells_less() {
        for mode in [Mode::PerTap, Mode::PerIntent, Mode::Sticky] {
            assert_eq!(orders(mode, Profile::PHONES), vec![1; TAPS as usize], "{mode}");
        }
        let given_up = orders(Mode::NeverRetry, Profile::PHONES);
        let (lost, extra) = given_up.iter().fold((0, 0), |(lost, extra), orders| match orders {
            0 => (lost + 1, extra),
            more => (lost, extra + more - 1),
        });
        // Half of those whose request was lost do not tap again; half of those whose answer was lost do, and pay twice.
        assert!((220..=380).contains(&lost), "{lost}");
        assert!((130..=270).contains(&extra), "{extra}");
    }

    #[test]
    fn a_second_touch_is_another_purchase_unless_the_intent_has_the_key() {
        let twice = Profile { double_tap: 1.0, ..Profile::NONE };
        for (mode, each) in [(Mode::None, 2), (Mode::PerAttempt, 2), (Mode::PerTap, 2), (Mode::PerIntent, 1)] {
            assert_eq!(orders(mode, twice), vec![each; TAPS as usize], "{mode}");
        }
        let sent_twice = Profile { sent_twice: 1.0, ..Profile::NONE };
        for (mode, each) in [(Mode::None, 2), (Mode::PerAttempt, 1), (Mode::PerIntent, 1)] {
            assert_eq!(orders(mode, sent_twice), vec![each; TAPS as usize], "{mode}");
        }
    }

    #[test]
    fn what_depends_on_who_is_quicker_is_not_foreseen() {
        for profile in [
            Profile { hang_up: 1.0, ..Profile::NONE },
            Profile { reset: 1.0, ..Profile::NONE },
            Profile { app_killed: 1.0, ..Profile::NONE },
            Profile { tunnel: 1.0, ..Profile::NONE },
        ] {
            assert_eq!(foresee(&plan(Mode::PerIntent, profile), 1), Foreseen::Race);
        }
    }
}
