//! Kubernetes quantities, read and written exactly, in integers.
//!
//! The grammar is the documented one of `k8s.io/apimachinery/pkg/api/resource`: a signed decimal number and one
//! suffix of the binary (`Ki` … `Ei`), decimal (`n` … `E`) or exponent (`e3`, `E-6`) kind. As there, a value is
//! kept down to one billionth, finer non-zero values are rounded away from zero, and a binary quantity stops at
//! 2^63 − 1. Unlike there, a quantity without a single digit (`"."`, `"Ki"`) is an error and not a zero.
//!
//! This room knows numbers only: not what is counted, nor on which node.

mod canonical;

use std::cmp::Ordering;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::one_line::one_line;

/// Billionths in one unit.
const NANOS: i128 = 1_000_000_000;
/// The most that a quantity with a binary suffix can be: larger ones are read as this, as Kubernetes does.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS;

/// An exact amount of a resource, in billionths of a unit: at most about 1.7 × 10^29 units either way.
///
/// Compared by amount only: `1Ki` equals `1024`. The suffix kind that was written is kept for the canonical text.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

/// Which kind of suffix a quantity was written with; its canonical text uses the same kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// No suffix, or one of `n u m k M G T P E`.
    Decimal,
    /// One of `Ki Mi Gi Ti Pi Ei`.
    Binary,
    /// `e` or `E` with a number.
    Exponent,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("an empty quantity: write a number such as 4, 500m or 16Gi")]
    Empty,
    /// Not of the grammar.
    #[error("\"{0}\" is no quantity: write a number with an optional suffix, such as 4, 500m, 16Gi or 1e3")]
    Malformed(String),
    /// Of the grammar, but beyond what can be counted here (about 1.7 × 10^29 units).
    #[error("\"{0}\" is too large for a quantity")]
    TooLarge(String),
}

impl Quantity {
    /// 0, without a suffix.
    pub const ZERO: Self = Self { nanos: 0, form: Form::Decimal };

    /// `1m`: a thousandth of a unit.
    pub const MILLI: Self = Self { nanos: NANOS / 1000, form: Form::Decimal };

    /// So many times 2^30 units, as `Gi`.
    pub const fn gibi(count: u32) -> Self {
        Self { nanos: ((count as i128) << 30) * NANOS, form: Form::Binary }
    }

    /// So many units, without a suffix.
    pub const fn whole_units(units: u32) -> Self {
        Self { nanos: units as i128 * NANOS, form: Form::Decimal }
    }

    /// Reads a quantity in any form that Kubernetes accepts, without surrounding blanks.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let malformed = || QuantityError::Malformed(one_line(text, 40));
        let too_large = || QuantityError::TooLarge(one_line(text, 40));
        let number = Number::split(text).ok_or_else(malformed)?;
        let suffix = Suffix::read(number.suffix).ok_or_else(malformed)?;
        let magnitude = match suffix {
            Suffix::Power10(power, _) => number.times(1, power).ok_or_else(too_large)?,
            // What overflows is beyond the cap by far.
            Suffix::Power2(power) => {
                number.times(1 << power, 0).map_or(BINARY_CAP, |nanos| nanos.min(BINARY_CAP))
            }
        };
        Ok(Self { nanos: if number.negative { -magnitude } else { magnitude }, form: suffix.form() })
    }

    /// Whether it is exactly nothing: `0`, `0.0`, `0e3`, `-0Ki`.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below nothing, which no resource of a node can be.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The amount in units, if it is a whole number of them.
    pub fn whole(self) -> Option<i128> {
        (self.nanos % NANOS == 0).then_some(self.nanos / NANOS)
    }

    /// The amount in billionths of a unit.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Which kind of suffix it was written with.
    pub fn form(self) -> Form {
        self.form
    }

    /// The sum, in this quantity's form, or in the other's where this is nothing. Stops at the ends of the range.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let form = if self.is_zero() { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    /// The difference, in the form that [`Quantity::plus`] would give. Stops at the ends of the range.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let form = if self.is_zero() { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_sub(other.nanos), form }
    }

    /// So many times as much. Stops at the ends of the range.
    #[must_use]
    pub fn times(self, count: u32) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(count)), form: self.form }
    }

    /// One of `parts` equal parts, rounded down to whole multiples of `grain`, which is more than nothing.
    #[must_use]
    pub fn part(self, parts: NonZeroU32, grain: Self) -> Self {
        let part = self.nanos / i128::from(parts.get());
        Self { nanos: part - part % grain.nanos.max(1), form: self.form }
    }

    /// This quantity, or nothing if it is negative.
    #[must_use]
    pub fn or_zero(self) -> Self {
        Self { nanos: self.nanos.max(0), form: self.form }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// A suffix, as what it multiplies by.
#[derive(Clone, Copy)]
enum Suffix {
    Power10(i64, Form),
    Power2(u32),
}

impl Suffix {
    fn read(suffix: &str) -> Option<Self> {
        let power10 = |power| Some(Self::Power10(power, Form::Decimal));
        match suffix {
            "n" => power10(-9),
            "u" => power10(-6),
            "m" => power10(-3),
            "" => power10(0),
            "k" => power10(3),
            "M" => power10(6),
            "G" => power10(9),
            "T" => power10(12),
            "P" => power10(15),
            "E" => power10(18),
            "Ki" => Some(Self::Power2(10)),
            "Mi" => Some(Self::Power2(20)),
            "Gi" => Some(Self::Power2(30)),
            "Ti" => Some(Self::Power2(40)),
            "Pi" => Some(Self::Power2(50)),
            "Ei" => Some(Self::Power2(60)),
            _ => {
                let power = suffix.strip_prefix(['e', 'E'])?;
                Some(Self::Power10(power.parse::<i64>().ok()?, Form::Exponent))
            }
        }
    }

    fn form(self) -> Form {
        match self {
            Self::Power10(_, form) => form,
            Self::Power2(_) => Form::Binary,
        }
    }
}

/// A quantity's text in its parts.
struct Number<'a> {
    negative: bool,
    /// Digits before the point.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Number<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = leading_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), leading_digits);
        (!whole.is_empty() || !fraction.is_empty()).then_some(Self { negative, whole, fraction, suffix })
    }

    /// The magnitude times `factor` times ten to the `power`, in billionths, rounded up; nothing if that overflows.
    fn times(&self, factor: u64, power: i64) -> Option<i128> {
        let mut digits = multiply(self.whole.bytes().chain(self.fraction.bytes()), factor);
        let cut = digits.iter().rev().take_while(|&&digit| digit == 0).count();
        if cut == digits.len() {
            return Some(0);
        }
        digits.truncate(digits.len() - cut);
        // What is left are digits with a power of ten, the last of them not zero.
        let lengths = i64::try_from(cut).ok()?.saturating_sub(i64::try_from(self.fraction.len()).ok()?);
        let power = power.saturating_add(lengths).saturating_add(9);
        if let Ok(zeros) = u32::try_from(power) {
            return as_integer(&digits)?.checked_mul(10_i128.checked_pow(zeros)?);
        }
        if power > 0 {
            return None;
        }
        let dropped = usize::try_from(power.unsigned_abs()).ok()?.min(digits.len());
        digits.truncate(digits.len() - dropped);
        as_integer(&digits)?.checked_add(1)
    }
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Decimal digits (ASCII, most significant first) times a factor, as digit values without leading zeros.
fn multiply(digits: impl DoubleEndedIterator<Item = u8>, factor: u64) -> Vec<u8> {
    let mut carry = 0_u128;
    let mut product = Vec::new();
    let mut push = |carry: &mut u128| {
        // A remainder by ten always fits.
        product.push(u8::try_from(*carry % 10).unwrap_or(0));
        *carry /= 10;
    };
    for digit in digits.rev() {
        carry += u128::from(digit - b'0') * u128::from(factor);
        push(&mut carry);
    }
    while carry > 0 {
        push(&mut carry);
    }
    while product.last() == Some(&0) {
        product.pop();
    }
    product.reverse();
    product
}

fn as_integer(digits: &[u8]) -> Option<i128> {
    digits.iter().try_fold(0_i128, |value, &digit| value.checked_mul(10)?.checked_add(i128::from(digit)))
}
