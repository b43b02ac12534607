//! Quantities of Kubernetes, against the same sums done another way.

use gpupool_core::quantity::{Form, Quantity};

use crate::choices::Choices;

const NANOS: i128 = 1_000_000_000;
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS;

/// Suffixes of powers of ten with their exponents, and of two.
const DECIMAL: [(&str, i32); 10] =
    [("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Reads a quantity that is as it should be, one that is damaged, or the bytes themselves.
///
/// # Panics
/// Where an answer is wrong.
pub fn quantities(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.byte() % 4 {
        0 => canonical(&String::from_utf8_lossy(choices.rest())),
        1 => {
            let mut text = sound(&mut choices).0.into_bytes();
            choices.damage(&mut text);
            canonical(&String::from_utf8_lossy(&text));
        }
        _ => {
            let (text, nanos, form) = sound(&mut choices);
            canonical(&text);
            let found = Quantity::parse(&text).map(|found| (found.nanos(), found.form()));
            assert_eq!(found, Ok((nanos, form)), "{text}");
        }
    }
}

/// The canonical text of a quantity is that of the same amount, and stays as it is.
fn canonical(text: &str) {
    let Ok(found) = Quantity::parse(text) else { return };
    let written = found.to_string();
    let again = Quantity::parse(&written);
    assert_eq!(
        again.as_ref().map(|again| again.nanos()),
        Ok(found.nanos()),
        "{text} is written as {written}"
    );
    assert_eq!(again.map(|again| again.to_string()), Ok(written.clone()), "{text} is written as {written}");
    assert_eq!(
        found.whole().map(|units| units * NANOS),
        (found.nanos() % NANOS == 0).then_some(found.nanos())
    );
    assert_eq!((found.is_zero(), found.is_negative()), (found.nanos() == 0, found.nanos() < 0));
}

/// A quantity, its billionths and its form. Small enough for sums in 128 bits.
fn sound(choices: &mut Choices<'_>) -> (String, i128, Form) {
    let sign = *choices.one_of(&["", "+", "-"]);
    let digits = choices.number() % 1_000_000_000;
    let places = choices.below(10);
    // `digits` is the number without its point, which stands `places` digits from the right.
    let text = format!("{digits:0width$}", width = places + 1);
    let (whole, part) = text.split_at(text.len() - places);
    let point = if places > 0 || choices.coin() { "." } else { "" };
    let whole = if part.is_empty() || whole != "0" || choices.coin() { whole } else { "" };
    let places = u32::try_from(places).unwrap_or(0);
    let (suffix, form, magnitude) = match choices.byte() % 3 {
        0 => {
            let (suffix, power) = *choices.one_of(&DECIMAL);
            (suffix.to_owned(), Form::Decimal, scaled(digits, power, places))
        }
        1 => {
            let (suffix, power) = *choices.one_of(&BINARY);
            let nanos = away_from_zero((i128::from(digits) << power) * NANOS, 10_i128.pow(places));
            (suffix.to_owned(), Form::Binary, nanos.min(BINARY_CAP))
        }
        _ => {
            let power = i32::from(choices.byte() % 28) - 12;
            let letter = if choices.coin() { 'e' } else { 'E' };
            let plus = if power >= 0 && choices.coin() { "+" } else { "" };
            (format!("{letter}{plus}{power}"), Form::Exponent, scaled(digits, power, places))
        }
    };
    let nanos = if sign == "-" { -magnitude } else { magnitude };
    (format!("{sign}{whole}{point}{part}{suffix}"), nanos, form)
}

/// Billionths of `digits` × 10^`power` / 10^`places`.
fn scaled(digits: u64, power: i32, places: u32) -> i128 {
    let exponent = power + 9 - places.cast_signed();
    let factor = 10_i128.pow(exponent.unsigned_abs());
    if exponent >= 0 { i128::from(digits) * factor } else { away_from_zero(i128::from(digits), factor) }
}

fn away_from_zero(number: i128, divisor: i128) -> i128 {
    (number + divisor - 1) / divisor
}
