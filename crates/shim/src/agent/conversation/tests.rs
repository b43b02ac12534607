use std::collections::VecDeque;

use gpupool_wire::message::{Granted, Refused, Welcome};

use super::*;

const CARD: CardUuid = [5; 16];

/// What the scripted agent does next.
enum Step {
    /// The next attempt to connect fails.
    NoConnection,
    /// The process may not make a socket.
    NoMeans,
    /// It works.
    Connection,
    /// A packet is there at this time.
    Packet(u64, Vec<u8>),
    /// The connection ends at this time.
    End(u64),
}

/// A link with a clock of its own, which moves only while somebody waits.
#[derive(Default)]
struct ScriptedLink {
    now: u64,
    steps: VecDeque<Step>,
    connected: bool,
    position: u32,
    said: Vec<(u64, String)>,
    sent: Vec<Vec<u8>>,
    adopted: Vec<u32>,
}

impl ScriptedLink {
    fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), position: 2, ..Self::default() }
    }
}

impl AgentLink for ScriptedLink {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let outcome = match self.steps.pop_front() {
            Some(Step::Connection) => Ok(()),
            Some(Step::NoConnection) => Err(Failure::Away),
            Some(Step::NoMeans) => Err(Failure::Unable),
            _ => panic!("a connection is attempted out of turn"),
        };
        self.connected = outcome.is_ok();
        outcome
    }

    fn connected(&mut self) -> bool {
        self.connected
    }

    fn send(&mut self, packet: &[u8]) -> bool {
        self.sent.push(packet.to_vec());
        self.connected
    }

    fn receive(&mut self, buffer: &mut Buffer, milliseconds: u64) -> Received {
        let until = self.now + milliseconds;
        match self.steps.front() {
            Some(&Step::Packet(at, _) | &Step::End(at)) if at <= until => self.now = self.now.max(at),
            _ => {
                self.now = until;
                return Received::Nothing;
            }
        }
        if let Some(Step::Packet(_, bytes)) = self.steps.pop_front() {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Received::Packet(bytes.len());
        }
        self.connected = false;
        Received::Gone
    }

    fn adopt(&mut self, slot: u32) -> bool {
        self.adopted.push(slot);
        true
    }

    fn position(&mut self) -> u32 {
        self.position
    }

    fn say(&mut self, line: &[u8]) {
        self.said.push((self.now, String::from_utf8(line.to_vec()).unwrap()));
    }

    fn pause(&mut self, milliseconds: u64) {
        self.now += milliseconds;
    }
}

fn welcome(at: u64) -> Step {
    Step::Packet(at, Welcome::new(4, "A").as_bytes().to_vec())
}

fn granted(at: u64) -> Step {
    Step::Packet(at, Granted::new(9, CARD, 1).as_bytes().to_vec())
}

fn refused(at: u64) -> Step {
    let refused = Refused::new(RefusalReason::NotRegistered, "This process belongs to no pod.");
    Step::Packet(at, refused.as_bytes().to_vec())
}

#[test]
fn a_process_is_introduced_and_takes_over_its_pages() {
    let mut link = ScriptedLink::of([Step::Connection, welcome(1)]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Ok(()));
    assert_eq!(link.adopted, [4]);
    assert_eq!(link.sent, [Hello::fresh(NO_CARD).as_bytes().to_vec()]);
    assert!(link.said.is_empty());
}

#[test]
fn a_process_without_the_means_to_connect_is_told_so_and_does_not_wait() {
    let mut link = ScriptedLink::of([Step::NoMeans]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Err(Failure::Unable));
    assert_eq!(link.said.len(), 1);
    let mut link = ScriptedLink::of([Step::NoMeans]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::Once), Err(Failure::Unable));
    assert!(link.said.is_empty());
}

#[test]
fn a_refusal_is_told_once_and_ends_the_attempt() {
    let mut link = ScriptedLink::of([Step::Connection, refused(1)]);
    let answer = introduce(&mut link, &Registration::new(), Retry::UntilConnected);
    assert_eq!(answer, Err(Failure::Refused(RefusalReason::NotRegistered)));
    assert_eq!(link.said, [(1, "gpupool: This process belongs to no pod.\n".to_owned())]);
}

#[test]
fn an_agent_of_another_version_is_told_once_and_not_waited_for() {
    let mut packet = Welcome::new(4, "A").as_bytes().to_vec();
    packet[4] = 99;
    let mut link = ScriptedLink::of([Step::Connection, Step::Packet(1, packet)]);
    let answer = introduce(&mut link, &Registration::new(), Retry::UntilConnected);
    assert_eq!(answer, Err(Failure::Refused(RefusalReason::Version)));
    assert_eq!(link.said.len(), 1);
}

#[test]
fn what_a_newer_agent_says_besides_is_passed_over() {
    let unknown = |at| Step::Packet(at, b"GPOL\x01\0\x63\0 something new".to_vec());
    let mut link = ScriptedLink::of([Step::Connection, unknown(1), welcome(2), unknown(3), granted(4)]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Ok(()));
    let grant = acquire(&mut link, &Registration::new());
    assert_eq!(grant, Ok(Grant { lease: 9, card: CARD }));
}

#[test]
fn an_agent_that_only_says_what_is_unknown_counts_as_away() {
    let chatter = (0..=GREETING_TIMEOUT_MS).map(|at| Step::Packet(at, b"GPOL\x01\0\x63\0".to_vec()));
    let steps = [Step::Connection].into_iter().chain(chatter).chain([Step::Connection, welcome(20_000)]);
    let mut link = ScriptedLink::of(steps);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Ok(()));
    assert_eq!(link.said.len(), 1, "{:?}", link.said);
}

#[test]
fn an_agent_that_is_away_is_waited_for_and_said_to_be_away_once() {
    let absences = (0..10).map(|_| Step::NoConnection);
    let mut link = ScriptedLink::of(absences.chain([Step::Connection, welcome(0)]));
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Ok(()));
    assert_eq!(link.said, [(0, "gpupool: the agent is away, waiting for it …\n".to_owned())]);
    assert_eq!(link.now, 20 + 40 + 80 + 160 + 320 + 640 + 4 * 1_000);
}

#[test]
fn who_will_not_wait_gets_silence() {
    let mut link = ScriptedLink::of([Step::NoConnection]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::Once), Err(Failure::Away));
    let mut link = ScriptedLink::of([Step::Connection, welcome(5_000)]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::Once), Err(Failure::Away));
    assert!(link.said.is_empty());
    assert!(link.now <= SINGLE_TRY_TIMEOUT_MS);
}

#[test]
fn an_agent_that_answers_rubbish_or_never_is_taken_as_away() {
    let rubbish = Step::Packet(0, vec![1, 2, 3]);
    let mut link =
        ScriptedLink::of([Step::Connection, rubbish, Step::Connection, Step::Connection, welcome(15_000)]);
    assert_eq!(introduce(&mut link, &Registration::new(), Retry::UntilConnected), Ok(()));
    assert_eq!(link.said.len(), 1);
}

#[test]
fn a_card_that_is_free_is_granted_without_a_word() {
    let mut link = ScriptedLink::of([granted(2)]);
    link.connected = true;
    assert_eq!(acquire(&mut link, &Registration::new()), Ok(Grant { lease: 9, card: CARD }));
    assert!(link.said.is_empty());
}

#[test]
fn a_waiting_program_is_told_how_long_and_at_which_place() {
    let mut link = ScriptedLink::of([granted(14_000)]);
    link.connected = true;
    assert!(acquire(&mut link, &Registration::new()).is_ok());
    let waiting = |seconds| format!("You have been waiting for {seconds} seconds. Approximate position: 2\n");
    assert_eq!(link.said, [(3_000, waiting(3)), (8_000, waiting(8)), (13_000, waiting(13))]);
}

#[test]
fn a_wait_goes_on_over_a_restart_of_the_agent() {
    let mut link = ScriptedLink::of([
        Step::End(4_000),
        Step::NoConnection,
        Step::NoConnection,
        Step::Connection,
        welcome(4_100),
        granted(9_500),
    ]);
    link.connected = true;
    assert!(acquire(&mut link, &Registration::new()).is_ok());
    let texts: Vec<_> =
        link.said.iter().map(|(at, line)| (*at, line.split_whitespace().nth(5).unwrap())).collect();
    assert_eq!(texts, [(3_000, "3"), (4_000, "waiting"), (8_000, "8")]);
    let acquires = link.sent.iter().filter(|bytes| *bytes == Acquire::new(NO_CARD).as_bytes()).count();
    assert_eq!(acquires, 2);
}

#[test]
fn a_dead_connection_that_nobody_noticed_is_replaced_before_waiting() {
    let mut link = ScriptedLink::of([Step::Connection, welcome(0), granted(0)]);
    assert!(acquire(&mut link, &Registration::new()).is_ok());
    assert_eq!(link.adopted, [4]);
}

#[test]
fn a_process_asks_for_its_first_card_again() {
    let mut link = ScriptedLink::of([granted(0)]);
    link.connected = true;
    acquire(&mut link, &Registration { card: CARD, ..Registration::new() }).unwrap();
    assert_eq!(link.sent, [Acquire::new(CARD).as_bytes().to_vec()]);
}

#[test]
fn a_process_with_a_lease_comes_back_with_it() {
    let me = Registration { lease: 9, card: CARD, slot: 4 };
    let mut link = ScriptedLink::of([Step::Connection, welcome(0)]);
    assert_eq!(introduce(&mut link, &me, Retry::Once), Ok(()));
    assert_eq!(link.sent, [Hello::resuming(9, CARD, 4).as_bytes().to_vec()]);
}
