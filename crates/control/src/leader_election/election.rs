//! Who of several controllers writes: the rules of leader election by a `coordination.k8s.io/v1` Lease.
//!
//! Pure: records and local time come in, the next step goes out; `candidate` talks to the API server. The rules are
//! those of client-go's `leaderelection`: a record counts as expired when *this* process has seen it unchanged for
//! its duration, so clocks of different machines are never compared; and a leader that could not renew in time
//! stops leading before anybody else may start.
//!
//! Written here because kube has none and `kube-leader-election` (0.44) is bound to an older kube, which would
//! bring a second client into the tree, and compares the clocks of different machines.

use std::time::Duration;

/// For how long a record is good after its last renewal.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed for this long stops leading: well before [`LEASE_DURATION`] has passed.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two reads of the record.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// What a Lease says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct LeaseRecord {
    /// Who leads; empty after a leader has stepped down.
    pub(crate) holder: String,
    /// For how long the record is good.
    pub(crate) duration: Duration,
    /// Which version of the object this is. Any renewal changes it.
    pub(crate) version: String,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ElectionStep {
    /// There is no record: create one with this process as the holder.
    Create,
    /// The record is free, expired or our own: write this process into it, on the condition that it is unchanged.
    Take,
    /// Somebody else leads.
    Wait,
}

/// One process's view of the election. Moments are of a monotonic clock: how long after its start, which may be any.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    seen: Option<(LeaseRecord, Duration)>,
    renewed: Option<Duration>,
}

impl Election {
    /// `identity` must differ between processes.
    pub(crate) fn new(identity: String) -> Self {
        Self { identity, seen: None, renewed: None }
    }

    /// Who this process is.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Takes notice of what the record says now, nothing if there is none, and says what to do.
    pub(crate) fn observe(&mut self, record: Option<LeaseRecord>, now: Duration) -> ElectionStep {
        let Some(record) = record else {
            self.seen = None;
            return ElectionStep::Create;
        };
        let since = match &self.seen {
            Some((known, since)) if *known == record => *since,
            _ => now,
        };
        let free = record.holder.is_empty() || record.holder == self.identity;
        let expired = now.saturating_sub(since) >= record.duration;
        self.seen = Some((record, since));
        if free || expired { ElectionStep::Take } else { ElectionStep::Wait }
    }

    /// The record was written with this process as its holder. `requested` is the moment before the request was sent:
    /// others may count from any moment after it.
    pub(crate) fn taken(&mut self, requested: Duration) {
        self.renewed = Some(requested);
    }

    /// The record shows another holder, or this process stepped down.
    pub(crate) fn lost(&mut self) {
        self.renewed = None;
    }

    /// Until when this process leads if it does not renew; nothing if it does not lead.
    pub(crate) fn leads_until(&self) -> Option<Duration> {
        self.renewed.map(|renewed| renewed + RENEW_DEADLINE)
    }

    /// Whether this process leads at this moment.
    pub(crate) fn leads(&self, now: Duration) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(holder: &str, version: &str) -> LeaseRecord {
        LeaseRecord { holder: holder.to_owned(), duration: LEASE_DURATION, version: version.to_owned() }
    }

    fn me() -> Election {
        Election::new("me".to_owned())
    }

    #[test]
    fn the_first_comer_creates_the_record() {
        assert_eq!(me().observe(None, at(0)), ElectionStep::Create);
    }

    #[test]
    fn a_record_that_was_given_up_is_taken_at_once() {
        assert_eq!(me().observe(Some(record("", "1")), at(0)), ElectionStep::Take);
    }

    #[test]
    fn another_holder_is_waited_for_until_its_record_stood_still_for_its_duration() {
        let mut election = me();
        assert_eq!(election.observe(Some(record("other", "1")), at(100)), ElectionStep::Wait);
        assert_eq!(election.observe(Some(record("other", "1")), at(114)), ElectionStep::Wait);
        assert_eq!(election.observe(Some(record("other", "1")), at(115)), ElectionStep::Take);
    }

    #[test]
    fn a_renewal_starts_the_wait_anew() {
        let mut election = me();
        election.observe(Some(record("other", "1")), at(0));
        assert_eq!(election.observe(Some(record("other", "2")), at(14)), ElectionStep::Wait);
        assert_eq!(election.observe(Some(record("other", "2")), at(28)), ElectionStep::Wait);
        assert_eq!(election.observe(Some(record("other", "2")), at(29)), ElectionStep::Take);
    }

    #[test]
    fn a_leader_that_cannot_renew_stops_before_another_may_start() {
        let mut election = me();
        election.observe(None, at(0));
        election.taken(at(0));
        assert!(election.leads(at(9)));
        assert!(!election.leads(at(10)));
        assert!(RENEW_DEADLINE < LEASE_DURATION);
    }

    #[test]
    fn one_that_lost_does_not_lead() {
        let mut election = me();
        election.taken(at(0));
        election.lost();
        assert!(!election.leads(at(1)));
    }
}
