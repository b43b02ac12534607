//! For tests: a process that is held, lives on and does not mind signals.

use tokio::sync::mpsc;

use super::ProcessHandle;
use crate::notice::Warrant;
use crate::procfs::ProcessKey;

#[derive(Debug)]
pub(crate) struct LivingProcess(pub(crate) ProcessKey);

impl ProcessHandle for LivingProcess {
    fn key(&self) -> ProcessKey {
        self.0
    }

    fn parent(&self) -> u32 {
        1
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn signal(&self, _warrant: &Warrant) -> std::io::Result<bool> {
        Ok(true)
    }

    fn watch_exit(&self, _exits: mpsc::UnboundedSender<ProcessKey>) -> std::io::Result<()> {
        Ok(())
    }
}
