//! The usual picture: one box of cards, one of processes.

use std::fmt::Write as _;

use crate::reading::{CardReading, DriverVersions, ProcessReading};

/// Widths between the bars of the three columns, blanks included; the first grows with the longest name.
const COLUMNS: [usize; 3] = [41, 24, 22];

/// How long a card's name may be before the first column grows.
const NAME: usize = 30;

/// How much of a process's name is shown.
const PROCESS_NAME: usize = 35;

/// The whole picture, below a line with the date. `mark` stands after the version in the first line.
pub(crate) fn draw(date: &str, mark: &str, driver: &DriverVersions, cards: &[CardReading]) -> String {
    let longest = cards.iter().map(|card| card.name.chars().count()).max().unwrap_or(0);
    let widths = [COLUMNS[0] + longest.saturating_sub(NAME), COLUMNS[1], COLUMNS[2]];
    let whole = widths.iter().sum::<usize>() + 2;

    let mut page = format!("{date}\n");
    title(&mut page, whole, mark, driver);
    page.push_str(&rule('-', '+', '+', &widths));
    for row in headings(&widths) {
        page.push_str(&line(&row, &widths));
    }
    page.push_str(&rule('=', '|', '+', &widths));
    for card in cards {
        for row in card_rows(card, &widths) {
            page.push_str(&line(&row, &widths));
        }
        page.push_str(&rule('-', '+', '+', &widths));
    }
    page.push('\n');
    processes(&mut page, whole, cards);
    page
}

fn headings(widths: &[usize; 3]) -> [[String; 3]; 3] {
    let first = widths[0] - " GPU  Name  ".len();
    let second = widths[0] - " Fan  Temp   Perf  ".len();
    [
        [
            format!(" GPU  Name {:>first$}", "Persistence-M"),
            " Bus-Id          Disp.A".to_owned(),
            " Volatile Uncorr. ECC".to_owned(),
        ],
        [
            format!(" Fan  Temp   Perf {:>second$}", "Pwr:Usage/Cap"),
            "           Memory-Usage".to_owned(),
            " GPU-Util  Compute M.".to_owned(),
        ],
        [String::new(), String::new(), format!("{:>21}", "MIG M.")],
    ]
}

fn title(page: &mut String, whole: usize, mark: &str, driver: &DriverVersions) {
    let version = format!("{} {mark}", driver.version);
    let text = format!(
        " NVIDIA-SMI {version:<22} Driver Version: {:<14} CUDA Version: {}",
        driver.version, driver.cuda_version
    );
    page.push_str(&rule('-', '+', '-', &[whole]));
    page.push_str(&line(&[text], &[whole]));
}

fn card_rows(card: &CardReading, widths: &[usize; 3]) -> [[String; 3]; 3] {
    let name_width = widths[0] - COLUMNS[0] + NAME;
    let power = format!("{:>14} / {:>5}", watts(card.power_draw), watts(card.power_limit));
    let power_width = widths[0] - COLUMNS[0] + power.len();
    [
        [
            format!(" {:>3}  {:<name_width$} {:<3} ", card.index, card.name, on_off(card.persistence)),
            format!(" {:>18} {:<3}", card.bus_id, on_off(card.display_active)),
            format!(" {:>20}", or_none(card.ecc_errors)),
        ],
        [
            format!(
                " {:>3} {:>5}    {:<3} {power:>power_width$}",
                card.fan_speed.map_or_else(none, |percent| format!("{percent}%")),
                card.temperature.map_or_else(none, |degrees| format!("{degrees}C")),
                card.performance_state.map_or_else(none, |state| format!("P{state}")),
            ),
            format!(" {:>10} / {:>9}", mebibytes(card.memory_used), mebibytes(card.memory_total)),
            format!(
                " {:>7} {:>12}",
                card.utilization_gpu.map_or_else(none, |percent| format!("{percent}%")),
                card.compute_mode.map_or_else(none, short_mode)
            ),
        ],
        [String::new(), String::new(), format!(" {:>20}", mig(card.mig))],
    ]
}

fn processes(page: &mut String, whole: usize, cards: &[CardReading]) {
    page.push_str(&rule('-', '+', '-', &[whole]));
    let room = whole - 56;
    let headings = [
        " Processes:".to_owned(),
        format!(
            "  GPU   GI   CI              PID   Type   {:<room$}GPU Memory",
            "Process name",
            room = room + 3
        ),
        format!("        ID   ID{:26} {:<room$}Usage     ", "", "", room = room + 3),
    ];
    for heading in headings {
        page.push_str(&line(&[heading], &[whole]));
    }
    page.push_str(&rule('=', '|', '=', &[whole]));
    let mut rows = 0;
    for card in cards {
        for process in &card.processes {
            page.push_str(&line(&[process_row(card.index, process, room)], &[whole]));
            rows += 1;
        }
    }
    if rows == 0 {
        page.push_str(&line(&["  No running processes found".to_owned()], &[whole]));
    }
    page.push_str(&rule('-', '+', '-', &[whole]));
}

fn process_row(index: u32, process: &ProcessReading, room: usize) -> String {
    let name = tail(process.name.as_deref().unwrap_or("[Not Found]"), PROCESS_NAME);
    let memory = process.used_memory.map_or_else(none, mebibytes);
    format!("  {index:>3}   N/A  N/A {:>15}      C   {name:<room$} {memory:>12}", process.pid)
}

/// The end of a name that is too long, since paths differ at the end.
fn tail(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length - (most - 3)).collect();
    format!("...{end}")
}

/// A row of the box: each cell filled up to its width.
fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::from("|");
    for (cell, width) in cells.iter().zip(widths) {
        // Writing to a String cannot fail.
        let _ = write!(line, "{cell:<width$}|");
    }
    line.push('\n');
    line
}

/// A rule across the box.
fn rule(stroke: char, edge: char, joint: char, widths: &[usize]) -> String {
    let strokes: Vec<String> = widths.iter().map(|width| stroke.to_string().repeat(*width)).collect();
    format!("{edge}{}{edge}\n", strokes.join(&joint.to_string()))
}

fn none() -> String {
    "N/A".to_owned()
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(none, |value| value.to_string())
}

/// A compute mode in ten characters or less.
fn short_mode(mode: &str) -> String {
    mode.replace("Exclusive_", "E. ")
}

fn on_off(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "On",
        Some(false) => "Off",
        None => "N/A",
    }
}

fn mig(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "Enabled",
        Some(false) => "Disabled",
        None => "N/A",
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

fn watts(milliwatts: Option<u32>) -> String {
    milliwatts.map_or_else(none, |milliwatts| format!("{}W", milliwatts / 1000))
}

#[cfg(test)]
mod tests {
    use super::draw;
    use crate::reading::{CardReading, DriverVersions, sample};

    fn picture(cards: &[CardReading]) -> String {
        let driver = DriverVersions { version: "615.71.01".to_owned(), cuda_version: "13.5".to_owned() };
        draw("Sun Nov 29 12:00:00 2026", "(simulated)", &driver, cards)
    }

    #[test]
    fn the_picture_of_a_busy_and_an_idle_card_is_this_one() {
        let mut idle = sample();
        idle.index = 0;
        idle.processes.clear();
        assert_eq!(picture(&[idle, sample()]), include_str!("../tests/two-cards.txt"));
    }

    #[test]
    fn every_line_is_as_wide_as_the_first_rule_whatever_the_values() {
        let mut odd = sample();
        odd.name = "x".repeat(96);
        odd.index = 127;
        odd.memory_total = 288 << 30;
        odd.memory_used = odd.memory_total;
        odd.power_draw = Some(1_200_000);
        odd.power_limit = None;
        odd.fan_speed = Some(100);
        odd.mig = Some(true);
        odd.compute_mode = Some("Exclusive_Process");
        odd.processes[0].name = Some("/a/very/long/path/that/does/not/fit/in/the/column/python3".to_owned());
        let mut short = sample();
        short.name = "T4".to_owned();
        short.processes.clear();
        for cards in [&[][..], &[odd][..], &[short][..]] {
            let picture = picture(cards);
            let lines: Vec<&str> = picture.lines().skip(1).filter(|line| !line.is_empty()).collect();
            for line in &lines {
                assert_eq!(line.len(), lines[0].len(), "{line:?} in\n{picture}");
            }
        }
    }

    #[test]
    fn without_processes_it_says_so() {
        assert!(picture(&[]).contains("|  No running processes found  "));
    }
}
