//! Which points are armed in this process, and what happens at them.
//!
//! `CHECKOUT_CRASH=<name>:<action>[:<nth>]`, several separated by commas. Each acts once, at its nth arrival (the first, if
//! no number is given), and says so in one line on stderr before it does: `crash point order.claimed: kill`.

use std::{
    io::Write,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context;

use super::CrashPoint;
use crate::stop::{Signal, send};

/// Where a process finds what is armed in it.
pub const VARIABLE: &str = "CHECKOUT_CRASH";

const ACTIONS: &str = "kill, stop, pause:<ms>";
/// What the kernel may take until a signal to the whole process has reached each of its threads.
const SIGNAL_DELAY: Duration = Duration::from_millis(100);

static IS_ARMED: AtomicBool = AtomicBool::new(false);
static PLAN: OnceLock<Vec<Armed>> = OnceLock::new();

#[derive(Debug)]
struct Armed {
    point: CrashPoint,
    action: Action,
    nth: u32,
    arrivals: AtomicU32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// SIGKILL: no goodbye, no flush, no rollback.
    Kill,
    /// SIGSTOP: the process is there, and does nothing until somebody sends SIGCONT.
    Stop,
    /// Only the task that came here waits.
    Pause(Duration),
}

/// Arms what [`VARIABLE`] names. Called once, before anything can be reached.
pub fn arm_from_environment() -> anyhow::Result<()> {
    let Some(text) = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty()) else { return Ok(()) };
    let plan = text.split(',').map(Armed::parse).collect::<anyhow::Result<Vec<_>>>().context(VARIABLE)?;
    anyhow::ensure!(PLAN.set(plan).is_ok(), "{VARIABLE} was read before");
    IS_ARMED.store(true, Ordering::Relaxed);
    Ok(())
}

pub fn is_armed() -> bool {
    IS_ARMED.load(Ordering::Relaxed)
}

/// One arrival at a point. Acts, if it is the one that was asked for.
pub async fn reached(point: CrashPoint) {
    for armed in PLAN.get().into_iter().flatten().filter(|armed| armed.point == point) {
        if armed.arrivals.fetch_add(1, Ordering::Relaxed) + 1 == armed.nth {
            armed.act().await;
        }
    }
}

/// Every point with its sentence, a line each, for people.
pub fn listing() -> String {
    let widest = CrashPoint::ALL.iter().map(|point| point.name().len()).max().unwrap_or_default();
    CrashPoint::ALL.iter().map(|point| format!("{:widest$}  {}\n", point.name(), point.meaning())).collect()
}

impl Armed {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.trim().split(':');
        let name = parts.next().unwrap_or_default();
        let point = CrashPoint::ALL.iter().copied().find(|point| point.name() == name).with_context(|| {
            let names: Vec<_> = CrashPoint::ALL.iter().map(|point| point.name()).collect();
            format!("there is no crash point {name:?}; there are {}", names.join(", "))
        })?;
        let action = match parts.next() {
            Some("kill") => Some(Action::Kill),
            Some("stop") => Some(Action::Stop),
            Some("pause") => parts.next().and_then(|ms| ms.parse().ok()).map(Duration::from_millis).map(Action::Pause),
            _ => None,
        };
        let nth = parts.next().map_or(Ok(1), str::parse);
        match (action, nth, parts.next()) {
            (Some(action), Ok(nth @ 1..), None) => Ok(Self { point, action, nth, arrivals: AtomicU32::new(0) }),
            _ => anyhow::bail!("{text:?} is not <name>:<action>[:<nth>], where an action is one of {ACTIONS}"),
        }
    }

    async fn act(&self) {
        // One write, and stderr keeps nothing back: whoever waits for this line sees it before anything happens.
        let line = format!("crash point {}: {}\n", self.point.name(), self.action.name());
        let _nobody_listens = std::io::stderr().lock().write_all(line.as_bytes());
        match self.action {
            // These hold the thread on purpose: nothing may happen behind this point before the signal has struck.
            Action::Kill => loop {
                send(std::process::id(), Signal::Kill);
                std::thread::sleep(SIGNAL_DELAY);
            },
            Action::Stop => {
                send(std::process::id(), Signal::Stop);
                std::thread::sleep(SIGNAL_DELAY);
            }
            Action::Pause(length) => tokio::time::sleep(length).await,
        }
    }
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Pause(_) => "pause",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_point_has_a_name_of_its_own_and_says_what_is_true_there() {
        let names: HashSet<_> = CrashPoint::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), CrashPoint::ALL.len());
        for point in CrashPoint::ALL {
            assert!(point.name().bytes().all(|b| b.is_ascii_lowercase() || b"._".contains(&b)), "{}", point.name());
            assert!(point.meaning().ends_with('.'), "{}", point.name());
        }
        assert_eq!(listing().lines().count(), CrashPoint::ALL.len());
    }

    #[test]
    fn a_point_is_armed_by_name_action_and_count() {
        for (text, point, action, nth) in [
            ("order.claimed:kill", CrashPoint::OrderClaimed, Action::Kill, 1),
            ("order.claimed:stop:3", CrashPoint::OrderClaimed, Action::Stop, 3),
            (" relay.sent:pause:250:2", CrashPoint::RelaySent, Action::Pause(Duration::from_millis(250)), 2),
        ] {
            let armed = Armed::parse(text).unwrap();
            assert_eq!((armed.point, armed.action, armed.nth), (point, action, nth), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_armed_is_refused_with_what_there_is() {
        for (text, complaint) in [
            ("order.nowhere:kill", "there are order.before_claim, claim.before_commit, "),
            ("order.claimed", ACTIONS),
            ("order.claimed:explode", ACTIONS),
            ("order.claimed:pause", ACTIONS),
            ("order.claimed:kill:0", ACTIONS),
            ("order.claimed:kill:2:3", ACTIONS),
            ("", "no crash point \"\""),
        ] {
            let refused = Armed::parse(text).unwrap_err().to_string();
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
    }
}
