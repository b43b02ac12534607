//! Whoever runs the scheduler has a copy of its certificate and of the authorities. Nobody here sees the copy; when what it
//! was made of changes, they are told what to do, in the log and by an Event on the Secret.

use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::warn;

use super::scheduler_certificate::SchedulerCertificate;
use crate::api_server::{FIELD_MANAGER, bounded};

/// What has become of the copies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CopyNews {
    /// They are of an authority that is trusted no more, and trust none that is there now: it was lost, or came back.
    Useless,
    /// They are good for as long as they say.
    Older,
}

impl CopyNews {
    /// What a change of the Secret does to copies of it.
    pub(super) fn of(before: &SchedulerCertificate, now: &SchedulerCertificate) -> Self {
        if before.shares_an_authority_with(now) { Self::Older } else { Self::Useless }
    }

    /// The reason of the Event, which never changes.
    fn reason(self) -> &'static str {
        match self {
            Self::Useless => "SchedulerCopyUseless",
            Self::Older => "SchedulerCopyOlder",
        }
    }

    /// What whoever runs the scheduler reads.
    pub(super) fn sentence(self, secret: &str) -> String {
        match self {
            Self::Useless => format!(
                "the authority is not the one that Secret {secret} had before: with a copy of that one the scheduler does not \
                 reach the extender, and pods that share cards stay Pending until ca.crt, tls.crt and tls.key are copied \
                 from it again and the scheduler is restarted"
            ),
            Self::Older => format!(
                "the scheduler's certificate was renewed: copy ca.crt, tls.crt and tls.key from Secret {secret} to the \
                 scheduler again; until its copy expires it goes on with that"
            ),
        }
    }
}

/// Says so.
pub(super) struct CopyNotices(Recorder);

impl CopyNotices {
    pub(super) fn new(client: &kube::Client) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
        Self(Recorder::new(client.clone(), reporter))
    }

    /// Tells it in the log, and where it is seen beside the Secret.
    pub(super) async fn tell(&self, news: CopyNews, secret: &Secret) {
        let sentence = news.sentence(secret.metadata.name.as_deref().unwrap_or_default());
        warn!("{sentence}");
        let event = Event {
            type_: EventType::Warning,
            reason: news.reason().to_owned(),
            note: Some(sentence),
            action: "Copy".to_owned(),
            secondary: None,
        };
        if let Err(failure) = bounded(self.0.publish(&event, &secret.object_ref(&()))).await {
            warn!(%failure, "cannot write the Event that says so");
        }
    }
}
