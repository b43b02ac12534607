//! What admission does to a pod or a pod template that shares: limits move to annotations, or there is a refusal.
//!
//! Kubernetes stores no extended resource whose limit differs from its request. So the limit is kept in an annotation,
//! and the stored limit is the request. Written back by people and programs (apply, edit, undo, restore), the stored
//! object means what it meant; what somebody changes in it is found by comparing.

use super::dimension::Dimension;
use super::pod::{Amount, Container, Pod, PodShare, annotated_limit, canonical_limit, whole_percent};
use super::refusal::Refusal;
use crate::share::Percent;

/// How an object was before, where one is updated.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// The object as it is stored.
    pub old: &'a Pod,
    /// The configuration that was applied with this very update (`kubectl apply` writes it into an annotation);
    /// nothing where the update came in another way.
    pub applied: Option<&'a Pod>,
}

/// A pod or template that is admitted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admitted {
    /// What is to be changed in it.
    pub rewrite: Rewrite,
    /// What it asks for; nothing where what stood there before cannot be read and is not changed.
    pub asked: Option<PodShare>,
}

/// Changes to an object before it is stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rewrite {
    /// New limits: the position in [`Pod::containers`], the dimension, the text.
    pub limits: Vec<(usize, Dimension, String)>,
    /// New texts of annotations with limits; nothing for one that goes.
    pub annotations: Vec<(Dimension, Option<String>)>,
}

impl Rewrite {
    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.annotations.is_empty()
    }
}

/// Admits a pod or a template, or says why not.
///
/// The limit is the incoming one where it differs from the request. Else it is that of the configuration which was applied
/// with this update; else the annotation's. What is stored already is not judged again: a rule that
/// is newer than an object must not stop others from changing it.
pub fn admit(pod: &Pod, update: Option<Update<'_>>) -> Result<Admitted, Refusal> {
    let rewrite = rewrite(pod, update);
    let after = rewritten(pod, &rewrite);
    let asked = match update {
        Some(update) if update.old.canonical() == after.canonical() => after.share().ok().flatten(),
        _ => after.share()?,
    };
    Ok(Admitted { rewrite, asked })
}

/// Whether a new object, or a changed template, may be stored as it is.
pub fn validate(pod: &Pod, old: Option<&Pod>) -> Result<(), Refusal> {
    if old.is_some_and(|old| old.canonical() == pod.canonical()) {
        return Ok(());
    }
    let asked = pod.share()?;
    if asked.is_some() && pod.card.is_some() {
        return Err(Refusal::CardAnnotation);
    }
    Ok(())
}

/// Whether a pod may be changed like this. What a pod asks for stands from its creation on.
pub fn validate_change(pod: &Pod, old: &Pod) -> Result<(), Refusal> {
    if pod.card != old.card {
        return Err(Refusal::CardAnnotation);
    }
    if pod.policy != old.policy {
        return Err(Refusal::PolicyChanged);
    }
    for dimension in Dimension::ALL {
        let limit = old.limit(dimension);
        if pod.limit(dimension) != limit {
            return Err(Refusal::LimitChanged { dimension, limit: limit.and_then(Result::ok) });
        }
    }
    Ok(())
}

fn rewrite(pod: &Pod, update: Option<Update<'_>>) -> Rewrite {
    let mut rewrite = Rewrite::default();
    for dimension in Dimension::ALL {
        for (at, container) in pod.containers.iter().enumerate() {
            let amount = container.amount(dimension);
            let Some(request) = &amount.request else { continue };
            // What is no percentage is refused, or left to Kubernetes' own words.
            let Some(percent) = whole_percent(request) else { continue };
            if amount.limit.as_deref().is_some_and(|limit| whole_percent(limit).is_none()) {
                continue;
            }
            if amount.limit.as_ref() != Some(request) {
                rewrite.limits.push((at, dimension, request.clone()));
            }
            let limit = intended(pod, container, dimension, update).map(|limit| canonical_limit(&limit));
            let stands = pod.limit_annotation(dimension);
            let above = limit.filter(|limit| annotated_limit(limit) != Some(percent));
            // One that says what is the case anyway may stay.
            let says_so = stands.filter(|text| annotated_limit(text) == Some(percent)).map(canonical_limit);
            let wanted = above.or(says_so);
            if wanted.as_deref() != stands {
                rewrite.annotations.push((dimension, wanted));
            }
        }
    }
    rewrite
}

/// The limit that is meant; nothing where it is the request.
fn intended(
    pod: &Pod,
    container: &Container,
    dimension: Dimension,
    update: Option<Update<'_>>,
) -> Option<String> {
    let annotation = pod.limit_annotation(dimension);
    let written = written(container.amount(dimension));
    let applied = update.and_then(|update| update.applied).and_then(|applied| {
        let same = applied.containers.iter().find(|other| other.name == container.name);
        let same = same.filter(|other| other.amount(dimension).is_asked())?;
        Some((self::written(same.amount(dimension)), applied.limit_annotation(dimension)))
    });
    match (written, applied) {
        (Some(written), _) => Some(written),
        (None, Some((written, annotation))) => written.or_else(|| annotation.map(str::to_owned)),
        (None, None) => annotation.map(str::to_owned),
    }
}

/// A limit that differs from its request, in the form of an annotation.
fn written(amount: &Amount) -> Option<String> {
    let (request, limit) = (amount.request.as_deref()?, amount.limit.as_deref()?);
    let limit = whole_percent(limit)?;
    (whole_percent(request) != Some(limit)).then(|| limit.to_string())
}

fn rewritten(pod: &Pod, rewrite: &Rewrite) -> Pod {
    let mut after = pod.clone();
    for (at, dimension, limit) in &rewrite.limits {
        let container = &mut after.containers[*at];
        let amount = match dimension {
            Dimension::Core => &mut container.core,
            Dimension::Memory => &mut container.memory,
        };
        amount.limit = Some(limit.clone());
    }
    for (dimension, annotation) in &rewrite.annotations {
        let stands = match dimension {
            Dimension::Core => &mut after.core_limit,
            Dimension::Memory => &mut after.memory_limit,
        };
        stands.clone_from(annotation);
    }
    after
}

impl Pod {
    /// A stored pod's limit: the annotation's, else the first request; the text where that is no percentage.
    fn limit(&self, dimension: Dimension) -> Option<Result<Percent, &str>> {
        if let Some(text) = self.limit_annotation(dimension) {
            return Some(annotated_limit(text).ok_or(text));
        }
        let request = self.containers.iter().find_map(|one| one.amount(dimension).request.as_deref())?;
        Some(whole_percent(request).ok_or(request))
    }
}
