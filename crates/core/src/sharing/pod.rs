//! What a pod asks for: its share of a card, read from requests, limits, annotations and labels.
//!
//! The same reading serves a manifest as somebody wrote it (limits over requests), a stored object (limits moved to
//! annotations, because Kubernetes wants limits of such resources to equal requests) and a pod template.

use std::collections::BTreeMap;

use super::dimension::Dimension;
use super::names::{
    CARD_ANNOTATION, COMPUTE_CLASS, COMPUTE_CLASS_LABEL, CORE_LIMIT_ANNOTATION, CORE_RESOURCE,
    MEMORY_LIMIT_ANNOTATION, MEMORY_RESOURCE, POLICY_LABEL,
};
use super::policy::Policy;
use super::refusal::Refusal;
use crate::names::part_of_cards;
use crate::one_line::one_line;
use crate::quantity::Quantity;
use crate::share::{Percent, Share};

/// A pod or a pod template, as far as sharing is concerned. Texts are as they were written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pod {
    /// Label [`POLICY_LABEL`].
    pub policy: Option<String>,
    /// Label [`COMPUTE_CLASS_LABEL`].
    pub compute_class: Option<String>,
    /// Annotation [`CORE_LIMIT_ANNOTATION`].
    pub core_limit: Option<String>,
    /// Annotation [`MEMORY_LIMIT_ANNOTATION`].
    pub memory_limit: Option<String>,
    /// Annotation [`CARD_ANNOTATION`].
    pub card: Option<String>,
    /// Init containers, then containers, each in their order.
    pub containers: Vec<Container>,
}

/// A container's part of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Container {
    /// `name` of the container.
    pub name: String,
    /// Whether it is an init container.
    pub init: bool,
    /// What it says about computing power.
    pub core: Amount,
    /// What it says about memory.
    pub memory: Amount,
    /// The resource by which it has cards, or parts of them, for itself (see [`part_of_cards`]).
    pub exclusive: Option<String>,
}

/// What a container says about one resource, as quantities' texts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Amount {
    /// In `resources.requests`.
    pub request: Option<String>,
    /// In `resources.limits`.
    pub limit: Option<String>,
}

/// What a pod asks for, once it has been checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodShare {
    /// The policy of the nodes that the pod is for: `share-pool` or `static`, never `none`.
    pub policy: Policy,
    /// `name` of the one container that shares.
    pub container: String,
    /// Percent of a card's computing time, request and limit.
    pub core: Share,
    /// Percent of a card's memory, request and limit.
    pub memory: Share,
}

impl Pod {
    /// A pod with these labels and annotations, and no container yet.
    pub fn new(
        labels: Option<&BTreeMap<String, String>>,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let get = |map: Option<&BTreeMap<String, String>>, name: &str| map?.get(name).cloned();
        Self::read(|name| get(labels, name), |name| get(annotations, name))
    }

    /// The same from any form: `label` and `annotation` give a text by its name.
    pub fn read(label: impl Fn(&str) -> Option<String>, annotation: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            policy: label(POLICY_LABEL),
            compute_class: label(COMPUTE_CLASS_LABEL),
            core_limit: annotation(CORE_LIMIT_ANNOTATION),
            memory_limit: annotation(MEMORY_LIMIT_ANNOTATION),
            card: annotation(CARD_ANNOTATION),
            containers: Vec::new(),
        }
    }

    /// Whether any container mentions a percentage, rightly or not.
    pub fn shares(&self) -> bool {
        self.containers.iter().any(Container::shares)
    }

    /// The resource by which a container has cards, or parts of them, for itself.
    pub fn exclusive(&self) -> Option<&str> {
        self.containers.iter().find_map(|container| container.exclusive.as_deref())
    }

    /// The same pod with the annotations of limits in their one canonical form, by which pods are compared.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let canonical = |text: &Option<String>| text.as_deref().map(canonical_limit);
        Self {
            core_limit: canonical(&self.core_limit),
            memory_limit: canonical(&self.memory_limit),
            ..self.clone()
        }
    }

    /// What the pod asks for; nothing if it does not share.
    pub fn share(&self) -> Result<Option<PodShare>, Refusal> {
        let Some(container) = self.sharing_container()? else { return Ok(None) };
        let policy = self.sharing_policy()?;
        self.check_compute_class()?;
        let [core, memory] = Dimension::ALL.map(|dimension| self.share_of(container, dimension));
        Ok(Some(PodShare { policy, container: container.name.clone(), core: core?, memory: memory? }))
    }

    /// The text of the annotation with the limit.
    pub fn limit_annotation(&self, dimension: Dimension) -> Option<&str> {
        match dimension {
            Dimension::Core => self.core_limit.as_deref(),
            Dimension::Memory => self.memory_limit.as_deref(),
        }
    }

    /// The one container that may share and does.
    fn sharing_container(&self) -> Result<Option<&Container>, Refusal> {
        let mut sharing = self.containers.iter().filter(|container| container.shares());
        let Some(container) = sharing.next() else { return Ok(None) };
        let name = |container: &Container| one_line(&container.name, 63);
        if container.init {
            return Err(Refusal::InitContainer { container: name(container) });
        }
        if let Some(second) = sharing.next() {
            return Err(Refusal::TwoContainers { first: name(container), second: name(second) });
        }
        let exclusive = |other: &Container| Some((name(other), other.exclusive.clone()?));
        if let Some((exclusive, resource)) = self.containers.iter().find_map(exclusive) {
            return Err(Refusal::WithExclusive { sharing: name(container), exclusive, resource });
        }
        if let Some(missing) = Dimension::ALL.into_iter().find(|one| !container.amount(*one).is_asked()) {
            return Err(Refusal::OneAlone { container: name(container), missing });
        }
        Ok(Some(container))
    }

    fn sharing_policy(&self) -> Result<Policy, Refusal> {
        let Some(label) = &self.policy else { return Err(Refusal::NoPolicyLabel) };
        let policy: Policy = label.parse()?;
        if policy.shares() { Ok(policy) } else { Err(Refusal::PolicyNone) }
    }

    fn check_compute_class(&self) -> Result<(), Refusal> {
        match self.compute_class.as_deref() {
            Some(COMPUTE_CLASS) => Ok(()),
            Some(other) => Err(Refusal::ComputeClass { value: one_line(other, 63) }),
            None => Err(Refusal::NoComputeClass),
        }
    }

    fn share_of(&self, container: &Container, dimension: Dimension) -> Result<Share, Refusal> {
        let amount = container.amount(dimension);
        let percent = |text: &str| percent(text, container, dimension);
        // Both are there or one of them: a request alone, or a limit alone, stands for both.
        let one = amount.request.as_deref().or(amount.limit.as_deref()).unwrap_or_default();
        let request = percent(one)?;
        let written = amount.limit.as_deref().map(percent).transpose()?.filter(|limit| *limit != request);
        let limit = match (written, self.limit_annotation(dimension)) {
            (Some(limit), _) => limit,
            (None, Some(text)) => limit_of(text, dimension)?,
            (None, None) => request,
        };
        Share::new(request, limit).map_err(|_| Refusal::RequestOverLimit {
            container: one_line(&container.name, 63),
            dimension,
            request,
            limit,
        })
    }
}

impl Container {
    /// A container with these `resources`: names with the texts of their quantities.
    pub fn new<'a>(
        name: &str,
        init: bool,
        requests: impl Iterator<Item = (&'a str, String)>,
        limits: impl Iterator<Item = (&'a str, String)>,
    ) -> Self {
        let mut read = Self { name: name.to_owned(), init, ..Self::default() };
        for (resource, amount) in requests {
            read.note(resource, amount, |stands| &mut stands.request);
        }
        for (resource, amount) in limits {
            read.note(resource, amount, |stands| &mut stands.limit);
        }
        read
    }

    fn note(
        &mut self,
        resource: &str,
        amount: String,
        list: impl FnOnce(&mut Amount) -> &mut Option<String>,
    ) {
        match resource {
            CORE_RESOURCE => *list(&mut self.core) = Some(amount),
            MEMORY_RESOURCE => *list(&mut self.memory) = Some(amount),
            _ if part_of_cards(resource).is_some() && !is_nothing(&amount) => {
                self.exclusive.get_or_insert_with(|| resource.to_owned());
            }
            _ => {}
        }
    }

    /// Whether it mentions a percentage.
    pub fn shares(&self) -> bool {
        self.core.is_asked() || self.memory.is_asked()
    }

    /// What it says about one of the two.
    pub fn amount(&self, dimension: Dimension) -> &Amount {
        match dimension {
            Dimension::Core => &self.core,
            Dimension::Memory => &self.memory,
        }
    }
}

impl Amount {
    /// Whether anything is said.
    pub fn is_asked(&self) -> bool {
        self.request.is_some() || self.limit.is_some()
    }
}

fn is_nothing(amount: &str) -> bool {
    Quantity::parse(amount).is_ok_and(Quantity::is_zero)
}

/// A quantity as a whole percentage.
fn percent(text: &str, container: &Container, dimension: Dimension) -> Result<Percent, Refusal> {
    whole_percent(text).ok_or_else(|| Refusal::NoPercentage {
        container: one_line(&container.name, 63),
        dimension,
        value: one_line(text, 40),
    })
}

pub(super) fn whole_percent(text: &str) -> Option<Percent> {
    let units = Quantity::parse(text).ok()?.whole()?;
    Percent::new(u64::try_from(units).ok()?).ok()
}

/// An annotation's text as a limit: digits only.
pub(super) fn annotated_limit(text: &str) -> Option<Percent> {
    let number = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Percent::new(number?).ok()
}

/// The one form in which a limit is stored: digits without leading zeros. What is no limit stays as it is.
pub(super) fn canonical_limit(text: &str) -> String {
    annotated_limit(text).map_or_else(|| text.to_owned(), |limit| limit.to_string())
}

fn limit_of(text: &str, dimension: Dimension) -> Result<Percent, Refusal> {
    annotated_limit(text).ok_or_else(|| Refusal::LimitAnnotation { dimension, value: one_line(text, 40) })
}
