//! Instructions per document, held to limits: `cargo bench -p bulk --bench instructions`.
//!
//! Wall time on shared machines swings by half; counted instructions do not. Each step of each case runs in a
//! process of its own under `valgrind --tool=callgrind`, once with few rounds and once with more: the
//! difference is the cost of the added rounds. A step that costs over a tenth more than its recorded count
//! fails the run; if a step costs a tenth less, its count here should be lowered.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a report")]

use std::hint::black_box;
use std::process::{Command, ExitCode};

use bulk::{Ask, Gather, IdMint, Merge, Reply, Scratch, Verdict};

mod load;

const DOCS: usize = 1_000;
const STEPS: [&str; 4] = ["plan", "gather", "split", "merge"];
const ROUNDS: [usize; 2] = [2, 6];

/// Instructions per document, recorded with Rust 1.95 on x86-64: plan, gather, split, merge.
const RECORDED: [[u64; 4]; load::CASES.len()] = [
    [651, 163, 194, 119],
    [651, 163, 194, 119],
    [651, 163, 194, 119],
    [786, 208, 913, 139],
    [655, 163, 194, 119],
    [714, 196, 208, 119],
    [604, 119, 194, 119],
    [410, 636, 189, 117],
    [893, 347, 194, 119],
    [994, 276, 194, 119],
    [855, 276, 194, 119],
    [630, 278, 194, 119],
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mark, case, step, rounds] = arguments.as_slice()
        && mark == "run"
    {
        let number = |text: &String| text.parse().expect("a number");
        run(&load::CASES[number(case)], number(step), number(rounds));
        return ExitCode::SUCCESS;
    }
    match report() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("valgrind is needed (apt-get install valgrind): {error}");
            ExitCode::FAILURE
        }
    }
}

fn report() -> std::io::Result<bool> {
    println!(
        "{:30} {:>12} {:>12} {:>12} {:>12}",
        "instructions a document", "plan", "gather", "split", "merge"
    );
    let mut within = true;
    for (number, (case, recorded)) in load::CASES.iter().zip(RECORDED).enumerate() {
        print!("{:30}", case.name);
        for (step, recorded) in recorded.into_iter().enumerate() {
            let few = counted(number, step, ROUNDS[0])?;
            let more = counted(number, step, ROUNDS[1])?;
            let cost = (more - few).div_ceil(((ROUNDS[1] - ROUNDS[0]) * DOCS) as u64);
            // Without the tolerance of ten, counts under ten would fail for a single instruction.
            let over = cost * 10 > recorded * 11 + 10;
            within &= !over;
            print!(
                " {cost:6}{:6}",
                if over {
                    format!(">{recorded}!")
                } else {
                    String::new()
                }
            );
        }
        println!();
    }
    Ok(within)
}

/// Returns the instructions of a whole process that runs a step `rounds` times.
fn counted(case: usize, step: usize, rounds: usize) -> std::io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["run", &case.to_string(), &step.to_string(), &rounds.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let count = text
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.ok_or_else(|| std::io::Error::other(text))
}

/// Runs a step `rounds` times; the steps before it run once.
fn run(case: &load::Case, step: usize, rounds: usize) {
    let (body, table) = (load::body(case, DOCS), load::table(case));
    let in_turn = load::InTurn::new(case.direct);
    let ask = Ask {
        level: case.level,
        null_id: case.null_id,
        direct: Some(&in_turn),
        ..Ask::default()
    };
    let (mut mint, mut scratch) = (IdMint::new(1), Scratch::default());
    let Verdict::Plan(planned) = bulk::plan(&body, &ask, &table, &mut mint, &mut scratch) else {
        panic!("the body is plain");
    };
    let texts = load::replies(&planned);
    let (mut out, chunk) = (Vec::with_capacity(1 << 20), 256 << 10);
    match STEPS[step] {
        "plan" => {
            let mut plan = planned;
            for _ in 0..rounds {
                scratch.recycle(plan);
                let verdict = bulk::plan(&body, &ask, &table, &mut mint, &mut scratch);
                let Verdict::Plan(again) = verdict else {
                    panic!("the body is plain")
                };
                plan = again;
            }
        }
        "gather" => {
            for _ in 0..rounds {
                for part in &planned.parts {
                    let mut gather = Gather::default();
                    out.clear();
                    while gather.next(&planned, part, &body, &mut out, chunk) > 0 {}
                    black_box(&out);
                }
            }
        }
        step => {
            let split = || -> Vec<Reply<'_>> {
                let pairs = texts.iter().zip(&planned.parts);
                pairs
                    .map(|(text, part)| Reply::split(text.as_bytes(), part.docs).expect("a reply"))
                    .collect()
            };
            if step == "split" {
                for _ in 0..rounds {
                    black_box(split());
                }
                return;
            }
            let mut ready: Vec<_> = (0..ROUNDS[1]).map(|_| split()).collect();
            for replies in ready.drain(..rounds) {
                let mut merge = Merge::new(&planned, replies, 1, table.dialect()).expect("a merge");
                out.clear();
                while merge.next(&mut out, chunk) > 0 {}
                black_box(&out);
            }
        }
    }
}
