//! The API server's question, of which only what is looked at is read.

use std::borrow::Cow;

use kube::core::Status;
use kube::core::admission::AdmissionResponse;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::LARGEST_OBJECT;
use crate::partial_object::{self, ReadError, Texts};

/// The most groups that somebody is in; directories of people give hundreds.
const MOST_GROUPS: usize = 10_000;

/// An `AdmissionReview` with its request, of `admission.k8s.io/v1`.
#[derive(Debug, Deserialize)]
pub(super) struct SentReview<'a> {
    #[serde(borrow)]
    request: SentRequest<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentRequest<'a> {
    uid: String,
    #[serde(borrow)]
    kind: SentKind<'a>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    user_info: SentUser<'a>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct SentKind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct SentUser<'a> {
    #[serde(borrow, default)]
    username: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    groups: Texts<'a, MOST_GROUPS>,
}

/// What is looked at of the objects in a review.
#[derive(Debug)]
pub(super) struct SentObjects {
    /// As it is to be stored; nothing where it is to be deleted.
    pub(super) object: Option<Value>,
    /// As it is stored now; nothing for a new one.
    pub(super) old: Option<Value>,
}

/// Why the objects in a review cannot be judged; the one who sent the object reads it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error(
        "the object has {length} bytes in JSON, and gpupool looks at {LARGEST_OBJECT} at most: make it smaller"
    )]
    TooLarge { length: usize },
    #[error("{0}")]
    Unread(#[from] ReadError),
}

impl<'a> SentReview<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }

    /// The answer that lets the object through as it is.
    pub(super) fn let_through(&self) -> AdmissionResponse {
        let mut response = AdmissionResponse::invalid("");
        response.uid.clone_from(&self.request.uid);
        response.allowed = true;
        response.result = Status::default();
        response
    }

    pub(super) fn kind(&self) -> &str {
        &self.request.kind.kind
    }

    /// The name of the one who wants it stored.
    pub(super) fn user(&self) -> &str {
        self.request.user_info.username.as_deref().unwrap_or_default()
    }

    /// The groups that the same is in.
    pub(super) fn groups(&self) -> &[Cow<'a, str>] {
        &self.request.user_info.groups.0
    }

    /// The namespace of a pod that is to be created; nothing for everything else.
    pub(super) fn new_pods_namespace(&self) -> Option<&str> {
        let is_new_pod = self.kind() == "Pod" && self.request.operation == "CREATE";
        self.request.namespace.as_deref().filter(|_| is_new_pod)
    }

    /// What it is about, for the log.
    pub(super) fn what(&self) -> String {
        let namespace = self.request.namespace.as_deref().unwrap_or_default();
        format!("{} {namespace}/{}", self.kind(), self.request.name)
    }

    pub(super) fn objects(&self) -> Result<SentObjects, ObjectError> {
        let read = |object: Option<&RawValue>| object.map(read).transpose();
        Ok(SentObjects { object: read(self.request.object)?, old: read(self.request.old_object)? })
    }
}

fn read(object: &RawValue) -> Result<Value, ObjectError> {
    let text = object.get();
    if text.len() > LARGEST_OBJECT {
        return Err(ObjectError::TooLarge { length: text.len() });
    }
    Ok(partial_object::read(text)?)
}
