//! The messages between kubelet and device plugin (`v1beta1`) and of the kubelet's list of pod resources (`v1`), as
//! far as they are used here: the published field numbers, nothing else.

use prost::Message;

/// Version of the device plugin protocol.
pub(super) const VERSION: &str = "v1beta1";

/// Health of a device that can be allocated.
pub(super) const HEALTHY: &str = "Healthy";

/// Health of a device that can't.
pub(super) const UNHEALTHY: &str = "Unhealthy";

/// Nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Empty {}

/// How the kubelet is to treat a plugin.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Options {
    /// Ask before every start of a container.
    #[prost(bool, tag = "1")]
    pub(super) pre_start_required: bool,
    /// Ask which devices fit together.
    #[prost(bool, tag = "2")]
    pub(super) get_preferred_allocation_available: bool,
}

/// A plugin introduces itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegisterRequest {
    /// [`VERSION`].
    #[prost(string, tag = "1")]
    pub(super) version: String,
    /// Name of its socket in the kubelet's directory.
    #[prost(string, tag = "2")]
    pub(super) endpoint: String,
    /// The resource.
    #[prost(string, tag = "3")]
    pub(super) resource_name: String,
    /// Its options.
    #[prost(message, optional, tag = "4")]
    pub(super) options: Option<Options>,
}

/// One device.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Device {
    /// Its token.
    #[prost(string, tag = "1")]
    pub(super) id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub(super) health: String,
}

/// All devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ListAndWatchResponse {
    /// All that there are.
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<Device>,
}

/// Devices are given to containers.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AllocateRequest {
    /// One for each container.
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<ContainerRequest>,
}

/// Devices of one container.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerRequest {
    /// Their tokens.
    #[prost(string, repeated, tag = "1")]
    pub(super) ids: Vec<String>,
}

/// What the containers get.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AllocateResponse {
    /// One for each container of the request.
    #[prost(message, repeated, tag = "1")]
    pub(super) containers: Vec<ContainerResponse>,
}

/// What one container gets: devices of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerResponse {
    /// Their full names.
    #[prost(message, repeated, tag = "5")]
    pub(super) cdi_devices: Vec<CdiDevice>,
}

/// One such device.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CdiDevice {
    /// `kind=name`.
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// What the kubelet has given to the pods of its node.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ListPodResourcesResponse {
    /// One for each pod.
    #[prost(message, repeated, tag = "1")]
    pub(super) pods: Vec<PodResources>,
}

/// What one pod has.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodResources {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Its namespace.
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    /// One for each container.
    #[prost(message, repeated, tag = "3")]
    pub(super) containers: Vec<ContainerResources>,
}

/// What one container has.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerResources {
    /// Its devices, by resource; a resource may appear more than once.
    #[prost(message, repeated, tag = "2")]
    pub(super) devices: Vec<ContainerDevices>,
}

/// Devices of one resource.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerDevices {
    /// The resource.
    #[prost(string, tag = "1")]
    pub(super) resource_name: String,
    /// The tokens.
    #[prost(string, repeated, tag = "2")]
    pub(super) ids: Vec<String>,
}
