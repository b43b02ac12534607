//! Follows the `ClusterPolicy` objects of a cluster, where that kind is defined, as long as it is.

use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object, watcher};
use tokio::sync::watch;
use tracing::warn;

use super::policies::{ClusterPolicies, DEFINITION, resource};
use crate::api_server::WatchBackoff;

type PolicyEvents = BoxStream<'static, watcher::Result<watcher::Event<DynamicObject>>>;

/// Keeps `policies` at what the cluster says; nothing in it means that this is not known yet.
pub(crate) async fn follow(client: kube::Client, policies: watch::Sender<Option<ClusterPolicies>>) {
    let definitions: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
    let mut definition = watch_object(definitions, DEFINITION).backoff(WatchBackoff::default()).boxed();
    let mut events: Option<PolicyEvents> = None;
    let mut known = ClusterPolicies::default();
    loop {
        tokio::select! {
            Some(seen) = definition.next() => match seen {
                Ok(Some(_)) if events.is_none() => {
                    known.defined = true;
                    let all = Api::<DynamicObject>::all_with(client.clone(), &resource());
                    events = Some(watcher(all, watcher::Config::default()).backoff(WatchBackoff::default()).boxed());
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    events = None;
                    known = ClusterPolicies::default();
                    policies.send_replace(Some(known.clone()));
                }
                Err(failure) => {
                    warn!(%failure, "cannot watch the definition of ClusterPolicy");
                    if is_forbidden(&failure) && policies.borrow().is_none() {
                        warn!("not allowed to look for ClusterPolicy: the command line decides");
                        policies.send_replace(Some(known.clone()));
                    }
                }
            },
            event = next(&mut events) => if take(&mut known, event) {
                policies.send_replace(Some(known.clone()));
            },
            () = policies.closed() => return,
        }
    }
}

async fn next(events: &mut Option<PolicyEvents>) -> watcher::Result<watcher::Event<DynamicObject>> {
    if let Some(event) = match events {
        Some(events) => events.next().await,
        None => None,
    } {
        return event;
    }
    // No definition; or an ended stream, which a watcher's never is.
    std::future::pending().await
}

/// Takes notice of an event. Says whether what is known is whole, and so may be passed on.
fn take(known: &mut ClusterPolicies, event: watcher::Result<watcher::Event<DynamicObject>>) -> bool {
    match event {
        Ok(watcher::Event::Init) => known.clear(),
        Ok(watcher::Event::InitApply(object)) => known.apply(&object),
        Ok(watcher::Event::InitDone) => return true,
        Ok(watcher::Event::Apply(object)) => {
            known.apply(&object);
            return true;
        }
        Ok(watcher::Event::Delete(object)) => {
            known.delete(&object);
            return true;
        }
        Err(failure) => warn!(%failure, "cannot watch ClusterPolicy"),
    }
    false
}

fn is_forbidden(failure: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = failure else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
