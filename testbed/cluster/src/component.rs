//! One running program of a cluster: started, watched, killed and started again.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::place::Place;
use crate::programs::last_lines;
use crate::{Error, tied};

/// How a component is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The component's name, also that of its log; `kubelet@n1` is the kubelet of the node `n1`.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Variables of its environment, beside the caller's.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Where it can be asked for its health.
    pub(crate) address: Option<String>,
    /// Where it runs.
    pub(crate) place: Place,
}

impl Plan {
    /// Adds `name=value`.
    pub(crate) fn flag(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut argument = OsString::from(name);
        argument.push("=");
        argument.push(value);
        self.arguments.push(argument);
    }
}

/// A component with its process.
#[derive(Debug)]
pub(crate) struct Component {
    plan: Plan,
    folder: PathBuf,
    log: PathBuf,
    /// `None` while it is stopped.
    child: Option<Child>,
}

impl Component {
    /// Starts the component in the cluster's folder; what it prints is added to the log.
    pub(crate) fn start(plan: Plan, folder: &Path, log: PathBuf) -> Result<Self, Error> {
        let mut component = Self { plan, folder: folder.to_owned(), log, child: None };
        component.start_again()?;
        Ok(component)
    }

    /// Starts it again as it was started before.
    pub(crate) fn start_again(&mut self) -> Result<(), Error> {
        let output = OpenOptions::new().append(true).create(true).open(&self.log);
        let output = output.map_err(Error::file("open", &self.log))?;
        let same = output.try_clone().map_err(Error::file("open", &self.log))?;
        let mut command = Command::new(&self.plan.program);
        command
            .args(&self.plan.arguments)
            .current_dir(&self.folder)
            // kwok reads a configuration of the user's from there.
            .env("KWOK_WORKDIR", &self.folder)
            .envs(self.plan.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(same);
        let spawned = tied::spawn_in(command, &self.plan.place);
        self.child = Some(spawned.map_err(|source| Error::Spawn { name: self.plan.name.clone(), source })?);
        Ok(())
    }

    /// Starts it in another way from now on.
    pub(crate) fn start_as(&mut self, plan: Plan) -> Result<(), Error> {
        self.plan_as(plan);
        self.start_again()
    }

    /// When it is next started, that is in another way.
    pub(crate) fn plan_as(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// The component's name.
    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Where it can be asked for its health.
    pub(crate) fn address(&self) -> Option<&str> {
        self.plan.address.as_deref()
    }

    /// Its log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Its process id; `None` while it is stopped.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// An error when it should be running and has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        match child.try_wait().map_err(|source| Error::Spawn { name: self.plan.name.clone(), source })? {
            None => Ok(()),
            Some(status) => {
                Err(Error::Died { name: self.plan.name.clone(), status, end: last_lines(&self.log) })
            }
        }
    }

    /// Kills it, as a crash would, and waits until it has gone. Its id cannot be another process's: it is our
    /// child and nobody else waits for it.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait().map(drop)
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        // The kernel kills it with us at the latest; there is nobody to tell.
        let _ = self.kill();
    }
}
