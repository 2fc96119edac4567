//! What the work cost, from `/proc`. Question: which process spends how much of the machine on one order?
//!
//! A process is counted together with its descendants, also with those that came and went between two looks: a child that
//! ended is in its parent's own account of waited-for children.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;

/// The unit of the times in `/proc/*/stat`. The kernel fixes it at 100 for every architecture this program runs on
/// (`USER_HZ`), whatever its internal clock is.
const TICKS_PER_S: u64 = 100;

/// A process whose cost is reported under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    pub(crate) pid: u32,
    pub(crate) family: Family,
}

/// Whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// The process alone: the benchmark itself is the parent of everything it measures.
    Alone,
    WithDescendants,
    /// The children of the process that have ended: what was spent by one that was killed is on this account.
    EndedChildren,
}

/// The accounts at one moment. Only the difference of two of them means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accounts {
    processes: Vec<(&'static str, u64)>,
    machine: Machine,
}

/// CPU time spent between two moments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spent {
    pub(crate) processes: Vec<(&'static str, Duration)>,
    /// By everything on the machine, the watched processes included.
    pub(crate) machine: Duration,
    /// What all processors together could have given.
    pub(crate) available: Duration,
    /// Taken away by the hypervisor.
    pub(crate) stolen: Duration,
}

impl Accounts {
    /// Reads them. Walks through all of `/proc`: not on the thread that sends orders.
    pub(crate) fn read(watched: &[Watched]) -> anyhow::Result<Self> {
        let all = every_process().context("cannot read /proc")?;
        let mut by_name = BTreeMap::new();
        for process in watched {
            anyhow::ensure!(all.contains_key(&process.pid), "the {} is no longer running", process.name);
            *by_name.entry(process.name).or_default() += ticks_of(&all, process);
        }
        let processes = by_name.into_iter().collect();
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Ok(Self { processes, machine: Machine::parse(&text).context("/proc/stat is not as expected")? })
    }

    pub(crate) fn since(&self, before: &Self) -> Spent {
        let earlier: BTreeMap<_, _> = before.processes.iter().copied().collect();
        let processes = self.processes.iter().map(|&(name, ticks)| {
            let spent = ticks.saturating_sub(earlier.get(name).copied().unwrap_or(ticks));
            (name, time(spent))
        });
        Spent {
            processes: processes.collect(),
            machine: time(self.machine.busy.saturating_sub(before.machine.busy)),
            available: time(self.machine.all.saturating_sub(before.machine.all)),
            stolen: time(self.machine.stolen.saturating_sub(before.machine.stolen)),
        }
    }
}

fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks * (1000 / TICKS_PER_S))
}

/// One line of `/proc/PID/stat`, as far as it is of use here. Times in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own: u64,
    waited_for_children: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses, and a name may hold spaces and parentheses of its own
    /// (`postgres: api (idle) x`): the last parenthesis ends it.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        // From the third field on: state, parent, … and the times are fields 14 to 17.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: field(14)? + field(15)?,
            waited_for_children: field(16)? + field(17)?,
        })
    }
}

fn every_process() -> std::io::Result<BTreeMap<u32, Stat>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the two reads; then its time has moved to its parent's account.
        let Ok(line) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(stat) = Stat::parse(&line) {
            all.insert(pid, stat);
        }
    }
    Ok(all)
}

fn ticks_of(all: &BTreeMap<u32, Stat>, process: &Watched) -> u64 {
    let Some(root) = all.get(&process.pid) else { return 0 };
    match process.family {
        Family::Alone => return root.own,
        Family::EndedChildren => return root.waited_for_children,
        Family::WithDescendants => {}
    }
    let mut ticks = root.own + root.waited_for_children;
    let mut parents = vec![process.pid];
    // Each process has one parent, so the walk is a tree and ends.
    while let Some(parent) = parents.pop() {
        for (&pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            ticks += stat.own + stat.waited_for_children;
            parents.push(pid);
        }
    }
    ticks
}

/// The whole machine, in ticks over all processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    busy: u64,
    all: u64,
    stolen: u64,
}

impl Machine {
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest times, which follow, are inside user already.
        let &[user, nice, system, idle, iowait, irq, softirq, stolen, ..] = ticks.as_slice() else { return None };
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, all: busy + idle + iowait + stolen, stolen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: u32, own: u64, waited_for_children: u64) -> Stat {
        Stat { parent, own, waited_for_children }
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "4242 (postgres: api (a) b) S 17 4242 4242 0 -1 4194560 900 1 0 0 11 22 33 44 20 0 1 0 5 6 7\n";
        assert_eq!(Stat::parse(line), Some(stat(17, 33, 77)));
        assert_eq!(Stat::parse("1 (sh) S 0 1"), None, "a line cut short has no times");
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn a_family_is_counted_whole_and_a_stranger_not_at_all() {
        let all = BTreeMap::from([
            (10, stat(1, 5, 100)),  // the postmaster, with the account of backends that ended
            (11, stat(10, 20, 0)),  // a backend
            (12, stat(10, 30, 0)),  // another
            (13, stat(12, 1, 2)),   // its child
            (99, stat(1, 1000, 0)), // somebody else
        ]);
        let postgres = Watched { name: "postgres", pid: 10, family: Family::WithDescendants };
        assert_eq!(ticks_of(&all, &postgres), 158);
        assert_eq!(ticks_of(&all, &Watched { family: Family::Alone, ..postgres }), 5);
    }

    #[test]
    fn a_child_that_ends_between_two_looks_is_not_lost() {
        let postgres = Watched { name: "postgres", pid: 10, family: Family::WithDescendants };
        let before = BTreeMap::from([(10, stat(1, 5, 0)), (11, stat(10, 20, 0))]);
        // The backend ran on for 7 ticks, ended, and its parent waited for it.
        let after = BTreeMap::from([(10, stat(1, 6, 27))]);
        assert_eq!(ticks_of(&after, &postgres) - ticks_of(&before, &postgres), 8);
    }

    #[test]
    fn idle_and_stolen_time_are_not_busy() {
        let text = "cpu  100 10 50 800 20 5 15 40 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(Machine::parse(text), Some(Machine { busy: 180, all: 1040, stolen: 40 }));
        assert_eq!(Machine::parse("intr 1 2 3"), None);
    }

    #[test]
    fn our_own_account_can_be_read_and_only_grows() {
        let us = [Watched { name: "harness", pid: std::process::id(), family: Family::Alone }];
        let before = Accounts::read(&us).unwrap();
        let spent = Accounts::read(&us).unwrap().since(&before);
        assert_eq!(spent.processes.len(), 1);
        assert_eq!(spent.processes[0].0, "harness");
        assert!(spent.machine <= spent.available);
        // No process has the number 0 in /proc.
        assert!(Accounts::read(&[Watched { pid: 0, ..us[0].clone() }]).is_err());
    }
}
