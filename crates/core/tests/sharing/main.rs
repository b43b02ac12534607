//! Sharing on Kubernetes: what pods and nodes ask for, through the public face of `gpupool_core::sharing`.

mod pods;
