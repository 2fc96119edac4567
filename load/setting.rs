//! How the api of a side is set. Question: what is compared with what, and is it fair?
//!
//! One transaction pair per order is as fast as the number of transactions that run at once: with one lane it would be a
//! serial program, and no opponent. So each side has lanes of its own, and a pool in which every lane finds a connection.

use std::{fmt, num::NonZero, str::FromStr};

use serde::Serialize;

/// Lanes of the plain path where none are given. On two processors 4 of them use the machine up, 8 take as many orders, and
/// from 16 on they cost more.
const PLAIN_LANES: usize = 8;
/// Lanes of group commit where none are given: the api's own default.
const GROUPED_LANES: usize = 1;
/// Two connections for each fit into the server's `max_connections` beside everybody else's.
const LANES_MAX: usize = 64;
/// The api's own default, for the side that needs no more.
const CONNECTIONS_MIN: usize = 12;
/// For what is read outside the lanes: replays, health, lookups.
const CONNECTIONS_BESIDE: usize = 2;

/// Written `LIMIT` or `LIMITxLANES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    pub(crate) batch_limit: usize,
    /// Claim transactions that may run at once, and as many settle transactions.
    pub(crate) batch_lanes: usize,
}

impl Setting {
    /// No lane ever waits for a connection.
    pub(crate) fn connections(self) -> usize {
        (2 * self.batch_lanes + CONNECTIONS_BESIDE).max(CONNECTIONS_MIN)
    }

    pub(crate) fn api_arguments(self) -> Vec<String> {
        let flags = [
            ("--batch-limit", self.batch_limit),
            ("--batch-lanes", self.batch_lanes),
            ("--connections", self.connections()),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value.to_string()]).collect()
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse::<NonZero<usize>>().map(NonZero::get);
        let (limit, lanes) = match text.split_once('x') {
            Some((limit, lanes)) => (number(limit), Some(number(lanes))),
            None => (number(text), None),
        };
        let batch_limit = limit.map_err(|_| "not LIMIT or LIMITxLANES, as 1x8 or 256".to_owned())?;
        let batch_lanes = match lanes {
            Some(lanes) => lanes.ok().filter(|lanes| *lanes <= LANES_MAX),
            None if batch_limit == 1 => Some(PLAIN_LANES),
            None => Some(GROUPED_LANES),
        };
        let batch_lanes = batch_lanes.ok_or_else(|| format!("lanes are 1 to {LANES_MAX}"))?;
        Ok(Self { batch_limit, batch_lanes })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {}, lanes {}", self.batch_limit, self.batch_lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Setting {
        text.parse().unwrap()
    }

    #[test]
    fn the_plain_path_gets_many_lanes_and_a_pool_in_which_none_of_them_waits() {
        assert_eq!(setting("1"), setting("1x8"));
        assert_eq!(setting("256"), setting("256x1"));
        assert_eq!(
            (setting("1x16").connections(), setting("1").connections(), setting("256").connections()),
            (34, 18, 12)
        );
        let arguments = setting("1x4").api_arguments().join(" ");
        assert_eq!(arguments, "--batch-limit 1 --batch-lanes 4 --connections 12");
    }

    #[test]
    fn a_setting_without_lanes_or_with_too_many_is_refused() {
        for wrong in ["", "0", "x", "1x", "1x0", "x4", "1x65", "1x2x3", "-1", "many"] {
            assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
        }
    }
}
