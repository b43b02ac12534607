//! The canonical text of a quantity: no precision lost, no fraction, the largest suffix that allows both.

use std::fmt;

use super::{Form, NANOS, Quantity};

/// Names of 10^-9, 10^-6 … 10^18.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Names of 2^0, 2^10 … 2^60.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            _ if self.is_zero() => f.write_str("0"),
            // Below 1024 a binary suffix says nothing, and a fraction would be lost.
            Some(units) if self.form == Form::Binary && units.abs() >= 1024 => binary(units, f),
            _ => decimal(self.nanos, self.form, f),
        }
    }
}

fn binary(mut units: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut step = 0;
    while units % 1024 == 0 && step + 1 < BINARY.len() {
        units /= 1024;
        step += 1;
    }
    write!(f, "{units}{}", BINARY[step])
}

fn decimal(mut mantissa: i128, form: Form, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut step = 0;
    while mantissa % 1000 == 0 {
        mantissa /= 1000;
        step += 1;
    }
    match DECIMAL.get(step) {
        Some(suffix) if form != Form::Exponent => write!(f, "{mantissa}{suffix}"),
        Some(&"") => write!(f, "{mantissa}"),
        // Beyond the last suffix, every form is written with an exponent.
        _ => write!(f, "{mantissa}e{}", i64::try_from(step).unwrap_or(i64::MAX) * 3 - 9),
    }
}

const _: () = assert!(NANOS == 1_000_000_000, "DECIMAL starts at one billionth");
