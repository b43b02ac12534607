//! From a process's cgroup to its pod.
//!
//! The kubelet puts every container below a directory that carries its pod's UID, and only the kubelet and the
//! runtime can: that is the identity. How the directory is called differs (cgroup v1 and v2, the drivers cgroupfs and
//! systemd, the runtime), and a reader in a cgroup namespace of its own sees a path that begins with `/..`; so the UID
//! is looked for in every component, from the outside in. Below its own directory a privileged container may make
//! what it likes, therefore the outermost counts.

use gpupool_core::pool::PodId;

use super::{Identify, Stranger};
use crate::pod::cluster_pod_id;
use crate::procfs::{Proc, ProcessKey};

/// Identity in a cluster: the pod's UID in the caller's cgroup.
#[derive(Debug)]
pub(crate) struct Cgroups {
    proc: Proc,
}

impl Cgroups {
    /// By this `/proc`, which must be the host's.
    pub(crate) fn new(proc: Proc) -> Self {
        Self { proc }
    }
}

impl Identify for Cgroups {
    fn pod_of(&self, caller: ProcessKey, _parent: Option<u32>) -> Result<PodId, Stranger> {
        let cgroup = self.proc.cgroup(caller.pid).ok_or(Stranger::Gone(caller.pid))?;
        // The process is looked at after its cgroup was read: so what was read is about this process.
        let still = self.proc.stat(caller.pid).is_some_and(|stat| stat.key == caller);
        if !still {
            return Err(Stranger::Gone(caller.pid));
        }
        pod_uid(&cgroup).ok_or(Stranger::NoPod(caller.pid))
    }
}

/// The UID of the pod in the text of `/proc/<pid>/cgroup`; for a static pod the hash that the kubelet uses instead.
/// `None` where no line names a pod, or two lines name different ones.
fn pod_uid(cgroup: &str) -> Option<PodId> {
    // A line is `number:controllers:path`, and the path may hold colons too.
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut pods = paths.filter_map(|path| path.split('/').find_map(uid_in));
    let first = pods.next()?;
    pods.all(|other| other == first).then_some(first)
}

/// The UID in one component of a path: `pod<UID>` of the driver cgroupfs, or a slice of systemd's such as
/// `kubepods-burstable-pod<UID>.slice`, where hyphens became underscores.
fn uid_in(component: &str) -> Option<PodId> {
    let rest = component.strip_prefix("pod").or_else(|| Some(component.rsplit_once("-pod")?.1))?;
    // A runtime whose driver is not the kubelet's writes `….slice:cri-containerd:<id>` as one component.
    cluster_pod_id(&rest.split(['.', ':', ' ']).next()?.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fixture;

    const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
    const CONTAINER: &str = "2f8a1d0c9b7e6f5a4d3c2b1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a2f1e";

    fn underscored() -> String {
        UID.replace('-', "_")
    }

    #[test]
    fn every_layout_of_kubelets_and_runtimes_is_read() {
        let slice = underscored();
        let recorded = [
            // cgroup v1, cgroupfs, containerd: each class of pods, and a kubelet with a cgroupRoot.
            format!("4:memory:/kubepods/besteffort/pod{UID}/{CONTAINER}\n0::/\n"),
            format!(
                "12:pids:/kubepods/burstable/pod{UID}/{CONTAINER}\n4:memory:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
            ),
            format!("1:name=systemd:/kubepods/pod{UID}/{CONTAINER}\n"),
            format!("4:memory:/node-0/kubepods/besteffort/pod{UID}/{CONTAINER}\n"),
            // cgroup v1, systemd.
            format!(
                "9:cpu,cpuacct:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{CONTAINER}.scope\n"
            ),
            // cgroup v2: cgroupfs, then systemd with containerd and with CRI-O.
            format!("0::/kubepods/burstable/pod{UID}/{CONTAINER}\n"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice/cri-containerd-{CONTAINER}.scope\n"
            ),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice/crio-{CONTAINER}.scope\n"),
            format!("0::/kubepods.slice/kubepods-pod{slice}.slice/crio-{CONTAINER}.scope/container\n"),
            // A kubelet below another slice, as in a cluster made of containers.
            format!(
                "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{slice}.slice/cri-containerd-{CONTAINER}.scope\n"
            ),
            // containerd that was not told that the kubelet's driver is systemd.
            format!(
                "0::/system.slice/containerd.service/kubepods-besteffort-pod{slice}.slice:cri-containerd:{CONTAINER}\n"
            ),
            // Seen from inside another pod's cgroup namespace.
            format!("0::/../../pod{UID}/{CONTAINER}\n"),
            format!(
                "0::/../../../kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{CONTAINER}.scope\n"
            ),
            format!("4:memory:/../../besteffort/pod{UID}/{CONTAINER}\n"),
            // A container that makes cgroups of its own, and one whose cgroup was just removed.
            format!("0::/kubepods/burstable/pod{UID}/{CONTAINER}/init.scope\n"),
            format!("0::/kubepods/burstable/pod{UID} (deleted)\n"),
        ];
        for text in recorded {
            assert_eq!(pod_uid(&text), Some(UID.into()), "{text}");
        }
    }

    #[test]
    fn a_static_pod_has_the_hash_that_the_kubelet_gave_it() {
        let hash = "0123456789abcdef0123456789abcdef";
        let text = format!("0::/kubepods/burstable/pod{hash}/{CONTAINER}\n");
        assert_eq!(pod_uid(&text), Some(hash.into()));
    }

    #[test]
    fn what_is_no_pods_cgroup_names_none() {
        let texts = [
            String::new(),
            "0::/\n".to_owned(),
            "0::/init.scope\n".to_owned(),
            "0::/user.slice/user-1000.slice/session-3.scope\n".to_owned(),
            "0::/system.slice/kubelet.service\n".to_owned(),
            "0::/machine.slice/libpod-2f8a1d0c.scope\n".to_owned(),
            "0::/kubepods/burstable\n".to_owned(),
            format!("0::/docker/{CONTAINER}\n"),
            format!("0::/kubepods/pod{}/{CONTAINER}\n", &UID[1..]),
            format!("0::/kubepods/pod{UID}x/{CONTAINER}\n"),
            format!("0::/kubepods/pod{}/{CONTAINER}\n", UID.replace('a', "g")),
            format!("no line of the kernel's {UID}"),
        ];
        for text in texts {
            assert_eq!(pod_uid(&text), None, "{text}");
        }
    }

    #[test]
    fn a_cgroup_that_a_container_made_for_itself_never_passes_for_another_pod() {
        let other = "ffffffff-ffff-ffff-ffff-ffffffffffff";
        let text = format!("0::/kubepods/burstable/pod{UID}/{CONTAINER}/pod{other}\n");
        assert_eq!(pod_uid(&text), Some(UID.into()));
        let split = format!("4:memory:/kubepods/pod{UID}/{CONTAINER}\n5:pids:/kubepods/pod{other}/x\n");
        assert_eq!(pod_uid(&split), None);
    }

    #[test]
    fn a_caller_is_known_by_its_cgroup_and_only_while_it_is_itself() {
        let (place, proc) = fixture::of(&[(10, 1, 100), (11, 1, 110)]);
        let write = |pid: u32, text: &str| {
            std::fs::write(place.path().join(pid.to_string()).join("cgroup"), text).unwrap();
        };
        write(10, &format!("0::/kubepods/besteffort/pod{UID}/{CONTAINER}\n"));
        write(11, "0::/system.slice/sshd.service\n");
        let cgroups = Cgroups::new(proc);
        let key = |pid, start| ProcessKey { pid, start };
        assert_eq!(cgroups.pod_of(key(10, 100), None), Ok(UID.into()));
        assert_eq!(cgroups.pod_of(key(10, 99), None), Err(Stranger::Gone(10)));
        assert_eq!(cgroups.pod_of(key(11, 110), None), Err(Stranger::NoPod(11)));
        assert_eq!(cgroups.pod_of(key(12, 120), None), Err(Stranger::Gone(12)));
    }
}
