//! The real helm, told which cluster to install into.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::home::write_private;
use crate::{Cluster, Error, Tool, folder_of, tied};

impl Cluster {
    /// Installs a chart, or upgrades what was installed under this name, in a namespace that is created where it is
    /// missing. Later values win over earlier ones, lists whole.
    pub fn install_chart(
        &self,
        name: &str,
        namespace: &str,
        chart: &Path,
        values: &[&Value],
    ) -> Result<String, Error> {
        let mut arguments: Vec<OsString> = ["upgrade", "--install", name].map(OsString::from).into();
        arguments.push(chart.into());
        arguments.extend(["--namespace", namespace, "--create-namespace"].map(OsString::from));
        for (index, values) in values.iter().enumerate() {
            let file = self.folder.join(format!("{name}-values-{index}.json"));
            write_private(&file, &values.to_string())?;
            arguments.extend(["--values".into(), file.into()]);
        }
        self.helm(arguments)
    }

    /// Runs the real helm as administrator; gives its standard output, or an error with what it said. Builds it first
    /// if the cache has none.
    pub fn helm(&self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<String, Error> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let home = self.folder.join("helm");
        let mut helm = Command::new(folder_of(Tool::Helm)?.join("helm"));
        helm.args(&arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HELM_CACHE_HOME", &home)
            .env("HELM_CONFIG_HOME", &home)
            .env("HELM_DATA_HOME", &home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |source| Error::Spawn { name: "helm".to_owned(), source };
        let output = tied::spawn(helm).and_then(std::process::Child::wait_with_output).map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        Err(Error::Helm {
            arguments: words.join(" "),
            status: output.status,
            said: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        })
    }
}
