//! Dumps for `gpupool check-config`: read and judged by the crate that reads them, printed by the binary's own code.
//!
//! What it may answer is in `answer`; what is known about the answer to an input comes with the input (`breakage`).

mod answer;
mod breakage;
mod grammar;
mod sound;
#[path = "../../crates/gpupool/src/commands/check_config/verdict.rs"]
mod verdict;

use std::sync::LazyLock;

use gpupool_core::checker::Rules;

use crate::choices::Choices;
use answer::Answer;
use breakage::Input;
use sound::Dump;

static DUMPS: LazyLock<Vec<Dump>> = LazyLock::new(sound::all);

/// Lets the checker read a broken dump, and the bytes themselves.
///
/// # Panics
/// Where an answer is wrong.
pub fn dumps(data: &[u8]) {
    let mut choices = Choices::new(data);
    let input = match choices.byte() {
        ..64 => Input::as_it_is(choices),
        _ => Input::new(&DUMPS, &mut choices),
    };
    let answer = Answer::of(&input);
    assert_eq!(answer.fault(&input), None);
}

/// How the checker is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    rules: Rules,
    json: bool,
}

/// The ways it is asked, the plain one more often.
const OPTIONS: [Options; 4] = [
    Options { rules: Rules::Strict, json: false },
    Options { rules: Rules::Strict, json: false },
    Options { rules: Rules::Operator, json: false },
    Options { rules: Rules::Strict, json: true },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Else nothing that is found out with them means anything.
    #[test]
    fn unbroken_dumps_get_their_verdicts_in_every_form() {
        for dump in DUMPS.iter() {
            for text in dump.forms() {
                let answer = Answer::of(&Input::sound(text.clone().into_bytes()));
                assert_eq!(answer.verdict(), dump.verdict, "{text}");
            }
        }
    }
}
