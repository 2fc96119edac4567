//! The rows: what goes wrong, and where. One line each.

use checkout::crash_point::CrashPoint::{self, *};

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) place: Place,
    pub(super) fault: Fault,
}

/// Where it goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In the api, on the way of an order.
    Api(CrashPoint),
    /// In the worker, over an order whose api was killed at the second point.
    Recovery(CrashPoint, CrashPoint),
    /// In a worker that starts five days later and looks after the day partitions.
    Maintenance(CrashPoint),
    Gateway,
    /// While this many orders are under way.
    Load(usize),
}

/// What goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// SIGKILL at the point. Somebody starts the process again.
    Kill,
    /// SIGSTOP at the point until its lease is over and somebody else has finished; then it goes on.
    StopPastLease,
    /// While it stands at the point, PostgreSQL ends every connection it has.
    CutConnections,
    /// While it stands at the point, PostgreSQL is shut down at once (SIGQUIT), and started again.
    RestartPostgres,
    /// The gateway misbehaves at this many of its next requests.
    Gateway { name: &'static str, requests: u32, latency_ms: u64 },
    /// The gateway records an error under our key without having charged, and repeats it until it forgets the key. No program
    /// can end that: a person does.
    GatewayRecordsAnError,
}

use Fault::*;

const fn api(point: CrashPoint, fault: Fault) -> Trial {
    Trial { place: Place::Api(point), fault }
}

/// What was left behind: a charge that was made (unless the row needs one that was not).
const fn recovery(point: CrashPoint, left_behind_at: CrashPoint) -> Trial {
    Trial { place: Place::Recovery(point, left_behind_at), fault: Kill }
}

const fn maintenance(point: CrashPoint) -> Trial {
    Trial { place: Place::Maintenance(point), fault: Kill }
}

/// Two requests: what one attempt of a client may send.
const fn gateway(name: &'static str, latency_ms: u64) -> Trial {
    Trial { place: Place::Gateway, fault: Gateway { name, requests: 2, latency_ms } }
}

/// On the server that all of them share.
pub(super) const TRIALS: &[Trial] = &[
    api(OrderBeforeClaim, Kill),
    api(ClaimBeforeCommit, Kill),
    api(OrderClaimed, Kill),
    api(ChargeBeforeSend, Kill),
    api(ChargeAnswered, Kill),
    api(SettleBeforeCommit, Kill),
    api(SettleCommitted, Kill),
    api(OrderBeforeReply, Kill),
    api(ClaimBeforeCommit, StopPastLease),
    api(SettleBeforeCommit, StopPastLease),
    api(OrderBeforeClaim, StopPastLease),
    api(OrderClaimed, StopPastLease),
    api(ChargeBeforeSend, StopPastLease),
    api(ChargeAnswered, StopPastLease),
    api(SettleCommitted, StopPastLease),
    api(OrderBeforeReply, StopPastLease),
    api(ClaimBeforeCommit, CutConnections),
    api(OrderClaimed, CutConnections),
    api(SettleBeforeCommit, CutConnections),
    api(SettleCommitted, CutConnections),
    recovery(RecoveryTakenOver, ChargeAnswered),
    recovery(RecoveryLookedUp, ChargeAnswered),
    recovery(ChargeBeforeSend, OrderClaimed),
    recovery(ChargeAnswered, OrderClaimed),
    recovery(SettleBeforeCommit, ChargeAnswered),
    recovery(SettleCommitted, ChargeAnswered),
    recovery(RecoveryFinished, ChargeAnswered),
    maintenance(MaintenanceDayMade),
    maintenance(MaintenanceBeforeDetach),
    maintenance(MaintenanceDetached),
    gateway("refuse", 1_500),
    gateway("latency_before", 900),
    gateway("latency_after", 900),
    gateway("drop_before", 0),
    gateway("drop_after", 0),
    gateway("rst_after", 0),
    gateway("truncate_after", 0),
    gateway("hang_after", 0),
    gateway("http_429_before", 0),
    gateway("http_503_before", 0),
    gateway("http_500_after", 0),
    Trial { place: Place::Gateway, fault: GatewayRecordsAnError },
];

/// One after the other on a server of their own, which does not survive them in one piece.
pub(super) const TRIALS_WITH_A_RESTART: &[Trial] = &[
    api(OrderClaimed, RestartPostgres),
    api(ChargeAnswered, RestartPostgres),
    api(SettleBeforeCommit, RestartPostgres),
    api(SettleCommitted, RestartPostgres),
    Trial { place: Place::Load(50), fault: RestartPostgres },
];

impl Trial {
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.place.name(), self.fault.name())
    }
}

impl Place {
    pub(super) fn name(self) -> String {
        match self {
            Self::Api(point) => format!("api at {}", point.name()),
            Self::Recovery(point, _) => format!("worker at {}", point.name()),
            Self::Maintenance(point) => format!("worker at {}", point.name()),
            Self::Gateway => "gateway".to_owned(),
            Self::Load(orders) => format!("{orders} orders under way"),
        }
    }
}

impl Fault {
    pub(super) fn name(self) -> String {
        match self {
            Self::Kill => "killed".to_owned(),
            Self::StopPastLease => "stopped past its lease".to_owned(),
            Self::CutConnections => "its connections cut".to_owned(),
            Self::RestartPostgres => "PostgreSQL shut down at once".to_owned(),
            Self::Gateway { name, .. } => name.to_owned(),
            Self::GatewayRecordsAnError => "http_500_before".to_owned(),
        }
    }
}
