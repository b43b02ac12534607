//! The inventory: a row per use and resource, and idle stock beside a waiting queue called out.

use std::collections::BTreeMap;

use super::{INVALID, Stock, UNLABELLED, is_gpu};
use crate::names::classify;
use crate::node_use::NodeUse;
use crate::quantity::Quantity;

/// The GPU stock, in rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inventory {
    /// In order of use (container, vm-passthrough, vm-vgpu, unlabelled, invalid, others) and resource.
    pub rows: Vec<Row>,
    /// Idle stock while others wait.
    pub idle: Vec<Idle>,
}

/// A resource on the nodes of one use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// The use, by the nodes' label; `unlabelled`, `invalid`, or what waiting pods select although no node has it.
    pub node_use: String,
    /// The resource's name, with its domain.
    pub resource: String,
    /// Nodes that advertise it or still hold it in `capacity`.
    pub nodes: u32,
    /// The sum of `capacity` on these nodes.
    pub capacity: Quantity,
    /// The sum of `allocatable` on these nodes.
    pub allocatable: Quantity,
    /// What pods on these nodes ask for.
    pub requested: Quantity,
    /// What is left on nodes that are ready and not cordoned.
    pub free: Quantity,
    /// Pods that wait for it here. A pod that selects no use is counted where the resource belongs.
    pub waiting: u32,
}

/// Stock that lies idle while pods wait for another resource, which has nothing left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Idle {
    /// The use of the nodes with idle stock.
    pub node_use: String,
    /// The resource that is left, by name.
    pub resource: String,
    /// How many of it are free on nodes that are ready and not cordoned.
    pub free: Quantity,
    /// The use that pods wait for.
    pub wanted_use: String,
    /// The resource that they wait for, by name.
    pub wanted: String,
    /// How many pods wait.
    pub waiting: u32,
}

/// The inventory of a stock: a row for each use and resource, and what lies idle.
pub fn inventory(stock: &Stock) -> Inventory {
    let mut rows: BTreeMap<(usize, String, String), Row> = BTreeMap::new();
    let mut row = |node_use: &str, resource: &str, fill: &mut dyn FnMut(&mut Row)| {
        let key = (rank(node_use), node_use.to_owned(), resource.to_owned());
        fill(rows.entry(key).or_insert_with(|| Row::empty(node_use, resource)));
    };
    for rack in &stock.nodes {
        let listed = rack.node.allocatable.iter().chain(&rack.node.capacity).chain(&rack.requested);
        let mut resources: Vec<&String> =
            listed.filter(|(name, amount)| is_gpu(name) && !amount.is_zero()).map(|(name, _)| name).collect();
        resources.sort_unstable();
        resources.dedup();
        for resource in resources {
            row(rack.use_word(), resource, &mut |row| {
                row.nodes += 1;
                row.capacity =
                    row.capacity.plus(rack.node.capacity.get(resource).copied().unwrap_or(Quantity::ZERO));
                row.allocatable = row.allocatable.plus(rack.allocatable(resource));
                row.requested =
                    row.requested.plus(rack.requested.get(resource).copied().unwrap_or(Quantity::ZERO));
                if rack.is_open() {
                    row.free = row.free.plus(rack.free(resource));
                }
            });
        }
    }
    for (resource, selected_use) in waits(stock) {
        let node_use = selected_use.map_or_else(|| home(stock, resource), str::to_owned);
        row(&node_use, resource, &mut |row| row.waiting += 1);
    }
    let rows: Vec<Row> = rows.into_values().collect();
    Inventory { idle: idle(&rows), rows }
}

impl Row {
    fn empty(node_use: &str, resource: &str) -> Self {
        let zero = Quantity::ZERO;
        Self {
            node_use: node_use.to_owned(),
            resource: resource.to_owned(),
            nodes: 0,
            capacity: zero,
            allocatable: zero,
            requested: zero,
            free: zero,
            waiting: 0,
        }
    }
}

/// Every GPU resource that a waiting pod asks for, with the use that the pod selects.
fn waits(stock: &Stock) -> impl Iterator<Item = (&str, Option<&str>)> {
    stock.waiting.iter().flat_map(|waiting| {
        let asked = waiting.requests.iter().filter(|(name, amount)| is_gpu(name) && !amount.is_zero());
        asked.map(|(name, _)| (name.as_str(), waiting.selected_use.as_deref()))
    })
}

/// The use under which pods wait that ask for a resource and select no use: where it is advertised, first of all
/// where its name belongs; else where its name belongs.
fn home(stock: &Stock, resource: &str) -> String {
    let natural = NodeUse::advertising(classify(resource)).unwrap_or_default().value();
    let advertising = stock.nodes.iter().filter(|rack| !rack.allocatable(resource).is_zero());
    let found = advertising
        .map(super::NodeUsage::use_word)
        .min_by_key(|&node_use| (node_use != natural, rank(node_use)));
    found.unwrap_or(natural).to_owned()
}

fn rank(node_use: &str) -> usize {
    let known = [
        NodeUse::Container.value(),
        NodeUse::VmPassthrough.value(),
        NodeUse::VmVgpu.value(),
        UNLABELLED,
        INVALID,
    ];
    known.iter().position(|known| *known == node_use).unwrap_or(known.len())
}

/// A queue with nothing left of what it wants, beside each row of the same domain that has something left. Shares
/// and whole cards are not compared: they may be the same cards.
fn idle(rows: &[Row]) -> Vec<Idle> {
    let domain = |row: &Row| row.resource.split('/').next().map(str::to_owned);
    let queues = rows.iter().filter(|row| row.waiting > 0 && row.free.is_zero());
    queues
        .flat_map(|queue| {
            let beside = move |row: &&Row| !row.free.is_zero() && domain(row) == domain(queue);
            rows.iter().filter(beside).map(move |row| Idle {
                node_use: row.node_use.clone(),
                resource: row.resource.clone(),
                free: row.free,
                wanted_use: queue.node_use.clone(),
                wanted: queue.resource.clone(),
                waiting: queue.waiting,
            })
        })
        .collect()
}
