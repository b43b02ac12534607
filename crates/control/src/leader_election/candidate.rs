//! Leader election against a real API server: writes what `election` decides into a Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::election::{Election, ElectionStep, LEASE_DURATION, LeaseRecord, RENEW_DEADLINE, RETRY_PERIOD};
use crate::api_server::bounded_by;

/// No single request may take longer: a leader must know in time that it could not renew.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// A candidate for the leadership of the controllers that share one Lease.
#[derive(Debug)]
pub(crate) struct Candidate {
    leases: Api<Lease>,
    name: String,
    election: Election,
    start: Instant,
    /// The object as last read, so that taking it fails if it was changed since.
    last: Option<Lease>,
    leading: watch::Sender<bool>,
}

impl Candidate {
    /// A candidate that writes the Lease `name`; `identity` must differ between processes.
    /// The receiver says at any moment whether this process leads.
    pub(crate) fn new(leases: Api<Lease>, name: String, identity: String) -> (Self, watch::Receiver<bool>) {
        let (leading, receiver) = watch::channel(false);
        let election = Election::new(identity);
        (Self { leases, name, election, start: Instant::now(), last: None, leading }, receiver)
    }

    /// Takes part until `stop` says true, then steps down so that another may start at once.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let pause = self.round().await;
            self.publish();
            let until = self.election.leads_until().map(|until| self.start + until);
            tokio::select! {
                // An error means that whoever could stop us has gone: that is a reason to stop as well.
                _ = stop.wait_for(|stop| *stop) => break,
                () = sleep(pause) => {}
                () = leadership_ends(until) => self.publish(),
            }
        }
        self.step_down().await;
    }

    /// Reads the record and renews or takes it where the rules say so. Returns how long to wait until the next round.
    async fn round(&mut self) -> Duration {
        let deadline = self.election.leads_until().map(|until| self.start + until);
        let result = match deadline {
            Some(deadline) => timeout_at(deadline, self.observe_and_take()).await,
            None => timeout(RENEW_DEADLINE, self.observe_and_take()).await,
        };
        match result {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                warn!(lease = self.name, %failure, "cannot renew or read the lease; trying again");
            }
            Err(_) => {
                warn!(lease = self.name, "the API server does not answer about the lease; trying again");
            }
        }
        RETRY_PERIOD
    }

    async fn observe_and_take(&mut self) -> Result<(), kube::Error> {
        if let Some(last) = self.last.take().filter(|_| self.election.leads(self.start.elapsed())) {
            // Nobody may change the record of a leader: if somebody did, this fails, and the next round reads it.
            return self.write(Some(last)).await;
        }
        let found = bounded_by(REQUEST_TIMEOUT, self.leases.get_opt(&self.name)).await?;
        if found.as_ref().is_some_and(|lease| holder(lease) != self.election.identity()) {
            self.election.lost();
        }
        match self.election.observe(found.as_ref().map(record), self.start.elapsed()) {
            ElectionStep::Wait => Ok(()),
            ElectionStep::Create => self.write(None).await,
            ElectionStep::Take => self.write(found).await,
        }
    }

    /// Writes this process into the record, on the condition that `found` is unchanged, or that there is none.
    async fn write(&mut self, found: Option<Lease>) -> Result<(), kube::Error> {
        let lease = self.claim(found.as_ref());
        let requested = self.start.elapsed();
        let written = match found {
            None => bounded_by(REQUEST_TIMEOUT, self.leases.create(&PostParams::default(), &lease)).await,
            Some(_) => {
                bounded_by(REQUEST_TIMEOUT, self.leases.replace(&self.name, &PostParams::default(), &lease))
                    .await
            }
        };
        match written {
            Ok(lease) => {
                self.election.taken(requested);
                self.last = Some(lease);
                Ok(())
            }
            // Somebody was faster, or took the record away: the next round shows.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// The record with this process as its holder, on the condition that `found` is unchanged.
    fn claim(&self, found: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = found.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let renewal = before.holder_identity.as_deref() == Some(self.election.identity());
        let transitions = before.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: Some(self.election.identity().to_owned()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: if renewal { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if renewal || found.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        };
        let metadata = found.map_or_else(
            || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        Lease { metadata, spec: Some(spec) }
    }

    fn publish(&mut self) {
        let leads = self.election.leads(self.start.elapsed());
        if !leads {
            // A deadline that has passed is none to wait for.
            self.election.lost();
        }
        self.leading.send_if_modified(|leading| {
            let changed = *leading != leads;
            *leading = leads;
            if changed {
                let identity = self.election.identity();
                info!(lease = self.name, identity, "{}", if leads { "leading" } else { "no longer leading" });
            }
            changed
        });
    }

    /// Gives the record up if it is this process's, so that nobody has to wait for it to expire.
    async fn step_down(&mut self) {
        let leads = self.election.leads(self.start.elapsed());
        self.election.lost();
        self.publish();
        let Some(mut lease) = self.last.take().filter(|_| leads) else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        if let Err(failure) =
            bounded_by(REQUEST_TIMEOUT, self.leases.replace(&self.name, &PostParams::default(), &lease)).await
        {
            warn!(lease = self.name, %failure, "could not give up the lease; others wait until it expires");
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn record(lease: &Lease) -> LeaseRecord {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    LeaseRecord {
        holder: holder(lease).to_owned(),
        duration: u64::try_from(seconds).map_or(LEASE_DURATION, Duration::from_secs),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

async fn leadership_ends(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
