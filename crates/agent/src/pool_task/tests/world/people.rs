//! Who starts and ends pods: people with `gpupool run` and `gpupool stop`, and on a node of a cluster the API server.

use std::collections::BTreeMap;

use fastrand::Rng;
use gpupool_core::pool::{Limits, PodId, Policy};
use gpupool_core::share::{Percent, Share};

use super::gpus::TOTAL;
use super::kernel::{Kernel, Said};
use super::{World, tell};
use crate::admin_api::{Register, Reply, Request};
use crate::event::AgentEvent;
use crate::pod::{Asks, PodNews, PodOnNode, PodRef};
use crate::procfs::ProcessKey;

/// The user whose pods they are.
pub(super) const USER: u32 = 1000;

/// Pods at the same time.
const MOST_PODS: usize = 8;

/// A pod as it truly is, whatever the agent knows.
#[derive(Debug)]
pub(super) struct Pod {
    /// Some of its programs lie.
    pub(super) lies: bool,
    pub(super) limits: Limits,
    register: Register,
    /// Its `gpupool run`, and how far that is with its registration.
    pub(super) run: Option<Run>,
    /// Its object in the API.
    pub(super) object: Option<PodOnNode>,
    /// Somebody who may do so has asked for its end.
    pub(super) was_stopped: bool,
    /// Until when agents may not have heard of it, because a part of the journal was lost: `u64::MAX` until it is
    /// registered again.
    pub(super) forgotten_until: u64,
    /// When it was last told to terminate.
    pub(super) told_at: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: ProcessKey,
    socket: Option<usize>,
    pub(super) is_registered: bool,
    /// The agent that it asked last.
    asked: u32,
}

impl Pod {
    fn new(random: &mut Rng, name: &str) -> Self {
        let mut share = || {
            let request = random.u64(5..35);
            let most = if random.u8(..3) == 0 { 100 } else { 60 };
            Share::new(percent(request), percent(random.u64(request..=most))).expect("a share")
        };
        let (core, memory) = (share(), share());
        let register = Register { name: name.to_owned(), core, memory, priority: random.i32(0..3) };
        Self {
            lies: random.u8(..3) == 0,
            limits: Limits { core: core.limit(), memory: memory.limit() },
            register,
            run: None,
            object: None,
            was_stopped: false,
            forgotten_until: 0,
            told_at: None,
        }
    }

    /// May programs of it be started now?
    pub(super) fn is_there(&self, kernel: &Kernel) -> bool {
        match &self.run {
            Some(run) => run.is_registered && kernel.lives(run.key),
            None => self.object.is_some(),
        }
    }
}

fn percent(value: u64) -> Percent {
    Percent::new(value).expect("a percent")
}

/// A new pod; on a node of a cluster its object, else its `gpupool run`.
pub(super) fn new_pod(
    pods: &mut BTreeMap<PodId, Pod>,
    kernel: &mut Kernel,
    random: &mut Rng,
    in_cluster: bool,
    number: usize,
) -> PodId {
    let id: PodId = if in_cluster {
        format!("{number:08x}-0000-4000-8000-000000000000").as_str().into()
    } else {
        format!("pod-{number}").as_str().into()
    };
    let mut pod = Pod::new(random, id.as_str());
    if in_cluster {
        pod.object = Some(object(&id, &pod.register));
    } else {
        let key = kernel.spawn(1, None);
        kernel.reapers.insert(key);
        pod.run = Some(Run { key, socket: None, is_registered: false, asked: 0 });
    }
    kernel.limits.insert(id.clone(), TOTAL / 100 * u64::from(pod.limits.memory.get()));
    pods.insert(id.clone(), pod);
    id
}

fn object(id: &PodId, asked: &Register) -> PodOnNode {
    let asks = Asks {
        policy: Policy::SharePool,
        core: asked.core,
        memory: asked.memory,
        priority: asked.priority,
        card: None,
    };
    let uid = id.to_string();
    PodOnNode {
        id: id.clone(),
        reference: PodRef { namespace: "team".to_owned(), name: format!("n{uid}"), uid },
        asks: Ok(asks),
        turned_away: false,
        card: None,
    }
}

impl Pod {
    /// `gpupool run` registers with the agent that runs, which has a number, and with each later one again. What it did,
    /// in words.
    pub(super) fn register(&mut self, kernel: &mut Kernel, agent: Option<u32>) -> Option<&'static str> {
        let run = self.run.as_mut()?;
        let Some(socket) = run.socket else {
            let agent = agent.filter(|agent| *agent != run.asked && kernel.lives(run.key))?;
            let socket = kernel.connect(run.key, USER);
            kernel.say(socket, Said::Request(Request::Register(self.register.clone())));
            (run.socket, run.asked) = (Some(socket), agent);
            return Some("asks to be registered");
        };
        let reply = kernel.sockets.get_mut(&socket).and_then(|open| open.replies.pop_front());
        if reply.is_none() && kernel.is_open(socket) {
            return None;
        }
        run.socket = None;
        kernel.hang_up(socket);
        match reply {
            Some(Reply::Registered(_)) => {
                run.is_registered = true;
                if agent == Some(run.asked) {
                    self.forgotten_until = self.forgotten_until.min(kernel.now);
                }
                Some("is registered")
            }
            Some(_) if !run.is_registered => {
                kernel.end(run.key);
                Some("is not registered, and ends")
            }
            Some(_) | None => {
                run.asked = 0;
                Some("must ask again")
            }
        }
    }
}

impl World {
    /// Somebody starts, fills or ends a pod.
    pub(super) fn people_act(&mut self, random: &mut Rng) {
        let pods: Vec<PodId> = self.pods.keys().cloned().collect();
        let pod = random.choice(pods);
        match (random.u8(..14), pod) {
            (12..14, Some(pod)) => self.somebody_writes_objects(&pod, random),
            (0..4, _) | (_, None) if self.pods.len() < MOST_PODS => self.make_pod(random),
            (4..10, Some(pod)) => {
                if self.pods[&pod].is_there(&self.machine.kernel()) {
                    self.start_program(&pod, None, random);
                }
            }
            (10, Some(pod)) => self.stop_pod(&pod),
            (_, Some(pod)) => {
                // As `kill -9` of the run.
                let run = self.pods[&pod].run.as_ref().map(|run| run.key);
                if let Some(run) = run {
                    tell!(self, "the run of {pod} is killed");
                    self.machine.kernel().end(run);
                }
            }
            (_, None) => {}
        }
    }

    fn make_pod(&mut self, random: &mut Rng) {
        self.made += 1;
        let in_cluster = self.kind.in_cluster;
        let pod = new_pod(&mut self.pods, &mut self.machine.kernel(), random, in_cluster, self.made);
        let entry = &self.pods[&pod];
        tell!(self, "{pod} comes: {:?}{}", entry.limits, if entry.lies { ", and lies" } else { "" });
        if let (Some(object), Some(agent)) = (entry.object.clone(), &mut self.agent) {
            agent.news.push_back(AgentEvent::Pods(PodNews::Present(object)));
        }
        if in_cluster {
            self.start_program(&pod, None, random);
        }
    }

    /// Somebody who may write pods changes what a live one asks for, or makes and deletes an object that claims to be it.
    fn somebody_writes_objects(&mut self, pod: &PodId, random: &mut Rng) {
        let Some(mut object) = self.pods[pod].object.clone() else { return };
        let Some(agent) = &mut self.agent else { return };
        // Who comes first is who the agent takes for the pod.
        if agent.task.registry.pod(pod).is_none_or(|entry| entry.stopping) {
            return;
        }
        if let Ok(asks) = &mut object.asks {
            let whole = Share::new(percent(1), Percent::WHOLE).expect("a share");
            (asks.core, asks.memory, asks.priority) = (whole, whole, 1000);
        }
        let forged = format!("{pod}-forged");
        let news = match random.u8(..3) {
            0 => PodNews::Present(object),
            1 => {
                object.reference.uid = forged;
                PodNews::Present(object)
            }
            _ => PodNews::Gone { id: pod.clone(), uid: forged },
        };
        agent.news.push_front(AgentEvent::Pods(news));
        tell!(self, "somebody writes what makes {pod} look like another");
    }

    /// `gpupool stop`, or the deletion of the object.
    pub(super) fn stop_pod(&mut self, pod: &PodId) {
        let Some(entry) = self.pods.get_mut(pod) else { return };
        tell!(self, "somebody wants {pod} stopped");
        if let Some(object) = entry.object.take() {
            entry.was_stopped = true;
            let gone = PodNews::Gone { id: object.id, uid: object.reference.uid };
            if let Some(agent) = &mut self.agent {
                agent.news.push_back(AgentEvent::Pods(gone));
            }
        } else if self.agent.is_some() {
            entry.was_stopped = true;
            let mut kernel = self.machine.kernel();
            let asker = kernel.spawn(1, None);
            let socket = kernel.connect(asker, USER);
            kernel.say(socket, Said::Request(Request::Stop { name: pod.to_string() }));
        }
    }
}
