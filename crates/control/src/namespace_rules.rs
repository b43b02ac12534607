//! What administrators allow limits to be in each namespace: `LimitRange`s, and ceilings on the namespace's object.
//!
//! Every process that answers admission follows both. What it has not seen yet it reads when it is asked; where that fails
//! there is no answer, and nobody is let in for want of one. What follows from the rules is decided in
//! `gpupool_core::sharing`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use gpupool_core::quantity::Quantity;
pub(crate) use gpupool_core::sharing::AllowedLimits;
use gpupool_core::sharing::{Ceiling, Dimension, RangeRule};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem, Namespace};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use kube::api::{Api, ListParams, ObjectMeta, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tracing::warn;

use crate::api_server::{WatchBackoff, bounded_by};

/// How long reading a namespace's rules may take: the API server waits 5 seconds for admission.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// The rules of all namespaces, as far as they were seen. Clones are the same one.
#[derive(Clone)]
pub struct NamespaceRules {
    client: kube::Client,
    seen: Arc<Mutex<Seen>>,
}

/// Why it is not known what a namespace allows.
#[derive(Debug, thiserror::Error)]
#[error(
    "gpupool cannot read which limits namespace \"{namespace}\" allows ({source}): try again in a moment; whoever administers the cluster finds the reason in gpupool control's log"
)]
pub(crate) struct UnknownRules {
    namespace: String,
    source: kube::Error,
}

/// What the watches have told. Nothing before each has listed everything once.
#[derive(Default)]
struct Seen {
    ceilings: Option<HashMap<String, Vec<Ceiling>>>,
    ranges: Option<Ranges>,
}

/// The rules of `LimitRange`s by namespace and name.
type Ranges = HashMap<String, BTreeMap<String, Vec<RangeRule>>>;

impl std::fmt::Debug for NamespaceRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamespaceRules").finish_non_exhaustive()
    }
}

impl NamespaceRules {
    /// Rules that nobody follows yet: each is read when it is asked for.
    pub fn new(client: kube::Client) -> Self {
        Self { client, seen: Arc::default() }
    }

    /// Follows namespaces and `LimitRange`s for as long as it is polled.
    pub async fn follow(self) {
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(self.client.clone());
        let ranges: Api<LimitRange> = Api::all(self.client.clone());
        let config = watcher::Config::default;
        let mut namespaces = watcher(namespaces, config()).backoff(WatchBackoff::default()).boxed();
        let mut ranges = watcher(ranges, config()).backoff(WatchBackoff::default()).boxed();
        let (mut listed_ceilings, mut listed_ranges) = (HashMap::new(), Ranges::new());
        loop {
            tokio::select! {
                Some(event) = namespaces.next() => match event {
                    Ok(event) => self.namespace_seen(event, &mut listed_ceilings),
                    Err(failure) => warn!(%failure, "cannot watch namespaces; trying again"),
                },
                Some(event) = ranges.next() => match event {
                    Ok(event) => self.range_seen(event, &mut listed_ranges),
                    Err(failure) => warn!(%failure, "cannot watch LimitRanges; trying again"),
                },
                else => return,
            }
        }
    }

    /// What a namespace allows. One that was not seen yet is read.
    pub(crate) async fn of(&self, namespace: &str) -> Result<AllowedLimits, UnknownRules> {
        if let Some(rules) = self.seen().rules(namespace) {
            return Ok(rules);
        }
        let read = bounded_by(READ_TIMEOUT, self.read(namespace)).await;
        read.map_err(|source| {
            warn!(namespace, failure = %source, "cannot read which limits a namespace allows");
            UnknownRules { namespace: namespace.to_owned(), source }
        })
    }

    async fn read(&self, namespace: &str) -> Result<AllowedLimits, kube::Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let ranges: Api<LimitRange> = Api::namespaced(self.client.clone(), namespace);
        let everything = ListParams::default();
        let (object, ranges) =
            tokio::try_join!(namespaces.get_metadata(namespace), ranges.list(&everything))?;
        Ok(AllowedLimits {
            namespace: namespace.to_owned(),
            ceilings: ceilings(&object.metadata),
            ranges: ranges.iter().flat_map(range_rules).collect(),
        })
    }

    fn namespace_seen(
        &self,
        event: Event<PartialObjectMeta<Namespace>>,
        listed: &mut HashMap<String, Vec<Ceiling>>,
    ) {
        let name = |meta: &ObjectMeta| meta.name.clone().unwrap_or_default();
        let mut seen = self.seen();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(one) => drop(listed.insert(name(&one.metadata), ceilings(&one.metadata))),
            Event::InitDone => seen.ceilings = Some(std::mem::take(listed)),
            Event::Apply(one) => {
                let Some(all) = &mut seen.ceilings else { return };
                all.insert(name(&one.metadata), ceilings(&one.metadata));
            }
            Event::Delete(one) => {
                let Some(all) = &mut seen.ceilings else { return };
                all.remove(&name(&one.metadata));
            }
        }
    }

    fn range_seen(&self, event: Event<LimitRange>, listed: &mut Ranges) {
        let mut seen = self.seen();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(one) => put(listed, &one),
            Event::InitDone => seen.ranges = Some(std::mem::take(listed)),
            Event::Apply(one) => {
                let Some(ranges) = &mut seen.ranges else { return };
                put(ranges, &one);
            }
            Event::Delete(one) => {
                let Some(ranges) = &mut seen.ranges else { return };
                let namespace = one.metadata.namespace.unwrap_or_default();
                let Some(there) = ranges.get_mut(&namespace) else { return };
                there.remove(&one.metadata.name.unwrap_or_default());
                if there.is_empty() {
                    ranges.remove(&namespace);
                }
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing in here can be left half done by a panic: every change is one call.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// The rules of a namespace that was seen.
    fn rules(&self, namespace: &str) -> Option<AllowedLimits> {
        let ceilings = self.ceilings.as_ref()?.get(namespace)?.clone();
        let ranges = self.ranges.as_ref()?.get(namespace);
        let ranges = ranges.into_iter().flat_map(BTreeMap::values).flatten().cloned().collect();
        Some(AllowedLimits { namespace: namespace.to_owned(), ranges, ceilings })
    }
}

fn put(ranges: &mut Ranges, range: &LimitRange) {
    let namespace = range.metadata.namespace.clone().unwrap_or_default();
    let name = range.metadata.name.clone().unwrap_or_default();
    ranges.entry(namespace).or_default().insert(name, range_rules(range));
}

fn ceilings(namespace: &ObjectMeta) -> Vec<Ceiling> {
    Ceiling::read(|name| namespace.annotations.as_ref()?.get(name).cloned())
}

/// What a `LimitRange` says about the two percentages.
fn range_rules(range: &LimitRange) -> Vec<RangeRule> {
    let name = range.metadata.name.as_deref().unwrap_or_default();
    let items = range.spec.iter().flat_map(|spec| &spec.limits);
    let items = items.filter(|item| ["Container", "Pod"].contains(&item.type_.as_str()));
    items.flat_map(|item| Dimension::ALL.map(|dimension| rule(name, item, dimension))).flatten().collect()
}

fn rule(name: &str, item: &LimitRangeItem, dimension: Dimension) -> Option<RangeRule> {
    let amount = |list: &Option<BTreeMap<String, QuantityText>>| {
        // The API server lets no unreadable quantity through.
        Quantity::parse(&list.as_ref()?.get(dimension.resource())?.0).ok()
    };
    let (min, max, ratio) = (amount(&item.min), amount(&item.max), amount(&item.max_limit_request_ratio));
    let says_something = min.is_some() || max.is_some() || ratio.is_some();
    says_something.then(|| RangeRule { name: name.to_owned(), dimension, min, max, ratio })
}
