//! What a plugin asks of the kubelet, over its two sockets.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::messages::{Empty, ListPodResourcesResponse, RegisterRequest};
use crate::kubernetes::outage::causes;

/// How long the kubelet may take. It gives a plugin 30 s before a container's start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of the kubelet's list: every pod with two hundred device tokens, and room.
const LONGEST_LIST: usize = 16 << 20;

/// Who the kubelet that made a socket is: another one made another file, perhaps with the same inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Birth {
    inode: u64,
    changed: (i64, i64),
}

/// The kubelet of this node.
#[derive(Debug, Clone)]
pub(crate) struct Kubelet {
    directory: PathBuf,
}

impl Kubelet {
    /// By its root directory, `/var/lib/kubelet`.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where plugins have their sockets.
    pub(super) fn plugins(&self) -> PathBuf {
        self.directory.join("device-plugins")
    }

    /// When the socket for registration was made; nothing while there is none.
    pub(super) fn birth(&self) -> Option<Birth> {
        let socket = std::fs::metadata(self.registration()).ok()?;
        Some(Birth { inode: socket.ino(), changed: (socket.ctime(), socket.ctime_nsec()) })
    }

    /// Registers a plugin.
    pub(super) async fn register(&self, request: RegisterRequest) -> Result<(), Status> {
        let path = PathAndQuery::from_static("/v1beta1.Registration/Register");
        ask::<_, Empty>(&self.registration(), path, request).await.map(drop)
    }

    /// What the kubelet has given to pods.
    pub(super) async fn pod_resources(&self) -> Result<ListPodResourcesResponse, Status> {
        let path = PathAndQuery::from_static("/v1.PodResourcesLister/List");
        ask(&self.directory.join("pod-resources/kubelet.sock"), path, Empty {}).await
    }

    fn registration(&self) -> PathBuf {
        self.plugins().join("kubelet.sock")
    }
}

/// One question on a connection of its own.
async fn ask<Q, A>(socket: &Path, path: PathAndQuery, question: Q) -> Result<A, Status>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let asking = async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let channel = endpoint
            .map_err(|failure| unavailable(&failure))?
            .connect()
            .await
            .map_err(|failure| unavailable(&failure))?;
        let mut client = Grpc::new(channel).max_decoding_message_size(LONGEST_LIST);
        client.ready().await.map_err(|failure| unavailable(&failure))?;
        client
            .unary(Request::new(question), path, ProstCodec::default())
            .await
            .map(tonic::Response::into_inner)
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.unwrap_or_else(|_| Err(Status::new(Code::DeadlineExceeded, "the kubelet does not answer")))
}

fn unavailable(failure: &tonic::transport::Error) -> Status {
    Status::unavailable(causes(failure))
}
