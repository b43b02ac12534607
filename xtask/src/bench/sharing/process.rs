//! What the kernel says of a process: its memory, its time on the processors, which pod it is of.

use std::fs;

use anyhow::Context;

/// Resident memory in bytes.
pub(super) fn resident_memory(process: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.context("the kernel does not say VmRSS")? * 1024.0)
}

/// What its threads have spent on the processors so far, in nanoseconds; threads that have ended are not counted.
pub(super) fn processor_time(process: u32) -> anyhow::Result<f64> {
    let mut nanoseconds = 0.0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that ends just now is one that has ended.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanoseconds += text.split(' ').next().and_then(|spent| spent.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanoseconds)
}

/// The process of this name in a pod, by the pod's UID. Nodes have their own process numbers; this is the machine's.
pub(super) fn in_pod(uid: &str, name: &str) -> anyhow::Result<u32> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A process may end while it is looked at.
    let read =
        |process: u32, file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let mut found = processes
        .filter(|process| read(*process, "comm").trim() == name && read(*process, "cgroup").contains(uid));
    found.next().with_context(|| format!("no process {name} runs in the pod with the UID {uid}"))
}
