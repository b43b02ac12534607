//! One running program of a cluster: started, watched, killed and started again.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::programs::last_lines;
use crate::{Error, tied};

/// How a component is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The component's name, also that of its log.
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Where it can be asked for its health.
    pub(crate) address: Option<String>,
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
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(same);
        let spawned = tied::spawn(command);
        self.child =
            Some(spawned.map_err(|source| Error::Spawn { name: self.plan.name.to_owned(), source })?);
        Ok(())
    }

    /// The component's name.
    pub(crate) fn name(&self) -> &'static str {
        self.plan.name
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
        match child.try_wait().map_err(|source| Error::Spawn { name: self.plan.name.to_owned(), source })? {
            None => Ok(()),
            Some(status) => Err(Error::Died { name: self.plan.name, status, end: last_lines(&self.log) }),
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
