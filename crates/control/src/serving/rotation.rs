//! Keeps the Secret with the certificate good, the webhook configurations trusting it, and the scheduler's Secret.
//!
//! Every replica follows the Secret and serves with what is in it. The leader alone writes: first it tells the webhook
//! configurations of an authority, then it puts what that one signed into the Secret, so that no certificate is ever
//! served that the API server does not trust. The scheduler's certificate comes last: by then it is trusted here.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::ServingSettings;
use super::credentials::Credentials;
use super::scheduler_certificate::SchedulerCertificate;
use super::scheduler_copy::{CopyNews, CopyNotices};
use crate::api_server::{FIELD_MANAGER, WatchBackoff, bounded};

/// Between two checks when nothing happens.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

type ObjectEvents<T> = BoxStream<'static, watcher::Result<Option<T>>>;

/// Follows and keeps the credentials.
pub(crate) struct CertificateRotation {
    settings: ServingSettings,
    secrets: Api<Secret>,
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    leading: watch::Receiver<bool>,
    credentials: watch::Sender<Option<Credentials>>,
    /// The server's.
    secret: SeenSecret,
    scheduler: SeenSecret,
    copies: CopyNotices,
    trusting: [Option<WebhookTrust>; 2],
}

/// A Secret as last seen.
#[derive(Default)]
struct SeenSecret {
    secret: Option<Secret>,
    /// Whether the API server has said what it is, or that there is none.
    read: bool,
}

/// A webhook configuration as last seen: its name, and what each of its webhooks trusts.
struct WebhookTrust {
    version: String,
    trusts: Vec<Option<ByteString>>,
}

impl CertificateRotation {
    /// The rotation, and the credentials to serve with.
    pub(crate) fn new(
        client: &kube::Client,
        settings: ServingSettings,
        leading: watch::Receiver<bool>,
    ) -> (Self, watch::Receiver<Option<Credentials>>) {
        let (credentials, receiver) = watch::channel(None);
        let rotation = Self {
            secrets: Api::namespaced(client.clone(), &settings.namespace),
            mutating: Api::all(client.clone()),
            validating: Api::all(client.clone()),
            settings,
            leading,
            credentials,
            secret: SeenSecret::default(),
            scheduler: SeenSecret::default(),
            copies: CopyNotices::new(client),
            trusting: [None, None],
        };
        (rotation, receiver)
    }

    /// Keeps them until the process ends.
    pub(crate) async fn run(mut self) {
        let webhooks = &self.settings.webhooks;
        let mut secrets = follow(self.secrets.clone(), &self.settings.secret);
        let scheduler = self.settings.scheduler_secret.as_deref();
        let mut schedulers = scheduler
            .map_or_else(|| futures::stream::pending().boxed(), |name| follow(self.secrets.clone(), name));
        let mut mutating = follow(self.mutating.clone(), webhooks);
        let mut validating = follow(self.validating.clone(), webhooks);
        loop {
            let pause = self.renew_if_due().await;
            tokio::select! {
                Some(seen) = secrets.next() => match seen {
                    Ok(secret) => self.take(secret),
                    Err(failure) => warn!(%failure, "cannot watch the Secret with the certificate"),
                },
                Some(seen) = schedulers.next() => match seen {
                    Ok(secret) => self.scheduler = SeenSecret { secret, read: true },
                    Err(failure) => warn!(%failure, "cannot watch the Secret with the scheduler's certificate"),
                },
                Some(seen) = mutating.next() => self.trusting[0] = configuration(seen, |configuration| {
                    let trusts = configuration.webhooks.iter().flatten().map(|hook| trust(&hook.client_config));
                    (configuration.metadata.resource_version.clone(), trusts.collect())
                }),
                Some(seen) = validating.next() => self.trusting[1] = configuration(seen, |configuration| {
                    let trusts = configuration.webhooks.iter().flatten().map(|hook| trust(&hook.client_config));
                    (configuration.metadata.resource_version.clone(), trusts.collect())
                }),
                Ok(()) = self.leading.changed() => {}
                () = sleep(pause) => {}
            }
        }
    }

    fn take(&mut self, secret: Option<Secret>) {
        let read = secret.as_ref().and_then(Credentials::read);
        if read.is_none() && secret.is_some() {
            warn!(
                secret = self.settings.secret,
                "the Secret holds no certificate of ours; the leader makes one"
            );
        }
        if let Some(read) = read.filter(|read| self.credentials.borrow().as_ref() != Some(read)) {
            self.credentials.send_replace(Some(read));
        }
        self.secret = SeenSecret { secret, read: true };
    }

    /// Makes, publishes and stores new credentials if they are due. Returns how long nothing will be due.
    async fn renew_if_due(&mut self) -> Duration {
        if !self.secret.read || !*self.leading.borrow() {
            return CHECK_INTERVAL;
        }
        let secret = self.secret.secret.clone();
        let there = secret.as_ref().and_then(Credentials::read);
        // A Secret that was deleted or spoilt is made again of what is served with: others have copies of the authority.
        let known = there.clone().or_else(|| self.credentials.borrow().clone());
        if known.is_none() && self.settings.scheduler_secret.is_some() && !self.scheduler.read {
            return RETRY;
        }
        let now = Timestamp::now();
        let (names, lifetimes) = (&self.settings.names, self.settings.lifetimes);
        let due = match Credentials::due(known.as_ref(), names, lifetimes, now) {
            Ok(due) => due,
            Err(failure) => {
                warn!(%failure, "cannot make a certificate for {}", names.join(", "));
                return CHECK_INTERVAL;
            }
        };
        if let Err(failure) = self.have_trusted(&due.authorities).await {
            warn!(%failure, "cannot write the webhook configurations; trying again");
            return RETRY;
        }
        if there.as_ref() != Some(&due) {
            return self.store(&due, secret.as_ref()).await;
        }
        let until = due.renew().duration_since(now);
        let pause = Duration::try_from(until).unwrap_or_default().clamp(RETRY, CHECK_INTERVAL);
        pause.min(self.renew_scheduler_if_due(&due, now).await)
    }

    /// The same for the scheduler's certificate, with what is in the other Secret.
    async fn renew_scheduler_if_due(&mut self, credentials: &Credentials, now: Timestamp) -> Duration {
        let Some(name) = self.settings.scheduler_secret.as_ref().filter(|_| self.scheduler.read) else {
            return CHECK_INTERVAL;
        };
        let secret = self.scheduler.secret.as_ref();
        let there = secret.and_then(SchedulerCertificate::read);
        let due = SchedulerCertificate::due(there.as_ref(), credentials, self.settings.lifetimes, now);
        let due = match due {
            Ok(due) => due,
            Err(failure) => {
                warn!(%failure, "cannot make a certificate for the scheduler");
                return CHECK_INTERVAL;
            }
        };
        if there.as_ref() == Some(&due) {
            let until = due.renew().duration_since(now);
            return Duration::try_from(until).unwrap_or_default().clamp(RETRY, CHECK_INTERVAL);
        }
        match self.write(&due.secret(name, secret), secret.is_some()).await {
            Ok(written) => {
                info!(secret = name, renew = %due.renew(), "made a certificate for the scheduler");
                if let Some(before) = there {
                    self.copies.tell(CopyNews::of(&before, &due), &written).await;
                }
                self.scheduler.secret = Some(written);
            }
            Err(failure) => {
                warn!(secret = name, %failure, "cannot store the scheduler's certificate; trying again");
            }
        }
        RETRY
    }

    async fn have_trusted(&mut self, authorities: &str) -> Result<(), kube::Error> {
        let wanted = Some(ByteString(authorities.as_bytes().to_vec()));
        for (at, seen) in self.trusting.iter_mut().enumerate() {
            let Some(trusting) = seen.as_mut().filter(|seen| seen.trusts.iter().any(|one| *one != wanted))
            else {
                continue;
            };
            let (name, params) = (&self.settings.webhooks, PatchParams::apply(FIELD_MANAGER));
            let params = PatchParams { field_manager: params.field_manager, ..PatchParams::default() };
            let patch = Patch::Json::<()>(trusting.patch(authorities)?);
            let written = if at == 0 {
                bounded(self.mutating.patch(name, &params, &patch)).await.map(|_| ())
            } else {
                bounded(self.validating.patch(name, &params, &patch)).await.map(|_| ())
            };
            match written {
                Ok(()) => {
                    info!(configuration = name, "told the API server which authority to trust");
                    trusting.trusts.fill(wanted.clone());
                }
                // It has changed since: the watch will tell how it is now.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => *seen = None,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn store(&mut self, due: &Credentials, before: Option<&Secret>) -> Duration {
        let secret = due.secret(&self.settings.secret, before);
        let written = self.write(&secret, before.is_some()).await;
        match written {
            Ok(secret) => {
                info!(secret = self.settings.secret, renew = %due.renew(), "made a certificate");
                self.take(Some(secret));
            }
            Err(failure) => {
                warn!(secret = self.settings.secret, %failure, "cannot store the certificate; trying again");
            }
        }
        RETRY
    }

    async fn write(&self, secret: &Secret, exists: bool) -> Result<Secret, kube::Error> {
        let (name, params) = (secret.metadata.name.as_deref().unwrap_or_default(), PostParams::default());
        if exists {
            bounded(self.secrets.replace(name, &params, secret)).await
        } else {
            bounded(self.secrets.create(&params, secret)).await
        }
    }
}

impl WebhookTrust {
    /// A JSON patch that makes every webhook trust these, and nothing if the configuration has changed since.
    fn patch(&self, authorities: &str) -> Result<json_patch::Patch, kube::Error> {
        let bytes = serde_json::to_value(ByteString(authorities.as_bytes().to_vec()));
        let bytes = bytes.map_err(kube::Error::SerdeError)?;
        let unchanged = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": self.version });
        let trust = |at| json!({ "op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": bytes });
        let operations: Vec<Value> =
            std::iter::once(unchanged).chain((0..self.trusts.len()).map(trust)).collect();
        serde_json::from_value(operations.into()).map_err(kube::Error::SerdeError)
    }
}

fn follow<K>(api: Api<K>, name: &str) -> ObjectEvents<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    watch_object(api, name).backoff(WatchBackoff::default()).boxed()
}

fn configuration<K>(
    seen: watcher::Result<Option<K>>,
    read: impl Fn(&K) -> (Option<String>, Vec<Option<ByteString>>),
) -> Option<WebhookTrust> {
    match seen {
        Ok(found) => found.map(|found| {
            let (version, trusts) = read(&found);
            WebhookTrust { version: version.unwrap_or_default(), trusts }
        }),
        Err(failure) => {
            warn!(%failure, "cannot watch the webhook configurations");
            None
        }
    }
}

fn trust(config: &WebhookClientConfig) -> Option<ByteString> {
    config.ca_bundle.clone()
}
