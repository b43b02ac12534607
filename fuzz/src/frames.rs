//! Frames between programs and the agent: recognised alone, and received from a socket with descriptors.

use std::io::IoSlice;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use gpupool_agent::fuzzing;
use gpupool_wire::message::{
    self, DecodeError, MAGIC, MAX_FRAME, MAX_POD_NAME, MAX_SENTENCE, Message, VERSION,
};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};

use crate::choices::Choices;

/// Name of the file whose descriptors are sent.
const FILE: &str = "gpupool-fuzz-messages";

/// Bytes of a frame by its kind; a control packet has any number of them after its header.
const LENGTHS: [usize; 7] = [8, 40, 16 + MAX_POD_NAME, 12 + MAX_SENTENCE, 24, 40, 8];

/// A packet: a frame of the right length, one that is damaged, or bytes as they are.
pub(crate) fn packet(choices: &mut Choices<'_>) -> Vec<u8> {
    let sort = choices.byte();
    if sort < 32 {
        return choices.bytes(200).to_vec();
    }
    let kind = choices.below(LENGTHS.len());
    let mut packet =
        [MAGIC.to_le_bytes().as_slice(), &VERSION.to_le_bytes(), &[kind.to_le_bytes()[0], 0]].concat();
    packet.extend(choices.bytes(600));
    if kind != 0 {
        packet.resize(LENGTHS[kind], 0);
    }
    if sort >= 224 {
        choices.damage(&mut packet);
    }
    packet
}

/// Recognises a frame; what is recognised has the length of its kind, and texts that end inside it.
///
/// # Panics
/// Where an answer is wrong.
pub fn frames(data: &[u8]) {
    let mut choices = Choices::new(data);
    let packet = if choices.coin() { packet(&mut choices) } else { choices.rest().to_vec() };
    let found = message::decode(&packet);
    let half = |at: usize| packet.get(at..at + 2).map(|half| u16::from_le_bytes([half[0], half[1]]));
    let ours = packet.starts_with(&MAGIC.to_le_bytes()) && half(4) == Some(VERSION);
    let kind =
        half(6).map(usize::from).filter(|kind| *kind < LENGTHS.len()).filter(|_| ours && packet.len() >= 8);
    let whole = kind.is_some_and(|kind| kind == 0 || packet.len() >= LENGTHS[kind]);
    assert_eq!(found.is_ok(), whole, "{found:?}");
    match found {
        Ok(Message::Control(body)) => assert_eq!(body, &packet[8..]),
        Ok(Message::Welcome(welcome)) => assert!(welcome.pod().len() <= MAX_POD_NAME),
        Ok(Message::Refused(refused)) => {
            assert!(refused.sentence().len() <= refused.sentence_bytes().len());
            assert!(refused.sentence_bytes().len() <= MAX_SENTENCE);
        }
        Ok(Message::Hello(hello)) => assert_eq!(hello.resume().is_none(), packet[8..16] == [0; 8]),
        Ok(_) => {}
        Err(error) => {
            assert_eq!(matches!(error, DecodeError::TooShort(_)), packet.len() < 8);
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Sends packets through a socket to the agent's receiver, some with a descriptor of a file beside them. It must hand on
/// what was sent up to the first packet that is no frame or brings descriptors, and leave no descriptor open.
///
/// # Panics
/// Where an answer is wrong.
pub fn messages(data: &[u8]) {
    let mut choices = Choices::new(data);
    let open_before = open_descriptors();
    let file: OwnedFd =
        memfd_create(FILE, MemfdFlags::CLOEXEC).unwrap_or_else(|error| unreachable!("{error}"));
    let packets: Vec<(Vec<u8>, usize)> = (0..=choices.byte() % 4)
        .map(|_| {
            let mut packet = packet(&mut choices);
            if choices.byte() == 255 {
                packet.resize(MAX_FRAME + choices.below(3) - 1, b' ');
            }
            (packet, [0, 0, 0, 0, 0, 0, 1, 13, 60][choices.below(9)])
        })
        .collect();
    let received = fuzzing::receive(sent(&packets, file.as_fd()));
    let expected: Vec<_> = packets.iter().take_while(|(packet, copies)| is_taken(packet, *copies)).collect();
    assert_eq!(received.len(), expected.len(), "{packets:?}");
    for (received, (sent, _)) in received.iter().zip(expected) {
        assert_eq!(received, sent);
    }
    drop(file);
    assert_eq!(open_descriptors(), open_before, "descriptors stay open: {packets:?}");
}

/// Whether the agent's receiver takes a packet with so many descriptors.
pub(crate) fn is_taken(packet: &[u8], descriptors: usize) -> bool {
    descriptors == 0 && (1..=MAX_FRAME).contains(&packet.len()) && message::decode(packet).is_ok()
}

/// A socket on which the packets lie, with so many copies of a descriptor each, and whose other end is closed.
fn sent(packets: &[(Vec<u8>, usize)], file: BorrowedFd<'_>) -> OwnedFd {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, agents) = pair.unwrap_or_else(|error| unreachable!("{error}"));
    for (packet, descriptors) in packets {
        let list = vec![file; *descriptors];
        let mut room = vec![std::mem::MaybeUninit::uninit(); 512];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        if !list.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&list));
        }
        let sent = sendmsg(&ours, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(packet.len()));
    }
    agents
}

/// How many descriptors of this process lead to the file of this target. Other threads open other files.
fn open_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let ours = |path: std::path::PathBuf| path.starts_with(format!("/memfd:{FILE} (deleted)"));
    all.filter(|one| std::fs::read_link(one.path()).is_ok_and(ours)).count()
}
