//! What the controller asks of the API server, as the API server writes it down.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs, io};

use anyhow::Context;
use serde::Deserialize;

/// Requests, counted by verb and resource, such as `patch nodes/status`.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    counts: BTreeMap<String, usize>,
}

/// A line of the audit log, as far as it is read.
#[derive(Debug, Deserialize)]
struct Entry {
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    #[serde(rename = "objectRef")]
    object: Option<Object>,
}

#[derive(Debug, Deserialize)]
struct Object {
    resource: String,
    subresource: Option<String>,
}

impl Requests {
    /// All that stand in the audit log.
    pub(crate) fn read(log: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("cannot read {}", log.display()))?,
        };
        let mut requests = Self::default();
        // The last line may not be whole yet.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let entry: Entry =
                serde_json::from_str(line).context("the audit log has a line of another form")?;
            *requests.counts.entry(entry.name()).or_default() += 1;
        }
        Ok(requests)
    }

    /// Those that came after others.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let more = self.counts.iter().map(|(name, count)| {
            let earlier = before.counts.get(name).unwrap_or(&0);
            (name.clone(), count - earlier)
        });
        Self { counts: more.filter(|(_, count)| *count > 0).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// Whether there is nothing but renewals of a Lease and watches.
    pub(crate) fn only_lease_and_watches(&self) -> bool {
        self.counts.keys().all(|name| name == "update leases" || name.starts_with("watch "))
    }
}

impl Entry {
    fn name(self) -> String {
        let Some(object) = self.object else { return format!("{} {}", self.verb, self.uri) };
        let subresource = object.subresource.map(|name| format!("/{name}")).unwrap_or_default();
        format!("{} {}{subresource}", self.verb, object.resource)
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return formatter.write_str("none");
        }
        let counts: Vec<String> = self.counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        formatter.write_str(&counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Requests {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), log).unwrap();
        Requests::read(file.path()).unwrap()
    }

    const RENEWAL: &str = concat!(
        r#"{"verb":"update","requestURI":"/apis/coordination.k8s.io/v1/x","objectRef":{"resource":"leases"}}"#,
        "\n"
    );
    const WRITE: &str = concat!(
        r#"{"verb":"patch","requestURI":"/api/v1/nodes/n/status?force=true","#,
        r#""objectRef":{"resource":"nodes","subresource":"status"}}"#,
        "\n"
    );

    #[test]
    fn requests_between_two_moments_are_counted_by_verb_and_resource() {
        let before = read(&[RENEWAL, WRITE].concat());
        let after = read(&[RENEWAL, WRITE, RENEWAL, WRITE, WRITE, &WRITE[..20]].concat());
        let between = after.since(&before);
        assert_eq!(between.to_string(), "2 patch nodes/status, 1 update leases");
        assert_eq!((between.total(), after.since(&after).to_string()), (3, "none".to_owned()));
    }

    #[test]
    fn anything_but_renewals_and_watches_is_noticed() {
        let watch =
            r#"{"verb":"watch","requestURI":"/api/v1/nodes?watch=true","objectRef":{"resource":"nodes"}}"#;
        let idle = [RENEWAL, watch, "\n"].concat();
        assert!(read(&idle).only_lease_and_watches());
        assert!(!read(&[&idle, WRITE].concat()).only_lease_and_watches());
        assert!(!read(&idle.replace("watch\"", "list\"")).only_lease_and_watches());
    }
}
