//! The metrics page: the two families of the published system with their exact names and labels, and companions.
//!
//! The pool's task hands over a [`Scrape`]; nothing here keeps state of its own, so a pod that is gone leaves no series.

mod hold;
mod page;
mod scrapers;

use std::net::SocketAddr;

use gpupool_core::pool::{Millis, PodState, Policy};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::admin_api::{HoldStatus, WhyHeldBack, policy_name};
use crate::pod::PodRef;
use crate::worker::Workers;

/// The namespace of all pods on a machine without a cluster.
const NAMESPACE: &str = "default";

/// Upper bounds of the waits' histogram, in seconds.
const WAITS: [f64; 9] = [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0];

/// Serves the page in a thread of its own, and says on which address. `scrape` is asked at a request, at most ten times
/// a second; it gives `None` when the agent goes down.
pub(crate) async fn serve<F, A>(
    address: SocketAddr,
    workers: &Workers,
    scrape: F,
) -> std::io::Result<SocketAddr>
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Option<Scrape>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    // It goes to the other runtime.
    let listener = listener.into_std()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    workers.start("metrics", move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => scrapers::serve(listener, page::Page::new(scrape)).await,
                Err(failure) => failure.to_string(),
            }
        })
    })?;
    Ok(address)
}

/// What is counted from the agent's start.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    /// Leases granted.
    admissions: Counter,
    /// How long their pods had waited, in seconds.
    waits: Histogram,
    /// Pods told to make room for another.
    pub(crate) preemptions: Counter,
    /// Pods whose processes were killed on their card when the grace was over.
    pub(crate) kills: Counter,
    /// Pods whose GPU processes were ended because they took more than their limit.
    pub(crate) evictions: Counter,
    /// Programs that were refused.
    pub(crate) refusals: Counter,
    /// Messages that were none, or out of turn.
    pub(crate) rubbish: Counter,
    /// Writes of the journal that failed.
    pub(crate) journal_failures: Counter,
    /// Events that the pool did not accept.
    pub(crate) disagreements: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            admissions: Counter::default(),
            waits: Histogram::new(WAITS),
            preemptions: Counter::default(),
            kills: Counter::default(),
            evictions: Counter::default(),
            refusals: Counter::default(),
            rubbish: Counter::default(),
            journal_failures: Counter::default(),
            disagreements: Counter::default(),
        }
    }
}

impl Counters {
    /// A pod was granted a card after it had waited so long.
    pub(crate) fn admitted(&self, waited: Millis) {
        self.admissions.inc();
        self.waits.observe(seconds(waited));
    }
}

/// One pod at the moment of a scrape.
#[derive(Debug)]
pub(crate) struct PodSample {
    /// What the pool knows it by: its name on a machine without a cluster.
    pub(crate) id: String,
    /// In a cluster: which object it is.
    pub(crate) reference: Option<PodRef>,
    /// Where it stands.
    pub(crate) state: PodState,
    /// Its place, while it waits.
    pub(crate) position: Option<u32>,
    /// Bytes of device memory it holds, while it runs and that is known.
    pub(crate) memory_used: Option<u64>,
    /// Percent of the whole card that its processes used, while it runs and that is known.
    pub(crate) utilisation: Option<u32>,
    /// Index and UUID of its card, while it runs.
    pub(crate) card: Option<(u32, String)>,
    /// How it is held to its limits.
    pub(crate) hold: HoldStatus,
}

/// One card at the moment of a scrape.
#[derive(Debug)]
pub(crate) struct CardSample {
    /// Its number on this machine.
    pub(crate) index: u32,
    /// What it is known by.
    pub(crate) uuid: String,
    /// Core taken by limits, percent.
    pub(crate) core: u32,
    /// Memory taken by limits, percent.
    pub(crate) memory: u32,
    /// Processes of no pod that use it.
    pub(crate) strangers: usize,
    /// Why it is held back from others.
    pub(crate) held_back: Vec<WhyHeldBack>,
}

/// Everything that the page says.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// The machine's name.
    pub(crate) node: String,
    /// How the cards are shared, if they are.
    pub(crate) policy: Option<Policy>,
    /// Whether to say what each pod uses of its card.
    pub(crate) device_metrics: bool,
    /// The pods by name.
    pub(crate) pods: Vec<PodSample>,
    /// The cards by index.
    pub(crate) cards: Vec<CardSample>,
    /// Pods that wait.
    pub(crate) queue_length: usize,
    /// How long the one that has waited longest waits.
    pub(crate) oldest_wait: Millis,
    /// Open connections.
    pub(crate) connections: usize,
    /// Lines of the log that nobody read.
    pub(crate) log_lines_lost: u64,
    /// What was counted.
    pub(crate) counters: Counters,
}

impl Scrape {
    /// The page in `OpenMetrics` text.
    pub(crate) fn text(self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn pod_labels<'a>(&'a self, pod: &'a PodSample) -> [(&'static str, &'a str); 3] {
        let (name, namespace) = match &pod.reference {
            Some(reference) => (reference.name.as_str(), reference.namespace.as_str()),
            None => (pod.id.as_str(), NAMESPACE),
        };
        [("NodeName", self.node.as_str()), ("pod", name), ("namespace", namespace)]
    }

    fn pods(&self, out: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let state = |pod: &PodSample| match pod.state {
            PodState::Hibernating => 0,
            PodState::Ready => 1,
            PodState::Running => 2,
        };
        let states = self.pods.iter().map(|pod| (self.pod_labels(pod), state(pod)));
        family(
            out,
            "DCGM_FI_POOLING_STATUS",
            "GPU sharing state of the pod: 0 hibernating, 1 ready, 2 running",
            states,
        )?;
        let positions =
            self.pods.iter().filter_map(|pod| Some((self.pod_labels(pod), i64::from(pod.position?))));
        family(
            out,
            "DCGM_FI_POOLING_POSITION",
            "Position of the pod in the queue, from 1; only while it is ready",
            positions,
        )?;
        if self.device_metrics { self.devices(out) } else { Ok(()) }
    }

    /// What each pod uses of its card: absolute, of the whole card, under the card's own number.
    fn devices(&self, out: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let samples = |value: fn(&PodSample) -> Option<i64>| {
            self.pods.iter().filter_map(move |pod| {
                let (index, uuid) = pod.card.as_ref()?;
                let [node, name, namespace] =
                    self.pod_labels(pod).map(|(key, value)| (key, value.to_owned()));
                let labels = [("gpu", index.to_string()), ("UUID", uuid.clone()), name, namespace, node];
                Some((labels, value(pod)?))
            })
        };
        let help = "Percent of the whole card that the pod's processes used in the last second";
        family(out, "DCGM_FI_DEV_GPU_UTIL", help, samples(|pod| pod.utilisation.map(i64::from)))?;
        let help = "Device memory that the pod's processes hold, in MiB";
        let mebibytes = |pod: &PodSample| i64::try_from(pod.memory_used? >> 20).ok();
        family(out, "DCGM_FI_DEV_FB_USED", help, samples(mebibytes))
    }

    fn cards(&self, out: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut descriptor = out.encode_descriptor(
            "gpushare_device_limit_ratio",
            "Share of the card that the limits of running pods take, from 0 to 1",
            None,
            MetricType::Gauge,
        )?;
        for card in &self.cards {
            for (dimension, percent) in [("core", card.core), ("memory", card.memory)] {
                let labels = [
                    ("node", self.node.clone()),
                    ("gpu", card.index.to_string()),
                    ("UUID", card.uuid.clone()),
                    ("dimension", dimension.to_owned()),
                ];
                let gauge = ConstGauge::new(f64::from(percent) / 100.0);
                gauge.encode(descriptor.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn node(&self, out: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let node = || [("node", self.node.as_str())];
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        family(
            out,
            "gpushare_queue_length",
            "Pods that wait for a card",
            [(node(), count(self.queue_length))],
        )?;
        let oldest = ConstGauge::new(seconds(self.oldest_wait));
        one(
            out,
            "gpushare_oldest_wait_seconds",
            "How long the pod that has waited longest waits",
            &node(),
            &oldest,
        )?;
        let policy = self.policy.map_or("none", policy_name);
        let labels = [("node", self.node.as_str()), ("policy", policy)];
        family(out, "gpushare_policy_info", "How the node's cards are shared", [(labels, 1)])?;
        one(out, "gpushare_admissions", "Leases granted", &labels, &self.counters.admissions)?;
        one(
            out,
            "gpushare_wait_seconds",
            "How long pods waited until they were granted a card",
            &node(),
            &self.counters.waits,
        )?;
        let outcomes = [("preempted", &self.counters.preemptions), ("killed", &self.counters.kills)];
        let mut descriptor = out.encode_descriptor(
            "gpushare_preemptions",
            "Pods told to make room for another, and pods killed on their card when the grace was over",
            None,
            MetricType::Counter,
        )?;
        for (outcome, counter) in outcomes {
            let labels = [("node", self.node.as_str()), ("outcome", outcome)];
            counter.encode(descriptor.encode_family(&labels)?)?;
        }
        family(
            out,
            "gpupool_connections",
            "Open connections of programs and people",
            [(node(), count(self.connections))],
        )?;
        one(out, "gpupool_refusals", "Programs that were refused", &node(), &self.counters.refusals)?;
        one(
            out,
            "gpupool_rubbish",
            "Messages from programs that were none, or out of turn",
            &node(),
            &self.counters.rubbish,
        )?;
        let failures = &self.counters.journal_failures;
        one(out, "gpupool_journal_failures", "Writes of the journal that failed", &node(), failures)?;
        let lost = ConstCounter::new(self.log_lines_lost);
        one(out, "gpupool_log_lines_lost", "Lines of the log that nobody read", &node(), &lost)?;
        let disagreements = &self.counters.disagreements;
        one(
            out,
            "gpupool_disagreements",
            "Events that the pool did not accept: a defect",
            &node(),
            disagreements,
        )
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        self.pods(&mut encoder)?;
        self.hold(&mut encoder)?;
        self.cards(&mut encoder)?;
        self.node(&mut encoder)
    }
}

/// A family of whole-number gauges, in the order given.
fn family<L: EncodeLabelSet>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (L, i64)>,
) -> std::fmt::Result {
    let mut descriptor = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        ConstGauge::new(value).encode(descriptor.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A family of one series.
fn one<L: EncodeLabelSet>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    labels: &L,
    metric: &impl EncodeMetric,
) -> std::fmt::Result {
    let mut descriptor = out.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(descriptor.encode_family(labels)?)
}

fn seconds(span: Millis) -> f64 {
    std::time::Duration::from_millis(span.0).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape() -> Scrape {
        let pod = |name: &str, state, position| PodSample {
            id: name.to_owned(),
            reference: None,
            state,
            position,
            memory_used: (state == PodState::Running).then_some(3 << 20),
            utilisation: (state == PodState::Running).then_some(42),
            card: (state == PodState::Running).then(|| (1, "GPU-b".to_owned())),
            hold: hold::tests::held(state == PodState::Running),
        };
        let counters = Counters::default();
        counters.admitted(Millis(1500));
        Scrape {
            log_lines_lost: 3,
            node: "a-node".to_owned(),
            policy: Some(Policy::SharePool),
            device_metrics: true,
            pods: vec![
                pod("A", PodState::Running, None),
                pod("B \"quoted\" \\", PodState::Ready, Some(1)),
                pod("C", PodState::Hibernating, None),
            ],
            cards: vec![CardSample {
                index: 0,
                uuid: "GPU-a".to_owned(),
                core: 50,
                memory: 100,
                strangers: 2,
                held_back: vec![WhyHeldBack::Stranger],
            }],
            queue_length: 1,
            oldest_wait: Millis(2500),
            connections: 2,
            counters,
        }
    }

    #[test]
    fn the_published_families_have_their_exact_names_and_label_order() {
        let text = scrape().text().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let has = |line: &str| assert!(lines.contains(&line), "{line} is missing in\n{text}");
        has(r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="A",namespace="default"} 2"#);
        has(r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="B \"quoted\" \\",namespace="default"} 1"#);
        has(r#"DCGM_FI_POOLING_STATUS{NodeName="a-node",pod="C",namespace="default"} 0"#);
        has(r#"DCGM_FI_POOLING_POSITION{NodeName="a-node",pod="B \"quoted\" \\",namespace="default"} 1"#);
        has(r#"DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",pod="A",namespace="default",NodeName="a-node"} 42"#);
        has(r#"DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",pod="A",namespace="default",NodeName="a-node"} 3"#);
        assert_eq!(text.matches("DCGM_FI_POOLING_POSITION{").count(), 1, "only while ready");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn beside_an_exporter_of_nvidias_the_page_leaves_its_families_out() {
        let text = Scrape { device_metrics: false, ..scrape() }.text().unwrap();
        assert!(!text.contains("DCGM_FI_DEV_") && text.contains("DCGM_FI_POOLING_STATUS{"));
    }

    #[test]
    fn a_node_that_shares_nothing_says_so() {
        let text = Scrape { policy: None, ..scrape() }.text().unwrap();
        assert!(text.contains(r#"gpushare_policy_info{node="a-node",policy="none"} 1"#), "{text}");
    }

    #[test]
    fn the_companions_are_there() {
        let text = scrape().text().unwrap();
        for line in [
            r#"gpushare_queue_length{node="a-node"} 1"#,
            r#"gpushare_oldest_wait_seconds{node="a-node"} 2.5"#,
            r#"gpushare_admissions_total{node="a-node",policy="share-pool"} 1"#,
            r#"gpushare_wait_seconds_bucket{le="1.0",node="a-node"} 0"#,
            r#"gpushare_wait_seconds_bucket{le="5.0",node="a-node"} 1"#,
            r#"gpushare_preemptions_total{node="a-node",outcome="preempted"} 0"#,
            r#"gpushare_device_limit_ratio{node="a-node",gpu="0",UUID="GPU-a",dimension="core"} 0.5"#,
            r#"gpushare_device_limit_ratio{node="a-node",gpu="0",UUID="GPU-a",dimension="memory"} 1.0"#,
            r#"gpupool_unaccounted_memory_bytes{NodeName="a-node",pod="A",namespace="default"} 4096"#,
            r#"gpupool_not_held_processes{NodeName="a-node",pod="A",namespace="default"} 1"#,
            r#"gpupool_not_held_processes{NodeName="a-node",pod="C",namespace="default"} 0"#,
            r#"gpupool_hold_info{NodeName="a-node",pod="A",namespace="default",memory="partly",core="unlimited"} 1"#,
            r#"gpupool_stranger_processes{node="a-node",gpu="0",UUID="GPU-a"} 2"#,
            r#"gpupool_card_held_back{node="a-node",gpu="0",UUID="GPU-a",why="stranger"} 1"#,
            r#"gpupool_card_held_back{node="a-node",gpu="0",UUID="GPU-a",why="kept-after-release"} 0"#,
            r#"gpupool_evictions_total{node="a-node"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
