//! Puts the process together: leader election, what is followed, what is served, and the node controller.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::admission;
use crate::cluster_policy;
use crate::extender::Extender;
use crate::health::HealthPage;
use crate::leader_election::{Candidate, keep_pod_label};
use crate::metrics::{Metrics, MetricsPage};
use crate::namespace_rules::NamespaceRules;
use crate::node_controller::NodeController;
use crate::serving::{ServedRoutes, Serving};
use crate::settings::ClusterSettings;

/// Requests for figures that may wait.
const SNAPSHOT_REQUESTS: usize = 4;

/// What the command line says.
#[derive(Debug)]
pub struct ControlConfig {
    /// Settings; those about sandbox workloads hold where there is no `ClusterPolicy`.
    pub settings: ClusterSettings,
    /// Who this process is. Must differ between processes of one cluster.
    pub identity: String,
    /// The namespace of the Lease; else the client's own.
    pub lease_namespace: Option<String>,
    /// The Lease by which controllers agree who of them writes.
    pub lease_name: String,
    /// The page with figures, if one is wanted.
    pub metrics: Option<MetricsPage>,
    /// The page that says whether the process lives and is ready, if one is wanted.
    pub health: Option<HealthPage>,
    /// This process's own pod, by its name in the client's namespace, to say there whether it leads.
    pub pod: Option<String>,
    /// The HTTPS servers for admission and the scheduler, if they are wanted.
    pub serving: Option<Serving>,
    /// Says how many lines of the log were lost because nobody read them.
    pub log_lines_lost: fn() -> u64,
}

/// Runs the controller until `stop` says true. It outlives any absence of the API server.
pub async fn run(client: kube::Client, config: ControlConfig, stop: watch::Receiver<bool>) {
    let namespace = config.lease_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let (candidate, leading) = Candidate::new(leases, config.lease_name, config.identity.clone());
    let (stop_candidate, candidate_stops) = watch::channel(false);
    let mut election = JoinSet::new();
    election.spawn(candidate.run(candidate_stops));

    let (policies_in, policies) = watch::channel(None);
    let mut side_tasks = JoinSet::new();
    side_tasks.spawn(cluster_policy::follow(client.clone(), policies_in));
    let metrics = Metrics::new(config.log_lines_lost);
    let (requests_in, requests) = mpsc::channel(SNAPSHOT_REQUESTS);
    if let Some(page) = config.metrics {
        let (metrics, stop) = (metrics.clone(), stop.clone());
        side_tasks.spawn(async move {
            if let Err(failure) = page.serve(metrics, requests_in, stop).await {
                warn!(%failure, "the metrics page has ended");
            }
        });
    }
    let (ready, readiness) = watch::channel(config.serving.is_none());
    if let Some(page) = config.health {
        let stop = stop.clone();
        side_tasks.spawn(async move {
            if let Err(failure) = page.serve(readiness, stop).await {
                warn!(%failure, "the page with this process's health has ended");
            }
        });
    }
    if let Some(pod) = config.pod {
        side_tasks.spawn(keep_pod_label(Api::default_namespaced(client.clone()), pod, leading.clone()));
    }
    let mut servers = JoinSet::new();
    if let Some(serving) = config.serving {
        let (client, leading, stop) = (client.clone(), leading.clone(), stop.clone());
        let extender = Extender::new(client.clone(), leading.clone());
        side_tasks.spawn(extender.clone().follow());
        let rules = NamespaceRules::new(client.clone());
        side_tasks.spawn(rules.clone().follow());
        let routes = ServedRoutes {
            admission: admission::router(&serving.settings.namespace, rules),
            extender: axum::Router::new().nest("/extender", extender.router()),
        };
        servers.spawn(async move { serving.run(&client, leading, routes, ready, stop).await });
    }
    let controller =
        NodeController::new(client, config.settings, &config.identity, metrics, policies, leading);
    controller.run(requests, stop).await;
    while servers.join_next().await.is_some() {}
    // The lease is given up last: whoever takes over must not meet writes of ours.
    let _ = stop_candidate.send(true);
    if let Some(Err(failure)) = election.join_next().await {
        warn!(%failure, "the election ended badly");
    }
}
