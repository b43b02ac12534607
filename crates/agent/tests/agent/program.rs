//! A GPU program as the agent sees it: somebody who speaks the shim's part of the protocol.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpupool_wire::ledger::{self, Ledger};
use gpupool_wire::limits::{self, Limits, LimitsPage};
use gpupool_wire::message::{Acquire, Granted, Hello, Message, Release, decode};
use gpupool_wire::{CardUuid, NO_CARD};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use zerocopy::IntoBytes as _;

use crate::node::PATIENCE;

/// What the agent answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Welcome { slot: u32, pod: String },
    Refused(String),
    Granted(Granted),
    HungUp,
}

pub(crate) struct Program {
    path: PathBuf,
    socket: OwnedFd,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Program {
    pub(crate) fn connect(path: &Path) -> Self {
        let address = SocketAddrUnix::new(path).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        Self { path: path.to_owned(), socket, descriptors: Vec::new() }
    }

    /// Connects and is welcomed.
    pub(crate) fn welcomed(socket: &Path) -> Self {
        let mut program = Self::connect(socket);
        assert!(matches!(program.hello(), Answer::Welcome { .. }));
        program
    }

    /// The same for a process that was welcomed before, and has closed that connection.
    pub(crate) fn welcomed_after(earlier: Self, socket: &Path) -> Self {
        drop(earlier);
        Self::welcomed(socket)
    }

    /// Says hello; comes again for as long as an agent that has just started has not looked at its cards.
    pub(crate) fn hello(&mut self) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.send(Hello::fresh(NO_CARD).as_bytes(), None);
            let answer = self.next();
            if answer != Answer::HungUp || Instant::now() > deadline {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(10));
            *self = Self::connect(&self.path);
        }
    }

    pub(crate) fn resume(&mut self, granted: &Granted, slot: u32) -> Answer {
        let hello = Hello::resuming(granted.lease(), granted.card(), slot);
        self.send(hello.as_bytes(), None);
        self.next()
    }

    pub(crate) fn acquire(&mut self) {
        self.acquire_only(NO_CARD);
    }

    pub(crate) fn acquire_only(&mut self, card: CardUuid) {
        self.send(Acquire::new(card).as_bytes(), None);
    }

    pub(crate) fn granted(&mut self) -> Granted {
        match self.next() {
            Answer::Granted(granted) => granted,
            other => panic!("no grant but {other:?}"),
        }
    }

    pub(crate) fn release(&mut self) {
        self.send(Release::new().as_bytes(), None);
    }

    /// Sends a packet, with a descriptor beside it; false when the agent has hung up.
    pub(crate) fn send(&self, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(packet)], &mut ancillary, flags).is_ok()
    }

    /// Its end of the connection.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether an answer waits to be read.
    pub(crate) fn has_answer(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
    }

    pub(crate) fn next(&mut self) -> Answer {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        assert!(rustix::event::poll(&mut polled, Some(&limit)).unwrap() > 0, "the agent does not answer");
        let mut packet = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags);
        let Ok(received) = received else { return Answer::HungUp };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors = descriptors.collect();
            }
        }
        match packet.get(..received.bytes) {
            None | Some([]) => Answer::HungUp,
            Some(packet) => match decode(packet).unwrap() {
                Message::Welcome(welcome) => {
                    Answer::Welcome { slot: welcome.slot(), pod: welcome.pod().to_owned() }
                }
                Message::Refused(refused) => Answer::Refused(refused.sentence().to_owned()),
                Message::Granted(granted) => Answer::Granted(*granted),
                other => panic!("{other:?} is nothing that an agent says"),
            },
        }
    }

    /// What the limits page says.
    pub(crate) fn limits(&self) -> Limits {
        let memory = map(self.descriptors[0].as_fd(), limits::FILE_LENGTH, ProtFlags::READ);
        // SAFETY: a mapping of that length which is never taken away.
        unsafe { LimitsPage::open(memory, limits::FILE_LENGTH) }.unwrap().read()
    }

    /// The pod's ledger.
    pub(crate) fn ledger(&self) -> Ledger<'static> {
        let memory =
            map(self.descriptors[1].as_fd(), ledger::FILE_LENGTH, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a mapping of that length which is never taken away.
        unsafe { Ledger::open(memory, ledger::FILE_LENGTH) }.unwrap()
    }
}

fn map(descriptor: BorrowedFd<'_>, length: usize, rights: ProtFlags) -> *mut core::ffi::c_void {
    // SAFETY: a new mapping at a place of the kernel's choice.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, rights, MapFlags::SHARED, descriptor, 0) }
        .unwrap()
}
