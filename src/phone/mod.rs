//! The customer's phone: a client that obeys the contract. Question: what must a client do so that its customer pays once?
//!
//! One key for one intent, kept through every attempt. Whatever leaves the outcome open (no answer, half of one, one that cannot
//! be read, a problem that says `same_key`) is sent again under that key, later and not all at once. The end is a success, a
//! refusal that the server calls final, or [`Outcome::Unknown`]: giving up is not knowing, and never means "failed".

pub mod backoff;
pub mod client;
pub mod heard;
pub mod key_policy;
pub mod network;
pub mod obey;

pub use self::{
    backoff::{Pacing, Patience},
    client::{Intent, KeyState, Phone},
    heard::{Answer, Heard},
    key_policy::{KeyPolicy, Mode},
    network::{Fate, Network, Profile, Turn},
    obey::{Attempt, GaveUp, Outcome, Refusal, Told},
};
