//! Sentences in which the pool calls pods by their ids, in the words of people.

/// The sentence with every word that is a pod's id replaced by the pod's name; `name_of` gives the name by the id.
///
/// A word is a longest run of letters, digits and hyphens. Each is looked at once, and never what was put in its place: the
/// result has as many words as the sentence, whatever ids and names are.
pub(super) fn with_names(sentence: &str, name_of: impl Fn(&str) -> Option<String>) -> String {
    let is_in_word = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut named = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while !rest.is_empty() {
        let word = rest.find(|character| !is_in_word(character)).unwrap_or(rest.len());
        let (id, after) = rest.split_at(word);
        match name_of(id).filter(|_| !id.is_empty()) {
            Some(name) => named.push_str(&name),
            None => named.push_str(id),
        }
        let between = after.find(is_in_word).unwrap_or(after.len());
        let (plain, next) = after.split_at(between);
        named.push_str(plain);
        rest = next;
    }
    named
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn named(sentence: &str, names: &[(&str, &str)]) -> String {
        let names: BTreeMap<_, _> = names.iter().copied().collect();
        with_names(sentence, |id| Some((*names.get(id)?).to_owned()))
    }

    #[test]
    fn ids_become_names_wherever_they_stand_and_nothing_else_does() {
        const UID: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        let names = [(UID, "team/train")];
        assert_eq!(named(&format!("`{UID}` is here"), &names), "`team/train` is here");
        assert_eq!(named(&format!("{UID}, {UID}"), &names), "team/train, team/train");
        assert_eq!(named(&format!("pre-empted by {UID}."), &names), "pre-empted by team/train.");
        let card = format!("card GPU-{UID} é");
        assert_eq!(named(&card, &names), card);
        assert_eq!(named("", &names), "");
    }

    #[test]
    fn ids_that_are_parts_of_names_and_of_each_other_are_replaced_once() {
        let names = [("e", "eee/eee"), ("a", "aae/eaa"), ("pod", "a/e")];
        assert_eq!(named("pod `e` and a share", &names), "a/e `eee/eee` and aae/eaa share");
    }

    proptest! {
        #[test]
        fn the_result_is_bounded_and_takes_one_pass(
            sentence in ".{0,300}",
            names in prop::collection::btree_map("[a-z0-9-]{1,3}", "[a-z0-9/-]{0,20}", 0..30),
        ) {
            let said = with_names(&sentence, |id| names.get(id).cloned());
            prop_assert!(said.len() <= sentence.len() + 20 * sentence.len().div_ceil(2));
            // Word by word, by another way of cutting.
            let mut expected = String::new();
            let mut word = String::new();
            for character in sentence.chars().map(Some).chain([None]) {
                match character {
                    Some(one) if one.is_ascii_alphanumeric() || one == '-' => word.push(one),
                    other => {
                        expected.push_str(names.get(&word).unwrap_or(&word));
                        word.clear();
                        expected.extend(other);
                    }
                }
            }
            prop_assert_eq!(said, expected);
        }
    }
}
