//! Why a pod waits, and what would help.

use std::collections::BTreeMap;

use super::filters::{Exclusion, exclusion, is_selected};
use super::{NodeUsage, PodPhase, Resources, Stock, StockPod, is_gpu};
use crate::names::{known, nearest::nearest};
use crate::node_use::LABEL;
use crate::one_line::one_line;
use crate::quantity::Quantity;

/// How many nodes, pods or resources a sentence names before it counts the rest.
const NAMED: usize = 5;

/// What the scheduler can do with a pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outlook {
    /// It is bound to a node, or has ended.
    Placed,
    /// The scheduler does not look at it yet.
    Gated,
    /// Some node would take it.
    Fits,
    /// No node takes it.
    Stuck,
}

/// Why a pod waits, in sentences.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explanation {
    /// What the scheduler can do with it.
    pub outlook: Outlook,
    /// That in a sentence, with the pod's name.
    pub headline: String,
    /// Every node once, under the first reason that excludes it: the reason and the nodes, in node order.
    pub excluded: Vec<(String, Vec<String>)>,
    /// What it comes down to, a sentence per resource that is the obstacle.
    pub why: Vec<String>,
    /// What would help, a sentence each.
    pub helps: Vec<String>,
    /// What the scheduler itself said last.
    pub scheduler: Option<String>,
}

/// Explains a pod against the stock, in which it may already be counted.
pub fn explain(stock: &Stock, pod: &StockPod) -> Explanation {
    let name = one_line(&pod.full_name(), 520);
    let mut explanation = Explanation {
        outlook: Outlook::Placed,
        headline: String::new(),
        excluded: Vec::new(),
        why: Vec::new(),
        helps: Vec::new(),
        scheduler: pod.scheduler_message.as_deref().map(|message| one_line(message, 2000)),
    };
    match (&pod.node, pod.phase) {
        (_, PodPhase::Finished) => {
            explanation.headline = format!("{name} has ended: it waits for nothing and holds nothing");
        }
        (Some(node), _) => {
            explanation.headline =
                format!("{name} is not waiting: it is bound to node {}", one_line(node, 253));
        }
        (None, _) if !pod.gates.is_empty() => {
            explanation.outlook = Outlook::Gated;
            let gates: Vec<_> = pod.gates.iter().map(|gate| one_line(gate, 100)).collect();
            explanation.headline = format!("{name} waits for its scheduling gates: {}", gates.join(", "));
            explanation
                .helps
                .push("whoever set the gates has to remove them; nodes are not looked at before".to_owned());
        }
        (None, _) => place(stock, pod, &name, &mut explanation),
    }
    explanation
}

fn place(stock: &Stock, pod: &StockPod, name: &str, explanation: &mut Explanation) {
    let mut excluded: BTreeMap<(usize, String), Vec<String>> = BTreeMap::new();
    let mut fitting = Vec::new();
    for rack in &stock.nodes {
        match exclusion(pod, rack) {
            Some(why) => {
                excluded.entry((order(&why), sentence(&why, pod))).or_default().push(rack.node.name.clone());
            }
            None => fitting.push(rack.node.name.as_str()),
        }
    }
    explanation.excluded = excluded.into_iter().map(|((_, why), nodes)| (why, nodes)).collect();
    if !fitting.is_empty() {
        explanation.outlook = Outlook::Fits;
        explanation.headline = format!("{name} waits, but would fit on {}", listed(&fitting));
        explanation.helps.push(
            "if it stays so, look at what is not looked at here: the scheduler, volumes, ports, quotas, affinity between pods"
                .to_owned(),
        );
        return;
    }
    explanation.outlook = Outlook::Stuck;
    explanation.headline = format!("{name} waits: none of {} nodes takes it", stock.nodes.len());
    for (resource, &amount) in pod.requests.iter().filter(|(name, amount)| is_gpu(name) && !amount.is_zero())
    {
        Obstacle { stock, pod, resource, amount }.explain(explanation);
    }
    if explanation.why.is_empty() {
        explanation.why.push("the pod asks for no GPU that is the obstacle: see the nodes above".to_owned());
    }
}

/// The order of the scheduler's filters.
fn order(why: &Exclusion) -> usize {
    match why {
        Exclusion::Cordoned => 0,
        Exclusion::Tainted(_) => 1,
        Exclusion::Selector => 2,
        Exclusion::NotReady => 3,
        Exclusion::TooManyPods => 4,
        Exclusion::TooSmall(_) => 5,
        Exclusion::Taken(_) => 6,
    }
}

fn sentence(why: &Exclusion, pod: &StockPod) -> String {
    match why {
        Exclusion::Cordoned => "cordoned".to_owned(),
        Exclusion::NotReady => "not ready".to_owned(),
        Exclusion::Tainted(taint) => format!("tainted {taint}, which the pod does not tolerate"),
        Exclusion::Selector => format!("excluded by the pod's {}", selector(pod)),
        Exclusion::TooManyPods => "full: no more pods are allowed".to_owned(),
        Exclusion::TooSmall(resource) => format!("does not have so much {}", one_line(resource, 100)),
        Exclusion::Taken(resource) => format!("too little {} left", one_line(resource, 100)),
    }
}

fn selector(pod: &StockPod) -> String {
    let pairs = pod
        .node_selector
        .iter()
        .map(|(key, value)| format!("{}={}", one_line(key, 100), one_line(value, 63)));
    let pairs: Vec<_> = pairs.collect();
    match (pairs.is_empty(), pod.node_affinity.is_some()) {
        (true, _) => "node affinity".to_owned(),
        (false, false) => format!("node selector {}", pairs.join(",")),
        (false, true) => format!("node selector {} or node affinity", pairs.join(",")),
    }
}

/// A GPU resource that a pod asks for and does not get.
struct Obstacle<'a> {
    stock: &'a Stock,
    pod: &'a StockPod,
    resource: &'a str,
    amount: Quantity,
}

impl Obstacle<'_> {
    fn explain(&self, explanation: &mut Explanation) {
        let advertising: Vec<&NodeUsage> =
            self.stock.nodes.iter().filter(|rack| !rack.allocatable(self.resource).is_zero()).collect();
        if advertising.is_empty() {
            return self.advertised_nowhere(explanation);
        }
        let selected: Vec<&NodeUsage> =
            advertising.iter().copied().filter(|rack| is_selected(self.pod, rack)).collect();
        if selected.is_empty() {
            return self.advertised_elsewhere(&advertising, explanation);
        }
        let refusal = |rack: &&NodeUsage| exclusion(self.pod, rack);
        let refusals: Vec<Exclusion> = selected.iter().filter_map(refusal).collect();
        let about_stock = |why: &Exclusion| matches!(why, Exclusion::TooSmall(_) | Exclusion::Taken(_));
        if refusals.iter().any(about_stock) {
            self.too_little(&selected, explanation);
        } else {
            self.closed(&selected, &refusals, explanation);
        }
    }

    fn shown(&self) -> String {
        one_line(self.resource, 100)
    }

    fn advertised_nowhere(&self, explanation: &mut Explanation) {
        let resource = self.shown();
        let gone: Vec<&str> = self
            .stock
            .nodes
            .iter()
            .filter(|rack| {
                [&rack.node.allocatable, &rack.node.capacity]
                    .iter()
                    .any(|map| map.contains_key(self.resource))
            })
            .map(|rack| rack.node.name.as_str())
            .collect();
        if gone.is_empty() {
            explanation.why.push(format!("{resource} is advertised by no node"));
        } else {
            explanation.why.push(format!(
                "{resource} is advertised by no node any more: it stands at zero on {}",
                listed(&gone)
            ));
            explanation
                .helps
                .push(format!("see why the plugin that advertised {resource} there does so no more"));
        }
        let advertised = free_by_resource(self.stock.nodes.iter());
        let near = nearest(self.resource, advertised.keys().map(String::as_str), 3);
        if let [first, ..] = near[..] {
            explanation
                .helps
                .push(format!("ask for the nearest name that is advertised: {}", named(&advertised, &near)));
            explanation.why.push(format!("the nearest name that is advertised is {}", one_line(first, 100)));
        } else if let [first, ..] = nearest(self.resource, known::names().map(|(name, _)| name), 1)[..]
            && !known::is_known(self.resource)
        {
            explanation
                .helps
                .push(format!("no plugin makes this name; the nearest that one makes is nvidia.com/{first}"));
        } else if !advertised.is_empty() {
            let all: Vec<&str> = advertised.keys().map(String::as_str).collect();
            explanation.helps.push(format!("ask for what is advertised: {}", named(&advertised, &all)));
        }
    }

    fn advertised_elsewhere(&self, advertising: &[&NodeUsage], explanation: &mut Explanation) {
        let mut uses: Vec<&str> = advertising.iter().map(|rack| rack.use_word()).collect();
        uses.sort_unstable();
        uses.dedup();
        let names: Vec<&str> = advertising.iter().map(|rack| rack.node.name.as_str()).collect();
        let (resource, selector) = (self.shown(), selector(self.pod));
        explanation.why.push(format!(
            "{resource} is advertised only by {} nodes ({}), which the pod's {selector} excludes",
            uses.join(" and "),
            listed(&names)
        ));
        let there = free_by_resource(self.stock.nodes.iter().filter(|rack| is_selected(self.pod, rack)));
        if !there.is_empty() {
            let all: Vec<&str> = there.keys().map(String::as_str).collect();
            explanation
                .helps
                .push(format!("ask for what the selected nodes advertise: {}", named(&there, &all)));
        }
        explanation.helps.push(match self.pod.selected_use() {
            Some(_) => {
                format!("or take {LABEL} out of the node selector: the resource name alone finds the node")
            }
            None => format!("or change the {selector} so that it allows one of these nodes"),
        });
    }

    fn too_little(&self, selected: &[&NodeUsage], explanation: &mut Explanation) {
        let (resource, amount) = (self.shown(), self.amount);
        let most =
            selected.iter().map(|rack| rack.allocatable(self.resource)).max().unwrap_or(Quantity::ZERO);
        let left = selected.iter().map(|rack| rack.free(self.resource)).max().unwrap_or(Quantity::ZERO);
        if amount > most {
            explanation.why.push(format!(
                "the pod asks for {amount} of {resource}, and no node that it selects has more than {most}"
            ));
            explanation
                .helps
                .push(format!("ask for at most {most} a pod, or bring a larger node of this use"));
        } else if amount > left {
            let holders: Vec<&str> = selected
                .iter()
                .filter_map(|rack| rack.holders.get(self.resource))
                .flatten()
                .map(String::as_str)
                .collect();
            explanation.why.push(format!(
                "{resource} is taken: the pod asks for {amount}, and at most {left} is left on a node; held by {}",
                listed(&holders)
            ));
            explanation.helps.push(
                "wait for one of them to end, ask for less, or bring more nodes of this use".to_owned(),
            );
            let beside = self.stock.nodes.iter().filter(|rack| rack.is_open());
            let mut idle = free_by_resource(beside);
            idle.retain(|name, free| {
                !free.is_zero() && name != self.resource && crate::names::local_name(name).is_some()
            });
            if !idle.is_empty() {
                let all: Vec<&str> = idle.keys().map(String::as_str).collect();
                explanation.helps.push(format!("idle under other names: {}", named(&idle, &all)));
            }
        } else {
            explanation.why.push(format!(
                "{resource} is left, but the nodes that have it lack something else: see above"
            ));
            explanation
                .helps
                .push("ask for less cpu or memory, or move other pods away from these nodes".to_owned());
        }
    }

    fn closed(&self, selected: &[&NodeUsage], refusals: &[Exclusion], explanation: &mut Explanation) {
        let names: Vec<&str> = selected.iter().map(|rack| rack.node.name.as_str()).collect();
        explanation.why.push(format!(
            "{} is advertised by {}, but no pod of this kind is let in there",
            self.shown(),
            listed(&names)
        ));
        if refusals.contains(&Exclusion::Cordoned) {
            explanation.helps.push("uncordon a node".to_owned());
        }
        if let Some(Exclusion::Tainted(taint)) =
            refusals.iter().find(|why| matches!(why, Exclusion::Tainted(_)))
        {
            explanation.helps.push(format!("add a toleration of {taint} to the pod, if it may run there"));
        }
        if refusals.contains(&Exclusion::NotReady) {
            explanation.helps.push("see why the node is not ready".to_owned());
        }
    }
}

/// GPU resources that nodes advertise, with what is left of each where pods may go.
fn free_by_resource<'a>(racks: impl Iterator<Item = &'a NodeUsage>) -> Resources {
    let mut free = Resources::new();
    for rack in racks {
        for resource in rack.advertised() {
            let sum = free.entry(resource.to_owned()).or_insert(Quantity::ZERO);
            *sum = sum.plus(if rack.is_open() { rack.free(resource) } else { Quantity::ZERO });
        }
    }
    free
}

/// Resources with what is left of them, as part of a sentence.
fn named(free: &Resources, names: &[&str]) -> String {
    let left = |name: &str| free.get(name).copied().unwrap_or(Quantity::ZERO);
    let shown: Vec<String> =
        names.iter().map(|name| format!("{} ({} free)", one_line(name, 100), left(name))).collect();
    listed(&shown)
}

/// Some names as part of a sentence.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<String> = names.iter().take(NAMED).map(|name| one_line(name.as_ref(), 520)).collect();
    match names.len().saturating_sub(NAMED) {
        0 if names.is_empty() => "nobody".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
