//! Where the figures were taken. Question: may they be laid beside those of another machine?

use std::{fmt, fs, num::NonZero};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
}

impl Machine {
    /// What the kernel tells. What it keeps to itself is called unknown.
    pub(crate) fn read() -> Self {
        let unknown = || "unknown".to_owned();
        let described = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned());
        Self {
            processor: model(&described).unwrap_or_else(unknown),
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
            kernel: release.map_or_else(|_| unknown(), |release| format!("Linux {release}")),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processors ({}), {}", self.processors, self.processor, self.kernel)
    }
}

/// The first processor's model. Not every architecture names one.
fn model(cpuinfo: &str) -> Option<String> {
    let named = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = named.filter(|(name, _)| name.trim() == "model name").map(|(_, model)| model.trim().to_owned());
    models.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_where_there_is_one() {
        let two =
            "processor\t: 0\nmodel\t\t: 17\nmodel name\t: A Processor @ 2 GHz\nprocessor\t: 1\nmodel name\t: Other\n";
        assert_eq!(model(two).as_deref(), Some("A Processor @ 2 GHz"));
        assert_eq!(model("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
        assert!(Machine::read().processors > 0);
    }
}
