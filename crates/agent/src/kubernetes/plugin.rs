//! Device plugins: what this node advertises to its kubelet, and what containers get for it.
//!
//! A plugin serves a socket in the kubelet's directory and registers it. A kubelet that starts again removes all
//! sockets there: then everything is done anew. A plugin that retires says first that it has no devices, so that
//! nothing is left behind that the scheduler would count on.

mod kubelet;
mod messages;
mod service;
mod starting;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpupool_core::sharing::PoolCard;
use gpupool_core::sharing::names::{CORE_RESOURCE, EXCLUSIVE_RESOURCE, MEMORY_RESOURCE};
use kube::Client;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tonic::transport::Server;

pub(super) use kubelet::Kubelet;
use messages::{Device, HEALTHY, Options, RegisterRequest, UNHEALTHY, VERSION};
use service::{Gives, Service};
use starting::Starting;
use tracing::{info, warn};

use super::cdi;
use super::node::Known;
use super::pod_watch::SharingPods;
use crate::event::AgentEvent;

/// How often the kubelet's socket and our own are looked at, and a registration that failed is tried again. A kubelet
/// that has started admits the node's pods a moment after it has made its socket, and turns those away for good whose
/// resources nobody has registered by then.
const PERIOD: Duration = Duration::from_millis(100);

/// How long a plugin that retires still says that it has nothing.
const FAREWELL: Duration = Duration::from_secs(5);

/// Device tokens of one card: one for each percent.
const PER_CARD: usize = 100;

/// What the plugins need to know.
#[derive(Clone)]
pub(super) struct PluginContext {
    pub(super) kubelet: Kubelet,
    pub(super) client: Client,
    /// The name of this node.
    pub(super) node: String,
    pub(super) seen: SharingPods,
    pub(super) policy: watch::Receiver<Known>,
    pub(super) cards: watch::Receiver<Vec<PoolCard>>,
    pub(super) task: mpsc::Sender<AgentEvent>,
    /// The device of the Container Device Interface that holds the driver and all cards.
    pub(super) driver_device: String,
}

/// What a plugin advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advertises {
    /// A hundred tokens a card, while the node's cards are shared.
    Percentages,
    /// The cards, while they are not shared: of a card that is, no one can have the whole.
    Cards,
}

impl Advertises {
    /// Whether there is anything to advertise under this policy.
    const fn is_wanted(self, policy: Known) -> bool {
        match policy {
            Known::NotYet => false,
            Known::Policy(policy) => match self {
                Self::Percentages => policy.is_some(),
                Self::Cards => policy.is_none(),
            },
        }
    }
}

/// One resource's plugin.
struct Plugin {
    resource: &'static str,
    socket: &'static str,
    advertises: Advertises,
    gives: Gives,
    context: PluginContext,
}

/// The plugins of a node that may share its cards; with `whole_cards` also the one for whole cards, while it does not.
pub(super) fn serve(context: &PluginContext, whole_cards: bool, parts: &mut JoinSet<()>) {
    let both = vec![context.driver_device.clone(), cdi::DEVICE.to_owned()];
    let mut plugin = |resource, socket, advertises, gives| {
        parts.spawn(Plugin { resource, socket, advertises, gives, context: context.clone() }.run());
    };
    let shared = Advertises::Percentages;
    // Both give the same: the runtime adds a device once, whichever resource brought it.
    plugin(CORE_RESOURCE, "gpupool-core.sock", shared, Gives::Always(both.clone()));
    plugin(MEMORY_RESOURCE, "gpupool-memory.sock", shared, Gives::Always(both));
    if whole_cards {
        let kind = context.driver_device.split('=').next().unwrap_or_default().to_owned();
        plugin(EXCLUSIVE_RESOURCE, "gpupool-cards.sock", Advertises::Cards, Gives::ByToken(kind));
    }
}

impl Plugin {
    async fn run(mut self) {
        loop {
            while !self.is_wanted() {
                if self.context.policy.changed().await.is_err() {
                    return;
                }
            }
            if let Err(failure) = self.serve().await {
                warn!("cannot serve {} to the kubelet: {failure}", self.resource);
                tokio::time::sleep(PERIOD).await;
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.advertises.is_wanted(*self.context.policy.borrow())
    }

    /// Serves until the kubelet has started again, or there is nothing to advertise any more.
    async fn serve(&mut self) -> std::io::Result<()> {
        let path = self.context.kubelet.plugins().join(self.socket);
        let listener = listen(&path)?;
        let ours = inode(&path);
        let (devices, told) = watch::channel(Arc::new(self.devices()));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(self.answer(listener, told, stopped));
        let mut registered = None;
        let mut complained = false;
        while !server.is_finished() {
            let birth = self.context.kubelet.birth();
            if registered.is_some() && (birth != registered || inode(&path) != ours) {
                info!("the kubelet has started again: registering {} anew", self.resource);
                break;
            }
            if registered.is_none() && birth.is_some() {
                match self.context.kubelet.register(self.introduction()).await {
                    Ok(()) => {
                        info!("{} is registered with the kubelet", self.resource);
                        registered = birth;
                    }
                    Err(status) if !complained => {
                        warn!("the kubelet does not take {}: {}", self.resource, status.message());
                        complained = true;
                    }
                    Err(_) => {}
                }
            }
            if !self.is_wanted() {
                info!("{} is not advertised any more", self.resource);
                devices.send_replace(Arc::default());
                tokio::time::sleep(FAREWELL).await;
                break;
            }
            self.next(&devices).await;
        }
        let fell = server.is_finished();
        drop(devices);
        drop(stop);
        // The kubelet's connection ends with the stream; whoever else is connected is not waited for.
        server.abort();
        if inode(&path) == ours {
            std::fs::remove_file(&path)?;
        }
        if fell { Err(std::io::Error::other("its server has ended")) } else { Ok(()) }
    }

    /// Waits until there may be something to do.
    async fn next(&mut self, devices: &watch::Sender<Arc<Vec<Device>>>) {
        tokio::select! {
            Ok(()) = self.context.cards.changed() => {
                devices.send_replace(Arc::new(self.devices()));
            }
            _ = self.context.policy.changed() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }

    fn answer(
        &self,
        listener: UnixListener,
        devices: watch::Receiver<Arc<Vec<Device>>>,
        stopped: oneshot::Receiver<()>,
    ) -> impl Future<Output = ()> + use<> {
        let context = &self.context;
        let starting = (self.advertises == Advertises::Percentages).then(|| Starting {
            resource: self.resource,
            kubelet: context.kubelet.clone(),
            client: context.client.clone(),
            node: context.node.clone(),
            seen: context.seen.clone(),
            policy: context.policy.clone(),
            task: context.task.clone(),
        });
        let service = Service { options: self.options(), devices, gives: self.gives.clone(), starting };
        let connections = futures::stream::unfold(listener, |listener| async {
            let connection = listener.accept().await.map(|(connection, _)| connection);
            Some((connection, listener))
        });
        let resource = self.resource;
        async move {
            let until = async { drop(stopped.await) };
            let served = Server::builder().serve_with_incoming_shutdown(service, connections, until).await;
            if let Err(failure) = served {
                warn!("the plugin of {resource} has ended: {failure}");
            }
        }
    }

    fn introduction(&self) -> RegisterRequest {
        RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.socket.to_owned(),
            resource_name: self.resource.to_owned(),
            options: Some(self.options()),
        }
    }

    fn options(&self) -> Options {
        Options {
            pre_start_required: self.advertises == Advertises::Percentages,
            get_preferred_allocation_available: false,
        }
    }

    fn devices(&mut self) -> Vec<Device> {
        let cards = self.context.cards.borrow_and_update();
        match self.advertises {
            Advertises::Percentages => percents(&cards),
            Advertises::Cards => cards.iter().map(|card| device(card.uuid.clone(), card.healthy)).collect(),
        }
    }
}

/// A hundred tokens a card. They are short, because the kubelet writes each of them into its pod's status, and mean
/// nothing: the kubelet hands them out as it likes.
fn percents(cards: &[PoolCard]) -> Vec<Device> {
    let of_card = |(place, card): (usize, &PoolCard)| {
        let healthy = card.healthy;
        (0..PER_CARD).map(move |percent| device(format!("{:x}", place * PER_CARD + percent), healthy))
    };
    cards.iter().enumerate().flat_map(of_card).collect()
}

fn device(id: String, healthy: bool) -> Device {
    Device { id, health: if healthy { HEALTHY } else { UNHEALTHY }.to_owned() }
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        // Of an agent that was killed.
        Ok(()) => {}
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
        Err(failure) => return Err(failure),
    }
    UnixListener::bind(path)
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|file| file.ino())
}

/// The kubelet's directory, where nobody says otherwise.
pub const KUBELET_DIRECTORY: &str = "/var/lib/kubelet";

#[cfg(test)]
mod tests {
    use gpupool_core::pool::Policy;

    use super::*;

    #[test]
    fn a_card_is_advertised_whole_or_in_percentages_and_never_both() {
        let wanted = |policy| [Advertises::Percentages, Advertises::Cards].map(|one| one.is_wanted(policy));
        assert_eq!(wanted(Known::Policy(None)), [false, true]);
        for policy in [Policy::SharePool, Policy::Static] {
            assert_eq!(wanted(Known::Policy(Some(policy))), [true, false]);
        }
        // Nothing is promised before the policy is known.
        assert_eq!(wanted(Known::NotYet), [false, false]);
    }
}
