//! The rows: what goes wrong, and where. One line each.

use checkout::crash_point::CrashPoint::{self, *};

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) place: Place,
    pub(super) fault: Fault,
    pub(super) again: Again,
}

/// Where it goes wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// In the api, on the way of an order.
    Api(CrashPoint),
    /// In the worker, over an order whose api was killed at the second point.
    Recovery(CrashPoint, CrashPoint),
    /// In the worker, on the way of an event.
    Delivery(CrashPoint),
    /// In a worker that starts five days later and looks after the day partitions.
    Maintenance(CrashPoint),
    /// In the worker, over a charge that the gateway made without us.
    Reconciliation(CrashPoint),
    Gateway,
    Mail,
    /// While this many orders are under way.
    Load(usize),
    /// While two workers share this many events.
    Backlog(usize),
    /// While nothing happens.
    Rest,
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
    /// PostgreSQL is shut down at once, and nobody starts it for 5 s.
    PostgresAway,
    /// The gateway misbehaves at this many of its next requests.
    Gateway { name: &'static str, requests: u32, latency_ms: u64 },
    /// The gateway records an error under our key without having charged, and repeats it until it forgets the key. No program
    /// can end that: a person does.
    GatewayRecordsAnError,
    /// The mail service misbehaves at this many of its next mails.
    Mail { name: &'static str, mails: u32 },
    /// SIGKILL of the mail service between a mail and its answer. It is started again on its books.
    KillTheMail,
    /// SIGKILL of one of two workers at the point. Nobody starts it again.
    KillOneOfTwo(CrashPoint),
    /// Events that were sent are marked as unsent, again and again.
    WipeTheMarks,
}

/// What must be seen to have happened again. Elsewhere it may, by the way: a worker that dies dies with all that it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Nothing,
    /// An event was published that was in the log.
    InTheLog,
    /// A mail was sent that had been delivered.
    AtTheMail,
    /// A refund was sent that the gateway had executed.
    AtTheGateway,
    /// The gateway told of an event that we had kept.
    AtOurDoor,
}

use Again::*;
use Fault::*;

const fn api(point: CrashPoint, fault: Fault) -> Trial {
    Trial { place: Place::Api(point), fault, again: Nothing }
}

/// What was left behind: a charge that was made (unless the row needs one that was not).
const fn recovery(point: CrashPoint, left_behind_at: CrashPoint) -> Trial {
    Trial { place: Place::Recovery(point, left_behind_at), fault: Kill, again: Nothing }
}

const fn maintenance(point: CrashPoint) -> Trial {
    Trial { place: Place::Maintenance(point), fault: Kill, again: Nothing }
}

const fn reconciliation(point: CrashPoint, again: Again) -> Trial {
    Trial { place: Place::Reconciliation(point), fault: Kill, again }
}

/// Two requests: what one attempt of a client may send.
const fn gateway(name: &'static str, latency_ms: u64) -> Trial {
    Trial { place: Place::Gateway, fault: Gateway { name, requests: 2, latency_ms }, again: Nothing }
}

const fn delivery(point: CrashPoint, fault: Fault, again: Again) -> Trial {
    Trial { place: Place::Delivery(point), fault, again }
}

const fn mail(name: &'static str, mails: u32, again: Again) -> Trial {
    Trial { place: Place::Mail, fault: Mail { name, mails }, again }
}

/// On the server that all of them share. Those that wait longest come first.
pub(super) const TRIALS: &[Trial] = &[
    delivery(RelaySent, StopPastLease, Nothing),
    delivery(RelayBeforeMark, StopPastLease, InTheLog),
    delivery(LedgerBeforeCommit, StopPastLease, Nothing),
    delivery(ReceiptsBeforeCommit, StopPastLease, AtTheMail),
    api(ClaimBeforeCommit, StopPastLease),
    api(SettleBeforeCommit, StopPastLease),
    Trial { place: Place::Backlog(200), fault: KillOneOfTwo(RelayBeforeMark), again: InTheLog },
    Trial { place: Place::Backlog(200), fault: KillOneOfTwo(ReceiptsSent), again: AtTheMail },
    Trial { place: Place::Backlog(200), fault: WipeTheMarks, again: InTheLog },
    api(OrderBeforeClaim, Kill),
    api(ClaimBeforeCommit, Kill),
    api(OrderClaimed, Kill),
    api(ChargeBeforeSend, Kill),
    api(ChargeAnswered, Kill),
    api(SettleBeforeCommit, Kill),
    api(SettleCommitted, Kill),
    api(OrderBeforeReply, Kill),
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
    Trial { place: Place::Api(WebhookStored), fault: Kill, again: AtOurDoor },
    reconciliation(ReconcileBeforeRefund, Nothing),
    reconciliation(ReconcileRefunded, AtTheGateway),
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
    Trial { place: Place::Gateway, fault: GatewayRecordsAnError, again: Nothing },
    delivery(RelayTaken, Kill, Nothing),
    delivery(RelaySent, Kill, Nothing),
    delivery(RelayBeforeMark, Kill, InTheLog),
    delivery(RelayMarked, Kill, Nothing),
    delivery(LedgerRead, Kill, Nothing),
    delivery(LedgerEffect, Kill, Nothing),
    delivery(LedgerBeforeCommit, Kill, Nothing),
    delivery(LedgerBeforeAck, Kill, Nothing),
    delivery(ReceiptsRead, Kill, Nothing),
    delivery(ReceiptsSent, Kill, AtTheMail),
    delivery(ReceiptsBeforeCommit, Kill, AtTheMail),
    delivery(ReceiptsBeforeAck, Kill, Nothing),
    delivery(RelayTaken, StopPastLease, InTheLog),
    delivery(RelayMarked, StopPastLease, Nothing),
    delivery(LedgerRead, StopPastLease, Nothing),
    delivery(LedgerEffect, StopPastLease, Nothing),
    delivery(LedgerBeforeAck, StopPastLease, Nothing),
    delivery(ReceiptsRead, StopPastLease, Nothing),
    delivery(ReceiptsSent, StopPastLease, AtTheMail),
    delivery(ReceiptsBeforeAck, StopPastLease, Nothing),
    delivery(RelaySent, CutConnections, Nothing),
    delivery(RelayBeforeMark, CutConnections, InTheLog),
    delivery(LedgerBeforeCommit, CutConnections, Nothing),
    delivery(ReceiptsBeforeCommit, CutConnections, AtTheMail),
    mail("unavailable_before", 2, Nothing),
    mail("drop_before", 2, Nothing),
    mail("drop_after", 1, AtTheMail),
    mail("http_500_after", 1, AtTheMail),
    mail("latency_after", 1, AtTheMail),
    mail("hang_after", 1, AtTheMail),
    Trial { place: Place::Mail, fault: KillTheMail, again: AtTheMail },
];

/// One after the other on a server of their own, which does not survive them in one piece.
pub(super) const TRIALS_WITH_A_RESTART: &[Trial] = &[
    api(OrderClaimed, RestartPostgres),
    api(ChargeAnswered, RestartPostgres),
    api(SettleBeforeCommit, RestartPostgres),
    api(SettleCommitted, RestartPostgres),
    Trial { place: Place::Load(50), fault: RestartPostgres, again: Nothing },
    delivery(RelayBeforeMark, RestartPostgres, InTheLog),
    delivery(LedgerBeforeCommit, RestartPostgres, Nothing),
    delivery(ReceiptsSent, RestartPostgres, Nothing),
    Trial { place: Place::Rest, fault: PostgresAway, again: Nothing },
];

impl Trial {
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.place.name(), self.fault.name())
    }

    /// Whether the gateway tells us what happened.
    pub(super) fn has_webhooks(&self) -> bool {
        matches!(self.place, Place::Api(WebhookStored))
    }

    /// A late owner that stands inside an open transaction has lost it before anybody else could take over.
    pub(super) fn loses_its_transaction(&self) -> bool {
        let (Place::Delivery(point), StopPastLease) = (self.place, self.fault) else { return false };
        matches!(point, RelaySent | RelayBeforeMark | LedgerBeforeCommit | ReceiptsBeforeCommit)
    }
}

impl Place {
    pub(super) fn name(self) -> String {
        match self {
            Self::Api(point) => format!("api at {}", point.name()),
            Self::Recovery(point, _)
            | Self::Delivery(point)
            | Self::Maintenance(point)
            | Self::Reconciliation(point) => format!("worker at {}", point.name()),
            Self::Gateway => "gateway".to_owned(),
            Self::Mail => "mail".to_owned(),
            Self::Load(orders) => format!("{orders} orders under way"),
            Self::Backlog(events) => format!("two workers, {events} events"),
            Self::Rest => "everybody at rest".to_owned(),
        }
    }

    pub(super) fn orders(self) -> usize {
        match self {
            Self::Load(orders) | Self::Backlog(orders) => orders,
            _ => 1,
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
            Self::PostgresAway => "PostgreSQL away for 5 s".to_owned(),
            Self::Gateway { name, .. } | Self::Mail { name, .. } => name.to_owned(),
            Self::GatewayRecordsAnError => "http_500_before".to_owned(),
            Self::KillTheMail => "killed with a mail sent".to_owned(),
            Self::KillOneOfTwo(point) => format!("one killed at {}", point.name()),
            Self::WipeTheMarks => "marks wiped".to_owned(),
        }
    }
}
