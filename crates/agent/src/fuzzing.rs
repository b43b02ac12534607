//! What reads the words of others, for fuzz targets: journals, packets with descriptors. Not for users of the agent.

use std::os::fd::OwnedFd;

use gpupool_wire::message::{self, MAX_FRAME};
use tokio_seqpacket::UnixSeqpacket;

use crate::journal::whole_records;
use crate::registry::Record;
use crate::server::conversation::receive as receive_one;

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
    let (records, whole) = whole_records::<Record>(content);
    let json = |record| serde_json::to_string(record).unwrap_or_else(|error| format!("no JSON: {error}"));
    Journal { records: records.iter().map(json).collect(), whole }
}

/// A packet that is a frame, and the descriptor that came with it.
#[derive(Debug)]
pub struct Received {
    /// Its bytes.
    pub packet: Vec<u8>,
    /// The first of its descriptors.
    pub descriptor: Option<OwnedFd>,
}

/// Receives from a connected socket until its other end hangs up or sends what is no frame.
pub fn receive(socket: OwnedFd) -> Vec<Received> {
    let mut all = Vec::new();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return all };
    runtime.block_on(async {
        let Ok(socket) = UnixSeqpacket::try_from(socket) else { return };
        let mut packet = vec![0; MAX_FRAME];
        while let Ok((length, descriptor)) = receive_one(&socket, &mut packet).await
            && let Some(packet) = packet.get(..length).filter(|packet| message::decode(packet).is_ok())
        {
            all.push(Received { packet: packet.to_vec(), descriptor });
        }
    });
    all
}
