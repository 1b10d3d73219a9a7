//! Answers to draws for a day or month that was not the present one by the store's clock.

use super::{After, Grant, OnTheWay, SharedQuota};
use crate::store::ledger::Ledger;
use crate::store::seen::Seen;

impl SharedQuota {
    /// Drops the permits of the grant, which belong to another day or month, and counts them as
    /// lost. The waiting calls ask again.
    pub(super) fn drop_grant(&self, ledger: &mut Ledger, sent: OnTheWay, grant: &Grant) -> After {
        ledger.note_back(sent.is_reporting(), sent.is_late);
        let now = grant.received;
        let seen = Seen::new(grant.bucket, grant.rest, grant.sent, now);
        ledger.see_time(seen);
        if !sent.is_late && ledger.is_news(grant.sent) {
            self.rule.note_seen(seen);
            ledger.see(seen, u32::MAX);
        }
        ledger.reported(&sent.unknown, sent.report, now);
        self.rule.figures.counts().lost.add(grant.permits.into());
        ledger.ask_again(sent.askers, None);
        Self::after(ledger, now, false)
    }
}
