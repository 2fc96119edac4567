//! Named points at which a process can be made to die, stop or wait, so that a test may ask: what is left behind, and is it
//! put right?
//!
//! `crash_point!(OrderClaimed)` stands in the real code, in the real binary. Armed by the environment of a process
//! ([`VARIABLE`](plan)) it acts once; otherwise it is one relaxed load of an atomic. Without the cargo feature `classroom`
//! it is nothing at all, and none of these names is in the binary: `.ci/run` looks.

#[cfg(feature = "classroom")]
mod plan;
#[cfg(feature = "classroom")]
mod points;

#[cfg(feature = "classroom")]
pub use self::{
    plan::{VARIABLE, arm_from_environment, is_armed, listing, reached},
    points::CrashPoint,
};

/// Lets a process be started unharmed, whatever is armed in this one.
pub fn disarm(command: &mut std::process::Command) {
    #[cfg(feature = "classroom")]
    command.env_remove(VARIABLE);
    #[cfg(not(feature = "classroom"))]
    let _nothing_can_be_armed = command;
}

/// Marks a [`CrashPoint`] in async code. It may wait there, so the code around it must bear an `.await`.
#[cfg(feature = "classroom")]
macro_rules! crash_point {
    ($point:ident) => {
        if $crate::crash_point::is_armed() {
            $crate::crash_point::reached($crate::crash_point::CrashPoint::$point).await;
        }
    };
}

/// Marks a crash point; in this build there are none.
#[cfg(not(feature = "classroom"))]
macro_rules! crash_point {
    ($point:ident) => {
        ()
    };
}

pub(crate) use crash_point;
