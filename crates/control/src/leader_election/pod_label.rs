//! Says on this process's own pod whether it leads, by a label.
//!
//! A Service can select only pods: the one for the scheduler extender selects the pod with the label, so that the
//! scheduler meets the leader. A pod that still carries the label after it lost the lead answers with an error, which
//! the scheduler retries.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use crate::api_server::bounded;

/// The label. Its value is `true` on the leader's pod; others do not have it.
pub const LEADER_LABEL: &str = "gpupool.io/leader";

/// Between two attempts.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Keeps the label of the pod in step with `leading`, for as long as it is polled.
pub(crate) async fn keep_pod_label(pods: Api<Pod>, name: String, mut leading: watch::Receiver<bool>) {
    loop {
        let leads = *leading.borrow_and_update();
        let value = leads.then_some("true");
        let patch = json!({"metadata": {"labels": {LEADER_LABEL: value}}});
        let written =
            bounded(pods.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        let pause = match written {
            Ok(_) => None,
            Err(failure) => {
                warn!(pod = name, %failure, "cannot say on this pod who leads; trying again");
                Some(RETRY_PERIOD)
            }
        };
        tokio::select! {
            changed = leading.changed() => if changed.is_err() { return },
            () = pause_or_forever(pause) => {}
        }
    }
}

async fn pause_or_forever(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
