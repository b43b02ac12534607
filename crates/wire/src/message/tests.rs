use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::uuid::NO_CARD;

const CARD: CardUuid = [7; 16];

#[test]
fn every_frame_is_recognised_and_says_what_was_put_in() {
    let hello = Hello::resuming(9, CARD, 3);
    let Ok(Message::Hello(read)) = decode(hello.as_bytes()) else { panic!("no hello") };
    assert_eq!((read.resume(), read.card(), read.slot()), (Some(9), CARD, Some(3)));

    let fresh = Hello::fresh(NO_CARD);
    let Ok(Message::Hello(read)) = decode(fresh.as_bytes()) else { panic!("no hello") };
    assert_eq!((read.resume(), read.card(), read.slot()), (None, NO_CARD, None));

    let welcome = Welcome::new(12, "team/notebook");
    let Ok(Message::Welcome(read)) = decode(welcome.as_bytes()) else { panic!("no welcome") };
    assert_eq!((read.slot(), read.pod()), (12, "team/notebook"));

    let refused = Refused::new(RefusalReason::NotRegistered, "This process belongs to no pod.");
    let Ok(Message::Refused(read)) = decode(refused.as_bytes()) else { panic!("no refusal") };
    assert_eq!(
        (read.reason(), read.sentence()),
        (RefusalReason::NotRegistered, "This process belongs to no pod.")
    );

    let acquire = Acquire::new(CARD);
    let Ok(Message::Acquire(read)) = decode(acquire.as_bytes()) else { panic!("no acquire") };
    assert_eq!(read.only(), CARD);

    let granted = Granted::new(41, CARD, 1);
    let Ok(Message::Granted(read)) = decode(granted.as_bytes()) else { panic!("no grant") };
    assert_eq!((read.lease(), read.card(), read.index()), (41, CARD, 1));

    assert_eq!(decode(Release::new().as_bytes()), Ok(Message::Release(&Release::new())));
}

#[test]
fn the_json_of_a_control_packet_is_handed_on_unread() {
    let mut packet = Header::new(FrameKind::Control).as_bytes().to_vec();
    packet.extend_from_slice(b"{}");
    assert_eq!(decode(&packet), Ok(Message::Control(b"{}")));
}

#[test]
fn a_frame_that_is_too_short_is_refused_whole_and_a_longer_one_is_read_as_far_as_it_is_known() {
    let mut packet = Acquire::new(CARD).as_bytes().to_vec();
    packet.push(0);
    assert_eq!(decode(&packet), Ok(Message::Acquire(&Acquire::new(CARD))));
    packet.truncate(23);
    assert_eq!(decode(&packet), Err(DecodeError::Length { kind: FrameKind::Acquire, length: 23 }));
    assert_eq!(decode(&packet[..7]), Err(DecodeError::TooShort(7)));
}

#[test]
fn strangers_and_other_versions_are_told_apart() {
    let mut packet = Release::new().as_bytes().to_vec();
    packet[4] = 2;
    assert_eq!(decode(&packet), Err(DecodeError::Version(2)));
    packet[0] = b'X';
    assert!(matches!(decode(&packet), Err(DecodeError::Foreign(_))));
}

#[test]
fn a_hello_says_which_versions_its_sender_speaks() {
    let hello = Hello::fresh(NO_CARD);
    assert_eq!((hello.versions(), hello.is_understood()), ((OLDEST, VERSION), true));
    let old = hello.speaking(0, 0);
    assert_eq!((old.versions(), old.is_understood()), ((FIRST, FIRST), true), "from before hellos said it");
    assert!(hello.speaking(FIRST, 900).is_understood(), "a newer one that still speaks this version");
    for (oldest, newest) in [(VERSION + 1, 900), (2, 1), (0, OLDEST - 1), (u16::MAX, u16::MAX)] {
        let hello = hello.speaking(oldest, newest);
        assert!(!hello.is_understood() || newest == 0, "{oldest} to {newest}");
        assert_eq!(decode(hello.as_bytes()), Ok(Message::Hello(&hello)), "it can always be read");
    }
}

/// The bytes of the release that containers may still have, written out: they must never change.
#[test]
fn what_everybody_must_understand_is_as_it_was_first() {
    let hello = Hello::resuming(9, CARD, 3).speaking(0, 0);
    let first = [&b"GPOL\x01\0\x01\0\x09\0\0\0\0\0\0\0"[..], &CARD, &[3, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(hello.as_bytes(), first);
    let refused = Refused::new(RefusalReason::Version, "no");
    assert_eq!(refused.as_bytes()[..16], *b"GPOL\x01\0\x03\0\x03\0\0\0no\0\0");
    assert_eq!(refused.as_bytes().len(), 524);
}

#[test]
fn an_unknown_kind_of_a_known_version_is_told_from_rubbish() {
    let mut packet = Release::new().as_bytes().to_vec();
    packet[6] = 99;
    assert_eq!(decode(&packet), Err(DecodeError::UnknownKind(99)));
}

#[test]
fn a_sentence_that_is_too_long_is_cut_at_a_character() {
    let long = "é".repeat(MAX_SENTENCE);
    let refused = Refused::new(RefusalReason::Other, &long);
    assert_eq!(refused.sentence(), "é".repeat(MAX_SENTENCE / 2));
}

#[test]
fn an_unknown_reason_is_still_a_refusal() {
    assert_eq!(RefusalReason::from_number(900), RefusalReason::Other);
}

fn plausible_packet() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<bool>(), 0..4_u16, 0..9_u16);
    (header, proptest::collection::vec(any::<u8>(), 0..700)).prop_map(|((ours, version, kind), body)| {
        let mut packet = if ours { MAGIC } else { 0x1234 }.to_le_bytes().to_vec();
        packet.extend_from_slice(&version.to_le_bytes());
        packet.extend_from_slice(&kind.to_le_bytes());
        packet.extend_from_slice(&body);
        packet
    })
}

/// Reads all that a frame can say, so that no accessor can panic unseen.
fn read_everything(packet: &[u8]) -> usize {
    match decode(packet) {
        Ok(Message::Hello(hello)) => hello.card().len() + hello.slot().map_or(0, |_| 1),
        Ok(Message::Welcome(welcome)) => welcome.pod().len(),
        Ok(Message::Refused(refused)) => refused.sentence().len() + refused.reason() as usize,
        Ok(other) => format!("{other:?}").len(),
        Err(error) => error.to_string().len(),
    }
}

proptest! {
    #[test]
    fn no_bytes_can_make_the_decoder_panic(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_everything(&packet);
    }

    #[test]
    fn no_body_behind_a_good_header_can_make_it_panic(packet in plausible_packet()) {
        read_everything(&packet);
    }

    #[test]
    fn a_frame_with_any_bytes_of_the_right_length_can_be_read(body in proptest::collection::vec(any::<u8>(), 516)) {
        let mut packet = Header::new(FrameKind::Refused).as_bytes().to_vec();
        packet.extend_from_slice(&body);
        let Ok(Message::Refused(refused)) = decode(&packet) else { panic!("refused not read") };
        prop_assert!(refused.sentence().len() <= MAX_SENTENCE);
    }
}
