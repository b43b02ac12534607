//! What reads the words of others, for fuzz targets: journals, packets with descriptors. Not for users of the agent.

use std::os::fd::OwnedFd;

use gpupool_wire::message::{self, MAX_FRAME};

use crate::journal::{self, Content};
use crate::packet_socket::{PacketSocket, Received};
use crate::registry::Record;

/// What was understood of a journal.
#[derive(Debug)]
pub struct Journal {
    /// The whole records, as JSON, up to the first that means nothing.
    pub records: Vec<String>,
    /// Bytes of all whole records, those included that mean nothing.
    pub whole: usize,
    /// The line of the first that means nothing, from 1.
    pub unknown: Option<usize>,
}

/// Reads a journal's content.
pub fn journal(content: &[u8]) -> Journal {
    let Content { records, whole, unknown } = journal::read::<Record>(content);
    let json = |record| serde_json::to_string(record).unwrap_or_else(|error| format!("no JSON: {error}"));
    let unknown = unknown.map(|unknown| unknown.line);
    Journal { records: records.iter().map(json).collect(), whole, unknown }
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
