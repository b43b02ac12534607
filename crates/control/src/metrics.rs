//! Figures for Prometheus.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::http_server::{ConnectionLimits, serve_plain};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Whoever reads figures does so now and then.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { total: 32, per_peer: 16 };

/// Which write, and what became of it.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WriteLabels {
    kind: &'static str,
    outcome: &'static str,
}

/// Which nodes.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct NodeLabels {
    r#use: String,
    reason: String,
}

/// The nodes at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodesSnapshot {
    /// How many nodes, by effective use and the condition's reason; the reason is empty where there is no condition.
    pub(crate) nodes: BTreeMap<(String, String), i64>,
    /// How many wait to be looked at or are being written.
    pub(crate) pending: i64,
    /// Whether this process leads.
    pub(crate) leading: bool,
}

/// A request of the metrics page: where the answer goes.
pub(crate) type SnapshotRequest = oneshot::Sender<NodesSnapshot>;

/// The figures, shared by all who count.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    writes: Family<WriteLabels, Counter>,
    nodes: Family<NodeLabels, Gauge>,
    pending: Gauge,
    leading: Gauge,
}

impl Metrics {
    /// `log_lines_lost` says how many lines of the log nobody read.
    pub(crate) fn new(log_lines_lost: fn() -> u64) -> Self {
        let mut registry = Registry::with_prefix("gpupool_control");
        let (writes, nodes) = (Family::default(), Family::default());
        let (pending, leading) = (Gauge::default(), Gauge::default());
        registry.register(
            "writes",
            "Requests that change something, by kind and outcome",
            Family::clone(&writes),
        );
        registry.register(
            "nodes",
            "GPU nodes, by effective use and the reason of their condition",
            Family::clone(&nodes),
        );
        registry.register(
            "pending",
            "Nodes that wait to be looked at or are being written",
            Gauge::clone(&pending),
        );
        registry.register_collector(Box::new(Log { lines_lost: log_lines_lost }));
        registry.register("leading", "1 in the process that writes", Gauge::clone(&leading));
        Self { registry: Arc::new(registry), writes, nodes, pending, leading }
    }

    /// Counts a write: what was written, and what became of it.
    pub(crate) fn written(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind, outcome }).inc();
    }

    /// The figures as Prometheus reads them.
    pub(crate) fn text(&self, snapshot: NodesSnapshot) -> Result<String, std::fmt::Error> {
        self.nodes.clear();
        for ((r#use, reason), count) in snapshot.nodes {
            self.nodes.get_or_create(&NodeLabels { r#use, reason }).set(count);
        }
        self.pending.set(snapshot.pending);
        self.leading.set(snapshot.leading.into());
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What the log counts itself.
#[derive(Debug)]
struct Log {
    lines_lost: fn() -> u64,
}

impl Collector for Log {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let lost = ConstCounter::new((self.lines_lost)());
        let help = "Lines of the log that nobody read";
        let descriptor = encoder.encode_descriptor("log_lines_lost", help, None, MetricType::Counter)?;
        lost.encode(descriptor)
    }
}

/// A page with the figures, and one that says that the process lives.
#[derive(Debug)]
pub struct MetricsPage {
    listener: TcpListener,
}

impl MetricsPage {
    /// Opens the page. Whoever can reach the address can read it: choose a loopback address or a private network.
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// Where it is, with the port that was chosen if none was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves it until `stop` says true.
    pub(crate) async fn serve(
        self,
        metrics: Metrics,
        requests: mpsc::Sender<SnapshotRequest>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let page = get(move || {
            let (metrics, requests) = (metrics.clone(), requests.clone());
            async move {
                let text = text(&metrics, &requests).await.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
                Ok::<_, StatusCode>(([(CONTENT_TYPE, OPEN_METRICS)], text))
            }
        });
        let router = Router::new().route("/metrics", page).route("/healthz", get(|| async { "ok\n" }));
        serve_plain(self.listener, CONNECTIONS, router, stop).await
    }
}

async fn text(metrics: &Metrics, requests: &mpsc::Sender<SnapshotRequest>) -> Option<String> {
    let (request, answer) = oneshot::channel();
    requests.send(request).await.ok()?;
    metrics.text(answer.await.ok()?).ok()
}
