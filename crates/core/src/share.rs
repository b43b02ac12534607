//! How much of one card a pod asks for: whole percentages, as people write them.
//!
//! Knows only numbers and their spelling. What the numbers decide is told in [`crate::pool`].

use std::fmt;
use std::str::FromStr;

/// A whole percentage of one card, 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u64", into = "u8")
)]
pub struct Percent(u8);

impl Percent {
    /// 100 percent: a whole card.
    pub const WHOLE: Self = Self(100);

    /// The percentage `value`; refused unless it is 1 to 100.
    pub fn new(value: u64) -> Result<Self, ShareError> {
        u8::try_from(value)
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(Self)
            .ok_or(ShareError::OutOfRange { value })
    }

    /// The number, 1 to 100.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u64> for Percent {
    type Error = ShareError;

    fn try_from(value: u64) -> Result<Self, Self::Error> {
        Self::new(value)
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a pod asks for in one dimension (core or memory), in percent of one card.
///
/// The request decides how many pods are placed on a node, the limit what the pod may use while it runs.
/// The request is never over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "ShareFields", into = "ShareFields")
)]
pub struct Share {
    request: Percent,
    limit: Percent,
}

impl Share {
    /// A share of `request` with the limit `limit`; refused when the request is over the limit.
    pub fn new(request: Percent, limit: Percent) -> Result<Self, ShareError> {
        if request > limit {
            return Err(ShareError::RequestOverLimit { request, limit });
        }
        Ok(Self { request, limit })
    }

    /// A share whose request is its limit.
    pub const fn fixed(percent: Percent) -> Self {
        Self { request: percent, limit: percent }
    }

    /// What counts when the pod is placed on a node.
    pub const fn request(self) -> Percent {
        self.request
    }

    /// What the pod may use while it runs.
    pub const fn limit(self) -> Percent {
        self.limit
    }
}

/// Written `50:100` (request, limit) or `50` for both: digits only, no percent sign, no spaces.
impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None => Ok(Self::fixed(percent(text)?)),
            Some((_, limit)) if limit.contains(':') => {
                Err(ShareError::TooManyParts { text: text.to_owned() })
            }
            Some((request, limit)) => Self::new(percent(request)?, percent(limit)?),
        }
    }
}

/// `request:limit`, which [`Share::from_str`] reads back.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.request, self.limit)
    }
}

fn percent(text: &str) -> Result<Percent, ShareError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ShareError::NotANumber { text: text.to_owned() });
    }
    // A number too long for 64 bits is as far out of range as the largest that fits.
    Percent::new(text.parse().unwrap_or(u64::MAX))
}

/// Why a text or a pair of numbers is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// Not made of digits.
    #[error(
        "`{text}` is not a percentage of one card: write a whole number from 1 to 100, or REQUEST:LIMIT such as 50:100"
    )]
    NotANumber {
        /// The text as it was written.
        text: String,
    },
    /// A number outside 1..=100.
    #[error("{value} is out of range: a percentage of one card is a whole number from 1 to 100")]
    OutOfRange {
        /// What was written; numbers that don't fit are shown as the largest that does.
        value: u64,
    },
    /// The request is over the limit.
    #[error(
        "the request {request} is over the limit {limit}: both are from 1 to 100, and the request may not exceed the limit"
    )]
    RequestOverLimit {
        /// Percent of one card, 1 to 100.
        request: Percent,
        /// Percent of one card, 1 to 100.
        limit: Percent,
    },
    /// More than one colon.
    #[error("`{text}` has too many parts: write one number from 1 to 100, or REQUEST:LIMIT such as 50:100")]
    TooManyParts {
        /// The text as it was written.
        text: String,
    },
}

/// The serialised form: checked like every other input when it is read back.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareFields {
    request: Percent,
    limit: Percent,
}

#[cfg(feature = "serde")]
impl TryFrom<ShareFields> for Share {
    type Error = ShareError;

    fn try_from(fields: ShareFields) -> Result<Self, Self::Error> {
        Self::new(fields.request, fields.limit)
    }
}

#[cfg(feature = "serde")]
impl From<Share> for ShareFields {
    fn from(share: Share) -> Self {
        Self { request: share.request, limit: share.limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_both_and_two_are_request_and_limit() {
        let share: Share = "50".parse().unwrap();
        assert_eq!((share.request().get(), share.limit().get()), (50, 50));
        let share: Share = "1:100".parse().unwrap();
        assert_eq!((share.request().get(), share.limit().get()), (1, 100));
        assert_eq!(share.to_string().parse(), Ok(share));
    }

    #[test]
    fn everything_else_is_refused_with_the_range() {
        type IsTheReason = fn(&ShareError) -> bool;
        let not_a_number = ["", "x", "50%", "5 0", " 50", "+50", "-1", "1.5", "50:", ":50", ":", "½"];
        let out_of_range = ["0", "101", "0:50", "50:101", "256", "99999999999999999999999"];
        let tables: [(&[&str], IsTheReason); 4] = [
            (&not_a_number, |error| matches!(error, ShareError::NotANumber { .. })),
            (&out_of_range, |error| matches!(error, ShareError::OutOfRange { .. })),
            (&["51:50"], |error| matches!(error, ShareError::RequestOverLimit { .. })),
            (&["1:2:3", "::"], |error| matches!(error, ShareError::TooManyParts { .. })),
        ];
        for (texts, is_the_reason) in tables {
            for text in texts {
                let error = text.parse::<Share>().unwrap_err();
                assert!(is_the_reason(&error), "`{text}`: {error:?}");
                let sentence = error.to_string();
                assert!(sentence.contains("from 1 to 100"), "`{text}`: {sentence}");
            }
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn what_is_read_back_is_checked_as_well() {
        let share: Share = "50:100".parse().unwrap();
        let json = serde_json::to_string(&share).unwrap();
        assert_eq!(json, r#"{"request":50,"limit":100}"#);
        assert_eq!(serde_json::from_str::<Share>(&json).unwrap(), share);
        for bad in
            [r#"{"request":0,"limit":1}"#, r#"{"request":2,"limit":1}"#, r#"{"request":1,"limit":300}"#]
        {
            assert!(serde_json::from_str::<Share>(bad).is_err(), "{bad}");
        }
    }
}
