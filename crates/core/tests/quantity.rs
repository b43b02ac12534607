//! Quantities: the forms of the Kubernetes documentation, its rounding, its canonical text, and an oracle of
//! exact fractions.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::quantity::{Form, Quantity, QuantityError};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Pow as _, Signed as _, Zero as _};
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).expect(text)
}

#[test]
fn every_spelling_of_nothing_is_zero() {
    for text in
        ["0", "0.0", "0e3", "0E-3", "0k", "0Ki", "0m", "00", "-0", "+0", ".0", "0.", "0e999999999", "0.000n"]
    {
        assert!(quantity(text).is_zero(), "{text}");
        assert_eq!(quantity(text).to_string(), "0", "{text}");
    }
}

#[test]
fn the_same_amount_is_equal_whatever_its_form() {
    for (left, right) in [
        ("4", "4e0"),
        ("4", "4000m"),
        ("1e0", "1"),
        ("4k", "4000"),
        ("1Ki", "1024"),
        ("0.5Gi", "512Mi"),
        ("1.G", "1e9"),
        (".5", "500m"),
        ("1E", "1000P"),
        ("1E3", "1k"),
        ("1e+3", "1k"),
        ("+4", "4"),
    ] {
        assert_eq!(quantity(left), quantity(right), "{left} {right}");
    }
    assert!(quantity("10000T") > quantity("100Gi"));
    assert!(quantity("-1") < quantity("1m"));
}

#[test]
fn canonical_text_is_that_of_kubernetes() {
    for (written, canonical) in [
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("4", "4"),
        ("4000", "4k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("1.1Ki", "1126400m"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("1.2345", "1234500u"),
        ("1e1", "10"),
        ("1e4", "10e3"),
        ("1e-10", "1e-9"),
        ("0.5e-1", "50e-3"),
        ("8Ei", "9223372036854775807"),
        ("1000E", "1e21"),
        ("-1.5Gi", "-1536Mi"),
        ("100.035k", "100035"),
        ("0.000000000001Ki", "2n"),
        ("1.3E+6", "1300e3"),
    ] {
        assert_eq!(quantity(written).to_string(), canonical, "{written}");
    }
}

#[test]
fn finer_than_a_billionth_rounds_away_from_zero() {
    for (written, nanos) in [
        ("3.001n", 4),
        ("1.1E-9", 2),
        ("0.0000000001", 1),
        ("0.9n", 1),
        ("0.00000012345", 124),
        ("-0.9n", -1),
        ("1e-999999999", 1),
        ("1e-9223372036854775808", 1),
        ("0.000000000001Ki", 2),
    ] {
        assert_eq!(quantity(written).nanos(), nanos, "{written}");
    }
}

#[test]
fn binary_quantities_stop_where_kubernetes_stops() {
    for text in ["8Ei", "9Ei", "9223372036854775807Ki", "99999999999999999999999999999999999999999999Ei"] {
        assert_eq!(quantity(text).whole(), Some(i128::from(i64::MAX)), "{text}");
    }
    assert_eq!(quantity("-9Ei").whole(), Some(-i128::from(i64::MAX)));
}

#[test]
fn what_is_no_quantity_says_so() {
    assert_eq!(Quantity::parse(""), Err(QuantityError::Empty));
    for text in [
        " ",
        " 4",
        "4 ",
        "four",
        ".",
        "-",
        "+",
        "Ki",
        "k",
        "4K",
        "4ki",
        "4KiB",
        "4e",
        "4E+",
        "4e1.5",
        "--4",
        "+-4",
        "4.5.6",
        "0x10",
        "1_000",
        "1,5",
        "٤",
        "4\n",
        "NaN",
        "inf",
        "1e99999999999999999999",
        "4mm",
        "4\u{0}",
    ] {
        assert!(
            matches!(Quantity::parse(text), Err(QuantityError::Malformed(_))),
            "{text:?}: {:?}",
            Quantity::parse(text)
        );
    }
    for text in ["1e30", "1e9223372036854775807", "999999999999999999999999999999E"] {
        assert!(matches!(Quantity::parse(text), Err(QuantityError::TooLarge(_))), "{text}");
    }
}

#[test]
fn a_megabyte_of_digits_is_read_and_shown_short() {
    let zeros = "0".repeat(1 << 20);
    assert_eq!(quantity(&format!("{zeros}4.{zeros}")), quantity("4"));
    let error = Quantity::parse(&"9".repeat(1 << 20)).expect_err("too large").to_string();
    assert!(error.len() < 200, "{error}");
}

#[test]
fn sums_keep_the_suffix_kind_that_was_written() {
    assert_eq!(Quantity::ZERO.plus(quantity("1Gi")).to_string(), "1Gi");
    assert_eq!(quantity("1Gi").minus(quantity("512Mi")).to_string(), "512Mi");
    assert_eq!(quantity("1").minus(quantity("4")).or_zero(), Quantity::ZERO);
    assert_eq!(Quantity::whole_units(4).form(), Form::Decimal);
}

/// What a quantity means, computed with fractions: sign, digits, power of the suffix; rounded up to billionths.
fn oracle(negative: bool, whole: &str, fraction: &str, suffix: &str) -> BigInt {
    let power_of_ten = |power: i32| BigRational::from_integer(BigInt::from(10)).pow(power);
    let digits: BigInt = format!("0{whole}{fraction}").parse().expect("digits");
    let factor = match suffix {
        "n" => power_of_ten(-9),
        "u" => power_of_ten(-6),
        "m" => power_of_ten(-3),
        "" => power_of_ten(0),
        "k" => power_of_ten(3),
        "M" => power_of_ten(6),
        "G" => power_of_ten(9),
        "T" => power_of_ten(12),
        "P" => power_of_ten(15),
        "E" => power_of_ten(18),
        binary if binary.ends_with('i') => {
            let step = "KMGTPE".find(&binary[..1]).expect("binary suffix") + 1;
            BigRational::from_integer(BigInt::from(1024).pow(u32::try_from(step).expect("small")))
        }
        exponent => power_of_ten(exponent[1..].parse().expect("exponent")),
    };
    let scale = i32::try_from(fraction.len()).expect("short");
    let exact: BigRational = BigRational::from_integer(digits) * factor * power_of_ten(9 - scale);
    let nanos = exact.ceil().to_integer();
    let capped =
        if suffix.ends_with('i') { nanos.min(BigInt::from(i64::MAX) * 1_000_000_000) } else { nanos };
    if negative { -capped } else { capped }
}

fn suffix() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec!["n", "u", "m", "", "k", "M", "G", "T", "P", "E"])
            .prop_map(String::from),
        proptest::sample::select(vec!["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]).prop_map(String::from),
        (any::<bool>(), -40_i32..40)
            .prop_map(|(upper, power)| format!("{}{power}", if upper { 'E' } else { 'e' })),
    ]
}

proptest! {
    #[test]
    fn reading_agrees_with_exact_fractions(
        sign in proptest::sample::select(vec!["", "+", "-"]), whole in "[0-9]{0,30}", fraction in "[0-9]{0,30}", suffix in suffix(),
    ) {
        prop_assume!(!whole.is_empty() || !fraction.is_empty());
        let text = format!("{sign}{whole}.{fraction}{suffix}");
        let expected = oracle(sign == "-", &whole, &fraction, &suffix);
        match Quantity::parse(&text) {
            Ok(read) => prop_assert_eq!(BigInt::from(read.nanos()), expected, "{}", text),
            Err(QuantityError::TooLarge(_)) => prop_assert!(expected.abs() > BigInt::from(i128::MAX), "{}", text),
            Err(error) => prop_assert!(false, "{text}: {error}"),
        }
    }

    #[test]
    fn the_canonical_text_reads_back_as_the_same_amount_and_is_its_own_canonical_text(
        whole in "[0-9]{1,17}", fraction in "[0-9]{0,9}", suffix in suffix(),
    ) {
        let Ok(first) = Quantity::parse(&format!("{whole}.{fraction}{suffix}")) else { return Ok(()) };
        let canonical = first.to_string();
        let second = quantity(&canonical);
        prop_assert_eq!(first, second, "{}", canonical);
        prop_assert_eq!(second.to_string(), canonical.clone());
        prop_assert!(!canonical.contains('.'), "{}", canonical);
        prop_assert_eq!(first.is_zero(), BigInt::from(first.nanos()).is_zero());
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}") {
        let _ = Quantity::parse(&text);
    }
}
