//! `gpupool agent --kubernetes`: the options of an agent that serves a node of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use gpupool_agent::kubernetes::{KUBELET_DIRECTORY, Settings, Terms};
use gpupool_core::pool::Millis;

use crate::installation::Installation;
use crate::option_values::parse_seconds;

/// What only an agent on a node of a cluster is told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "On a node of a Kubernetes cluster")]
#[group(skip)]
pub(super) struct Args {
    /// Serve the pods of a node; policy and quality of service come from the node's object. Needs the host's pid namespace
    #[arg(long, requires = "node_name", conflicts_with_all = ["policy", "pod_max_duration", "preempt"])]
    kubernetes: bool,
    /// Which cluster [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// The kubelet's root directory
    #[arg(long, value_name = "DIRECTORY", default_value = KUBELET_DIRECTORY, requires = "kubernetes")]
    kubelet_dir: PathBuf,
    /// Where the container runtime looks for CDI specs
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/run/cdi", requires = "kubernetes")]
    cdi_dir: PathBuf,
    /// CDI device with the driver and all cards, as KIND=NAME
    #[arg(long, value_name = "KIND=NAME", default_value = "nvidia.com/gpu=all", requires = "kubernetes",
          value_parser = parse_device)]
    driver_cdi: String,
    /// Directory of the host in which the shim is put for containers
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/gpupool", requires = "kubernetes")]
    install_dir: PathBuf,
    /// What podMaxDurationMinutes counts in; less than a minute is for labs
    #[arg(long, value_name = "1m|1s", default_value = "1m", requires = "kubernetes",
          value_parser = parse_seconds)]
    duration_unit: Duration,
    /// Advertise whole cards as nvidia.com/gpu while no share policy is in force: not beside another plugin that does
    #[arg(long, requires = "kubernetes")]
    whole_cards: bool,
}

impl Args {
    /// With `--kubernetes`: the agent's own directory, out of the containers' sight.
    pub(super) fn state_directory(&self) -> Option<PathBuf> {
        self.kubernetes.then(|| self.install_dir.join("state"))
    }

    /// What the agent is told; nothing without `--kubernetes`.
    pub(super) fn settings(
        &self,
        grace: Millis,
        idle_release: Option<Millis>,
    ) -> anyhow::Result<Option<Settings>> {
        if !self.kubernetes {
            return Ok(None);
        }
        Ok(Some(Settings {
            kubeconfig: self.kubeconfig.clone(),
            kubelet_directory: self.kubelet_dir.clone(),
            cdi_directory: self.cdi_dir.clone(),
            driver_device: self.driver_cdi.clone(),
            install_directory: self.install_dir.clone(),
            shim: Installation::find()?.shim()?,
            terms: Terms { duration_unit: self.duration_unit, grace, idle_release },
            whole_cards: self.whole_cards,
        }))
    }
}

/// A full device name: `vendor/class=name`.
fn parse_device(text: &str) -> Result<String, String> {
    let whole = text.split_once('=').is_some_and(|(kind, name)| {
        !name.is_empty()
            && kind.split_once('/').is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty())
    });
    if whole {
        Ok(text.to_owned())
    } else {
        Err("write a CDI device's full name, such as nvidia.com/gpu=all".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_vendor_a_class_and_a_name() {
        assert!(parse_device("nvidia.com/gpu=all").is_ok());
        for wrong in
            ["", "all", "gpu=all", "nvidia.com/gpu", "nvidia.com/gpu=", "/gpu=all", "nvidia.com/=all"]
        {
            assert!(parse_device(wrong).is_err(), "{wrong}");
        }
    }
}
