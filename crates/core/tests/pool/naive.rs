//! The pool a second time, as plainly as it can be said: nothing is kept that can be counted, and the victims are
//! found by trying all sets. Slow, and written from the rules alone.

mod serve;

use std::collections::BTreeMap;

use gpupool_core::pool::{
    Action, Card, CardUuid, Config, Event, LeaseId, Limits, Occupants, PodId, PodSpec, Policy, Refusal,
    Resource, TerminationReason, Timestamp,
};

#[derive(Debug, Clone)]
pub(crate) struct Naive {
    config: Config,
    lost: Vec<CardUuid>,
    occupied: BTreeMap<CardUuid, Occupants>,
    unseen: bool,
    pods: BTreeMap<PodId, Pod>,
    now: Timestamp,
    ready_so_far: u64,
    leases_so_far: u64,
    actions: Vec<Action>,
}

#[derive(Debug, Clone)]
struct Pod {
    spec: PodSpec,
    card: Option<CardUuid>,
    leaving: bool,
    ready: Option<Ready>,
    lease: Option<Lease>,
}

#[derive(Debug, Clone)]
struct Ready {
    number: u64,
    only: Option<CardUuid>,
}

#[derive(Debug, Clone)]
struct Lease {
    id: LeaseId,
    card: CardUuid,
    since: Timestamp,
    limits: Limits,
    idle_since: Option<Timestamp>,
    told: Option<Told>,
    again: Option<Again>,
}

#[derive(Debug, Clone)]
struct Again {
    only: Option<CardUuid>,
}

#[derive(Debug, Clone)]
struct Told {
    why: TerminationReason,
    kill_at: Timestamp,
    killed_at: Option<Timestamp>,
}

/// Core and memory.
type Both = (u32, u32);

fn plus(a: Both, b: Both) -> Both {
    (a.0 + b.0, a.1 + b.1)
}

fn limits_of(limits: Limits) -> Both {
    (limits.core.get().into(), limits.memory.get().into())
}

fn requests_of(spec: &PodSpec) -> Both {
    (spec.core.request().get().into(), spec.memory.request().get().into())
}

impl Naive {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            lost: Vec::new(),
            occupied: BTreeMap::new(),
            unseen: false,
            pods: BTreeMap::new(),
            now: Timestamp(0),
            ready_so_far: 0,
            leases_so_far: 0,
            actions: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, now: Timestamp, event: Event) -> Result<Vec<Action>, Refusal> {
        let mut next = self.clone();
        next.now = now.max(self.now);
        next.take_in(event)?;
        next.kill_those_due();
        next.serve_queues();
        next.kill_those_due();
        *self = next;
        Ok(std::mem::take(&mut self.actions))
    }

    /// The waiting pods from the head, one list for each queue.
    pub(crate) fn queues(&self) -> Vec<Vec<PodId>> {
        let cards = self.config.cards.iter().map(|card| Some(card.uuid.clone()));
        let queues: Vec<Option<CardUuid>> =
            if self.config.policy == Policy::Static { cards.collect() } else { vec![None] };
        let of_queue = |queue: Option<CardUuid>| {
            let mut waiting: Vec<_> = self
                .pods
                .iter()
                .filter(|(_, pod)| pod.card == queue)
                .filter_map(|(id, pod)| Some((-pod.spec.priority, pod.ready.as_ref()?.number, id.clone())))
                .collect();
            waiting.sort();
            waiting.into_iter().map(|(.., id)| id).collect()
        };
        queues.into_iter().map(of_queue).collect()
    }

    fn take_in(&mut self, event: Event) -> Result<(), Refusal> {
        match event {
            Event::PodAdded { pod, spec } => self.add(pod, spec),
            Event::PodChanged { pod, spec } => self.change(&pod, spec),
            Event::PodRemoved { pod } => self.remove(&pod),
            Event::GpuWanted { pod, only } => self.want(&pod, only),
            Event::WantGone { pod } => {
                let pod = self.known(&pod)?;
                pod.ready = None;
                if let Some(lease) = &mut pod.lease {
                    lease.again = None;
                }
                Ok(())
            }
            Event::Released { pod, lease } => self.release(&pod, lease),
            Event::Idle { pod, idle } => {
                let now = self.now;
                if let Some(lease) = &mut self.known(&pod)?.lease {
                    lease.idle_since = if idle { lease.idle_since.or(Some(now)) } else { None };
                }
                Ok(())
            }
            Event::CardLost { card } => {
                self.known_card(&card)?;
                self.lost.push(card.clone());
                for pod in self.by_lease(|lease| lease.card == card && lease.told.is_none()) {
                    self.tell(&pod, TerminationReason::CardLost);
                }
                Ok(())
            }
            Event::CardBack { card } => {
                self.known_card(&card)?;
                self.lost.retain(|lost| *lost != card);
                Ok(())
            }
            Event::CardAdded { card } => self.add_card(card),
            Event::CardRenumbered { card, index } => {
                self.known_card(&card)?;
                self.config
                    .cards
                    .iter_mut()
                    .filter(|known| known.uuid == card)
                    .for_each(|known| known.index = index);
                Ok(())
            }
            Event::CardsSeen { occupied } => {
                for card in occupied.keys() {
                    self.known_card(card)?;
                }
                self.occupied = occupied;
                self.unseen = false;
                Ok(())
            }
            Event::CardsUnseen => {
                self.unseen = true;
                Ok(())
            }
            Event::QosChanged { qos } => {
                self.config.qos = qos;
                Ok(())
            }
            Event::Tick => Ok(()),
        }
    }

    fn add_card(&mut self, card: Card) -> Result<(), Refusal> {
        if self.known_card(&card.uuid).is_ok() {
            return Err(Refusal::CardExists { card: card.uuid });
        }
        self.config.cards.push(card);
        Ok(())
    }

    fn known(&mut self, pod: &PodId) -> Result<&mut Pod, Refusal> {
        self.pods.get_mut(pod).ok_or_else(|| Refusal::UnknownPod { pod: pod.clone() })
    }

    fn staying(&mut self, id: &PodId) -> Result<&mut Pod, Refusal> {
        let pod = self.known(id)?;
        if pod.leaving { Err(Refusal::PodLeaving { pod: id.clone() }) } else { Ok(pod) }
    }

    fn known_card(&self, card: &CardUuid) -> Result<(), Refusal> {
        if self.config.cards.iter().any(|known| known.uuid == *card) {
            return Ok(());
        }
        Err(Refusal::UnknownCard { card: card.clone() })
    }

    /// When the card came into the pool, compared with others.
    fn place(&self, card: &CardUuid) -> Option<usize> {
        self.config.cards.iter().position(|known| known.uuid == *card)
    }

    fn healthy(&self) -> Vec<Card> {
        self.config.cards.iter().filter(|card| !self.lost.contains(&card.uuid)).cloned().collect()
    }

    /// The pods whose lease is such, in the order of the grants.
    fn by_lease(&self, such: impl Fn(&Lease) -> bool) -> Vec<PodId> {
        let leases = self.pods.iter().filter_map(|(id, pod)| Some((id, pod.lease.as_ref()?)));
        let mut found: Vec<_> =
            leases.filter(|(_, lease)| such(lease)).map(|(id, lease)| (lease.id, id)).collect();
        found.sort();
        found.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// What pods request: of all, or of those that are fixed to a card; `but` one of them.
    fn requested(&self, card: Option<&CardUuid>, but: Option<&PodId>) -> Both {
        let pods = self.pods.iter().filter(|(id, pod)| !pod.leaving && Some(*id) != but);
        let there = pods.filter(|(_, pod)| pod.card.as_ref() == card);
        there.fold((0, 0), |sum, (_, pod)| plus(sum, requests_of(&pod.spec)))
    }

    fn add(&mut self, id: PodId, spec: PodSpec) -> Result<(), Refusal> {
        match self.pods.get(&id) {
            Some(pod) if pod.leaving => return Err(Refusal::PodLeaving { pod: id }),
            Some(_) => return Err(Refusal::PodExists { pod: id }),
            None => {}
        }
        let (core, memory) = requests_of(&spec);
        let card = match (self.config.policy, &spec.card) {
            (Policy::SharePool, None) => None,
            (Policy::SharePool, Some(card)) => {
                return Err(Refusal::CardNotForPool { pod: id, card: card.clone() });
            }
            (Policy::Static, Some(card)) => {
                self.known_card(card)?;
                if self.lost.contains(card) {
                    return Err(Refusal::CardIsLost { card: card.clone() });
                }
                Some(card.clone())
            }
            (Policy::Static, None) => {
                let healthy = self.healthy();
                let mut fitting: Vec<_> = healthy
                    .iter()
                    .map(|card| (plus(self.requested(Some(&card.uuid), None), (core, memory)), card))
                    .filter(|(after, _)| after.0 <= 100 && after.1 <= 100)
                    .map(|(after, card)| {
                        (200 - after.0 - after.1, card.index, self.place(&card.uuid), card.uuid.clone())
                    })
                    .collect();
                fitting.sort();
                let cards = u32::try_from(healthy.len()).unwrap();
                let Some((.., best)) = fitting.into_iter().next() else {
                    return Err(Refusal::NoCardFits { core, memory, cards });
                };
                Some(best)
            }
        };
        self.check_room(card.as_ref(), None, requests_of(&spec), (0, 0))?;
        self.pods.insert(id, Pod { spec, card, leaving: false, ready: None, lease: None });
        Ok(())
    }

    fn check_room(
        &self,
        card: Option<&CardUuid>,
        own: Option<&PodId>,
        asked: Both,
        before: Both,
    ) -> Result<(), Refusal> {
        let cards = u32::try_from(self.healthy().len()).unwrap();
        let total = if card.is_some() { 100 } else { 100 * cards };
        let placed = self.requested(card, own);
        for (resource, asked, placed, before) in
            [(Resource::Core, asked.0, placed.0, before.0), (Resource::Memory, asked.1, placed.1, before.1)]
        {
            if self.config.check_requests && asked > before && placed + asked > total {
                return Err(match card.cloned() {
                    Some(card) => Refusal::NoRoomOnCard { card, resource, asked, placed },
                    None => Refusal::NoRoom { resource, asked, placed, total, cards },
                });
            }
        }
        Ok(())
    }

    fn change(&mut self, id: &PodId, spec: PodSpec) -> Result<(), Refusal> {
        let pod = self.staying(id)?.clone();
        match (&pod.card, &spec.card) {
            (_, None) => {}
            (None, Some(card)) => {
                return Err(Refusal::CardNotForPool { pod: id.clone(), card: card.clone() });
            }
            (Some(own), Some(card)) => {
                self.known_card(card)?;
                if own != card {
                    return Err(Refusal::OtherCard {
                        pod: id.clone(),
                        card: own.clone(),
                        asked: card.clone(),
                    });
                }
            }
        }
        self.check_room(pod.card.as_ref(), Some(id), requests_of(&spec), requests_of(&pod.spec))?;
        let waits = self.pods.values().any(|other| other.ready.is_some() && other.card == pod.card);
        let want = spec.limits();
        self.known(id)?.spec = spec;
        let Some(lease) = pod.lease.filter(|lease| lease.told.is_none()) else { return Ok(()) };
        let mut limits = lease.limits;
        let free = self.free(&lease.card);
        let alone = self.occupants(&lease.card, id).is_some_and(|pods| pods.is_empty());
        let may_grow = !waits && alone && !self.lost.contains(&lease.card);
        let more = |want: u8, have: u8, free: u32| want > have && u32::from(want - have) <= free && may_grow;
        if want.core < limits.core || more(want.core.get(), limits.core.get(), free.0) {
            limits.core = want.core;
        }
        if more(want.memory.get(), limits.memory.get(), free.1) {
            limits.memory = want.memory;
        }
        if limits != lease.limits {
            self.actions.push(Action::LimitsChanged { pod: id.clone(), limits });
            if let Some(lease) = &mut self.known(id)?.lease {
                lease.limits = limits;
            }
        }
        Ok(())
    }

    fn remove(&mut self, id: &PodId) -> Result<(), Refusal> {
        let pod = self.known(id)?;
        if pod.leaving {
            return Ok(());
        }
        let Some(lease) = &mut pod.lease else {
            self.pods.remove(id);
            return Ok(());
        };
        lease.again = None;
        let told = lease.told.is_some();
        pod.leaving = true;
        if !told {
            self.tell(id, TerminationReason::Stopped);
        }
        Ok(())
    }

    fn want(&mut self, id: &PodId, only: Option<CardUuid>) -> Result<(), Refusal> {
        self.staying(id)?;
        if let Some(card) = &only {
            self.known_card(card)?;
        }
        let number = self.ready_so_far + 1;
        let pod = self.staying(id)?;
        let holds = pod.lease.as_ref().filter(|lease| lease.told.is_none()).map(|lease| &lease.card);
        if let (Some(card), Some(asked)) = (pod.card.as_ref().or(holds), &only)
            && card != asked
        {
            return Err(Refusal::OtherCard { pod: id.clone(), card: card.clone(), asked: asked.clone() });
        }
        if let Some(ready) = &mut pod.ready {
            ready.only = only;
        } else if let Some(lease) = &mut pod.lease {
            if lease.told.is_some() {
                lease.again = Some(Again { only });
            }
        } else {
            pod.ready = Some(Ready { number, only });
            self.ready_so_far = number;
        }
        Ok(())
    }

    fn release(&mut self, id: &PodId, lease: LeaseId) -> Result<(), Refusal> {
        let pod = self.known(id)?;
        let Some(ended) = pod.lease.clone().filter(|held| held.id == lease) else {
            return Err(Refusal::StaleLease { pod: id.clone(), lease });
        };
        pod.lease = None;
        let leaving = pod.leaving;
        let why = ended.told.map(|told| told.why);
        self.actions.push(Action::Hibernated { pod: id.clone(), card: ended.card, lease, why });
        if leaving {
            self.pods.remove(id);
        } else if let Some(again) = ended.again {
            self.want(id, again.only)?;
        }
        Ok(())
    }

    fn tell(&mut self, id: &PodId, why: TerminationReason) {
        let kill_at = self.now + self.config.qos.grace;
        let Some(lease) = self.pods.get_mut(id).and_then(|pod| pod.lease.as_mut()) else { return };
        lease.told = Some(Told { why: why.clone(), kill_at, killed_at: None });
        let (card, lease) = (lease.card.clone(), lease.id);
        self.actions.push(Action::Terminate { pod: id.clone(), card, lease, why, kill_at });
    }

    fn kill_those_due(&mut self) {
        let now = self.now;
        let mut due: Vec<_> = self
            .pods
            .iter()
            .filter_map(|(id, pod)| {
                let lease = pod.lease.as_ref()?;
                let told =
                    lease.told.as_ref().filter(|told| told.killed_at.is_none() && told.kill_at <= now)?;
                Some((told.kill_at, lease.id, id.clone()))
            })
            .collect();
        due.sort();
        for (_, lease, id) in due {
            let Some(held) = self.pods.get_mut(&id).and_then(|pod| pod.lease.as_mut()) else { continue };
            let Some(told) = &mut held.told else { continue };
            told.killed_at = Some(now);
            let (card, why) = (held.card.clone(), told.why.clone());
            self.actions.push(Action::Kill { pod: id, card, lease, why });
        }
    }
}
