//! The table of crash points: the name of each, and what has and has not become true there.

/// One line per point: its variant, its stable name, its sentence.
macro_rules! crash_points {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CrashPoint {
            $(#[doc = $meaning] $variant,)*
        }

        impl CrashPoint {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),* }
            }
        }
    };
}

crash_points! {
    OrderBeforeClaim "order.before_claim" "The request was read and found valid; nothing is written and nothing was sent."
    ClaimBeforeCommit "claim.before_commit" "The claim is written in an open transaction: nobody else sees it, and its key is locked."
    OrderClaimed "order.claimed" "The claim is committed and read; nothing was sent to the gateway."
    ChargeBeforeSend "charge.before_send" "The owner has decided to send the charge; not a byte of it has left."
    ChargeAnswered "charge.answered" "The gateway's answer to the charge was read; nothing of it is written down."
    SettleBeforeCommit "settle.before_commit" "Record, charge, order, event and answer are written in an open transaction; none of them is true yet."
    SettleCommitted "settle.committed" "Everything is true and stored; whoever waits for it has not heard."
    OrderBeforeReply "order.before_reply" "The story is over and its end is stored; the client has not been told."

    RecoveryTakenOver "recovery.taken_over" "Recovery owns what was left behind, and that is committed; the gateway was not asked yet."
    RecoveryLookedUp "recovery.looked_up" "A new owner has heard what the gateway shows under the key; nothing of it is written down."
    RecoveryFinished "recovery.finished" "Recovery has finished one record and stored its answer; the round goes on."

    MaintenanceDayMade "maintenance.day_made" "One day ahead is made and attached; later ones are missing, and old days still stand."
    MaintenanceBeforeDetach "maintenance.before_detach" "A day was found to hold nothing that is needed; it is still attached."
    MaintenanceDetached "maintenance.detached" "An old day is detached, and no look at the parent finds it; its table still exists."

    RelayTaken "relay.taken" "Unsent events are in the relay's hands; none was sent."
    RelaySent "relay.sent" "The events are appended to the log in an open transaction: the log has not acknowledged them."
    RelayBeforeMark "relay.before_mark" "The log has acknowledged the events; none is marked as sent."
    RelayMarked "relay.marked" "The events are marked as sent, and that is committed."

    LedgerRead "ledger.read" "An event was delivered to the ledger; nothing is written."
    LedgerEffect "ledger.effect" "The entries are made out; nothing of them is written."
    LedgerBeforeCommit "ledger.before_commit" "Entries and the mark as processed are written in an open transaction; neither is true yet."
    LedgerBeforeAck "ledger.before_ack" "The entries are committed; the event is not acknowledged, and will be read again."

    ReceiptsRead "receipts.read" "An event was delivered to the receipts; no mail was sent."
    ReceiptsSent "receipts.sent" "The mail service has accepted the receipt; nothing of it is written down."
    ReceiptsBeforeCommit "receipts.before_commit" "The receipt is recorded and marked as processed in an open transaction; neither is true yet."
    ReceiptsBeforeAck "receipts.before_ack" "The receipt is committed as sent; the event is not acknowledged, and will be read again."

    ReconcileBeforeRefund "reconcile.before_refund" "A charge nobody knows was found and its refund decided; not a byte of it has left."
    ReconcileRefunded "reconcile.refunded" "The gateway has refunded the charge; nothing of it is written down."

    WebhookStored "webhook.stored" "The webhook is stored as evidence, and that is committed; the gateway has not had its 200."
}
