//! The cards of a node's pool, as the agent writes them on its node.

use serde::{Deserialize, Serialize};

use super::names::POOL_CARDS_ANNOTATION;
use crate::one_line::one_line;

/// One card of a node's pool.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PoolCard {
    /// The driver's UUID, by which the card is known everywhere.
    pub uuid: String,
    /// The driver's index at this moment, for people.
    pub index: u32,
    /// Whether programs can use it; unhealthy cards count in `capacity` and not in `allocatable`.
    pub healthy: bool,
}

/// An annotation that is no list of cards. Only gpupool writes it, so an agent that starts writes it anew.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("annotation {POOL_CARDS_ANNOTATION} is no list of cards ({0})")]
pub struct PoolCardsError(String);

/// Reads the text of the annotation: a JSON list of cards.
pub fn parse(text: &str) -> Result<Vec<PoolCard>, PoolCardsError> {
    serde_json::from_str(text).map_err(|error| PoolCardsError(one_line(&error.to_string(), 120)))
}

/// The text of the annotation, which [`parse`] reads.
pub fn write(cards: &[PoolCard]) -> String {
    serde_json::json!(cards).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let cards = [PoolCard { uuid: "GPU-1".to_owned(), index: 0, healthy: true }];
        assert_eq!(write(&cards), r#"[{"healthy":true,"index":0,"uuid":"GPU-1"}]"#);
        assert_eq!(parse(&write(&cards)).unwrap(), cards);
        assert!(
            parse("{}").unwrap_err().to_string().starts_with("annotation gpupool.io/pool-cards is no list")
        );
    }
}
