//! What reads the words of others, for fuzz targets: journals, packets with descriptors. Not for users of the agent.

use std::os::fd::OwnedFd;

use gpupool_wire::message::{self, MAX_FRAME};

use crate::journal::{self, Content};
use crate::packet_socket::{PacketSocket, Received};
use crate::registry::Record;

/// What was understood of a journal.
#[derive(Debug)]
pub struct Journal {
    /// The whole records, as JSON.
    pub records: Vec<String>,
    /// Their bytes in the journal.
    pub whole: usize,
}

/// Reads a journal's content.
pub fn journal(content: &[u8]) -> Journal {
    let Content { records, whole, .. } = journal::read::<Record>(content);
    let json = |record| serde_json::to_string(record).unwrap_or_else(|error| format!("no JSON: {error}"));
    Journal { records: records.iter().map(json).collect(), whole }
}

/// Receives from a connected socket until its other end hangs up or sends what is no frame, and closes it; gives the
/// frames.
pub fn receive(socket: OwnedFd) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return all };
    runtime.block_on(async {
        let Ok(socket) = PacketSocket::of(socket) else { return };
        let mut packet = vec![0; MAX_FRAME];
        while let Ok(Received::Packet(length)) = socket.receive(&mut packet).await
            && let Some(packet) = packet.get(..length).filter(|packet| message::decode(packet).is_ok())
        {
            all.push(packet.to_vec());
        }
        socket.close().await;
    });
    all
}
