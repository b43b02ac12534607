//! The device plugin's five calls, as the kubelet makes them (`v1beta1.DevicePlugin`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, StreamExt as _};
use prost::Message;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::messages::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerRequest, ContainerResponse, Device, Empty,
    ListAndWatchResponse, Options,
};
use super::starting::Starting;

/// What a plugin gives to containers.
#[derive(Debug, Clone)]
pub(super) enum Gives {
    /// The same devices of the Container Device Interface, whatever the tokens.
    Always(Vec<String>),
    /// For each token the device of this kind that has the token's name.
    ByToken(String),
}

/// A plugin as the kubelet sees it.
#[derive(Clone)]
pub(super) struct Service {
    /// What the kubelet was told when the plugin registered.
    pub(super) options: Options,
    /// All devices; the last word before the end is that there are none.
    pub(super) devices: watch::Receiver<Arc<Vec<Device>>>,
    /// What containers get.
    pub(super) gives: Gives,
    /// Who has a say before a container starts.
    pub(super) starting: Option<Starting>,
}

impl Service {
    fn list_and_watch(self) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        let mut devices = self.devices;
        devices.mark_changed();
        let next = |mut devices: watch::Receiver<Arc<Vec<Device>>>| async move {
            // The sender goes when the plugin ends, and with it the stream.
            devices.changed().await.ok()?;
            let now = devices.borrow_and_update().as_ref().clone();
            Some((Ok(ListAndWatchResponse { devices: now }), devices))
        };
        futures::stream::unfold(devices, next).boxed()
    }

    fn allocate(&self, request: &AllocateRequest) -> AllocateResponse {
        let container = |request: &ContainerRequest| {
            let names = match &self.gives {
                Gives::Always(names) => names.clone(),
                Gives::ByToken(kind) => request.ids.iter().map(|id| format!("{kind}={id}")).collect(),
            };
            ContainerResponse { cdi_devices: names.into_iter().map(|name| CdiDevice { name }).collect() }
        };
        AllocateResponse { containers: request.containers.iter().map(container).collect() }
    }

    async fn pre_start(self, request: ContainerRequest) -> Result<Empty, Status> {
        match &self.starting {
            Some(starting) => starting.check(&request.ids).await.map(|()| Empty {}),
            None => Ok(Empty {}),
        }
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        match request.uri().path() {
            "/v1beta1.DevicePlugin/GetDevicePluginOptions" => {
                unary(request, |_: Empty| async move { Ok(self.options) }).await
            }
            "/v1beta1.DevicePlugin/ListAndWatch" => {
                let stream = move |_: Request<Empty>| {
                    let plugin = self.clone();
                    async move { Ok::<_, Status>(Response::new(plugin.list_and_watch())) }
                };
                Grpc::new(ProstCodec::default()).server_streaming(service_fn(stream), request).await
            }
            "/v1beta1.DevicePlugin/Allocate" => {
                unary(request, |asked: AllocateRequest| async move { Ok(self.allocate(&asked)) }).await
            }
            "/v1beta1.DevicePlugin/PreStartContainer" => {
                unary(request, |asked: ContainerRequest| self.pre_start(asked)).await
            }
            // GetPreferredAllocation is not offered, and whatever else may come is not known.
            _ => Status::unimplemented("this plugin does not do that").into_http(),
        }
    }
}

async fn unary<Q, A, F>(request: http::Request<Body>, answer: impl FnOnce(Q) -> F) -> http::Response<Body>
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let mut answer = Some(answer);
    let call = move |request: Request<Q>| {
        let answer = answer.take().map(|answer| answer(request.into_inner()));
        async move {
            match answer {
                Some(answer) => answer.await.map(Response::new),
                None => Err(Status::internal("one call has one answer")),
            }
        }
    };
    Grpc::new(ProstCodec::default()).unary(service_fn(call), request).await
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let plugin = self.clone();
        Box::pin(async move { Ok(plugin.answer(request).await) })
    }
}
