//! Load files as editors, scripts and accidents leave them: they never cause a panic, and are never refused
//! without a reason.

use std::path::Path;

use loadgen::Load;
use proptest::prelude::*;
use settings::Severity;

const FILES: [&str; 4] = [
    include_str!("../../../examples/loadgen/bulk.yml"),
    include_str!("../../../examples/loadgen/search.yml"),
    include_str!("../../../examples/loadgen/sequence.yml"),
    EVERYTHING,
];

/// The keys that the examples leave out.
const EVERYTHING: &str = r#"
env: {HOST: "http://localhost:9200"}
runner: {total_rounds: 3, log_status_codes: [0, 500], default_endpoint: "$[[env.HOST]]", insecure: true}
statsd: {enabled: true, host: localhost, port: 8125, namespace: x}
variables:
  - {name: n, type: sequence64, from: 5, to: 900}
  - {name: word, type: list, by: n, data: [a, "b\"c", 5, ~], replace: {a: b}}
  - {name: some, type: random_array, variable_key: n, variable_type: string, size: 3, string_bracket: "'", square_bracket: false}
  - {name: bits, type: int_array_bitmap, from: 1, to: 1000, size: 20}
  - {name: when, type: now_with_format, format: "Mon Jan _2 15:04:05.000000 MST 2006 -0700"}
  - {name: odds, type: range, from: -5, to: 5}
requests:
  - request:
      method: POST
      url: https://u:p@$[[word]]:9200/$[[odds]]/_bulk?routing=$[[word]]#x
      headers: [{X-A: "$[[when]]"}, {X-B: "é"}]
      runtime_variables: {once: some}
      runtime_body_line_variables: {line: n}
      body_repeat_times: 7
      execute_repeat_times: 2
      body: "{\"index\":{\"_id\":\"$[[line]]\"}}\n{\"a\":[$[[once]]],\"b\":\"$[[bits]]\"}"
    register: [{id: _ctx.response.body_json.items.0.index._id}]
    sleep: {sleep_in_milli_seconds: 1}
    assert:
      and:
        - in: {_ctx.response.status: [200, "$[[id]]"]}
        - not: {or: [{contains: {_ctx.response.body: x}}, {regexp: {_ctx.response.header.a: "^[a-z]+$"}}]}
        - range: {_ctx.elapsed.lt: 5, _ctx.response.body_length: {gte: 1}}
        - exists: [_ctx.response.body_json.a.b]
"#;

/// Pieces that have a meaning in a load file.
const PIECES: [&str; 28] = [
    "$[[",
    "]]",
    "$[[env.",
    "\n",
    "\t",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "|",
    ">",
    "&a",
    "*a",
    "<<",
    "#",
    "\"",
    "'",
    "\0",
    "é",
    "\u{feff}",
    "~",
    "-1",
    "99999999999999999999",
    "1e400",
    "---",
    "!!binary ",
];

/// An edit of a text: pieces are cut out, doubled, moved and inserted.
#[derive(Debug, Clone)]
enum Cut {
    Remove(usize, usize),
    Double(usize, usize),
    Insert(usize, usize),
    Move(usize, usize, usize),
    End(usize),
}

fn cut() -> impl Strategy<Value = Cut> {
    let (at, length) = (any::<usize>(), 1_usize..40);
    prop_oneof![
        (at, length.clone()).prop_map(|(at, length)| Cut::Remove(at, length)),
        (at, length.clone()).prop_map(|(at, length)| Cut::Double(at, length)),
        (at, 0..PIECES.len()).prop_map(|(at, piece)| Cut::Insert(at, piece)),
        (at, length, any::<usize>()).prop_map(|(at, length, to)| Cut::Move(at, length, to)),
        at.prop_map(Cut::End),
    ]
}

fn mangle(text: &str, cuts: &[Cut]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for cut in cuts {
        let count = letters.len();
        let place = |at: usize| at % (count + 1);
        let end = |at: usize, length: usize| (place(at) + length).min(count);
        match *cut {
            Cut::Remove(at, length) => drop(letters.drain(place(at)..end(at, length))),
            Cut::Double(at, length) => {
                let piece = letters[place(at)..end(at, length)].to_vec();
                letters.splice(place(at)..place(at), piece);
            }
            Cut::Insert(at, piece) => drop(letters.splice(place(at)..place(at), PIECES[piece].chars())),
            Cut::Move(at, length, to) => {
                let piece: Vec<char> = letters.drain(place(at)..end(at, length)).collect();
                let to = to % (letters.len() + 1);
                letters.splice(to..to, piece);
            }
            Cut::End(at) => letters.truncate(place(at)),
        }
    }
    letters.into_iter().collect()
}

fn check(text: &str) -> Result<(), TestCaseError> {
    let environment = |name: &str| (name == "LINES").then(|| "9".to_owned());
    match Load::parse(text, Some("l.yml"), Path::new("/nowhere"), &environment) {
        Ok(loaded) => prop_assert!(loaded.load.request_names().next().is_some()),
        Err(rejected) => {
            let errors = || {
                rejected
                    .problems
                    .iter()
                    .filter(|problem| problem.severity == Severity::Error)
            };
            prop_assert!(errors().any(|problem| problem.place.is_some()), "{rejected}");
            prop_assert!(errors().all(|problem| !problem.message.is_empty()), "{rejected}");
        }
    }
    Ok(())
}

#[test]
fn the_files_that_are_mangled_are_fine_as_they_are() {
    for file in FILES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/loadgen");
        Load::parse(file, None, &folder, &|_| None).unwrap_or_else(|rejected| panic!("{rejected}"));
    }
}

proptest! {
    #[test]
    fn mangled_files_never_panic_and_are_never_refused_without_a_reason_and_a_place(
        file in 0..FILES.len(), cuts in prop::collection::vec(cut(), 1..6),
    ) {
        check(&mangle(FILES[file], &cuts))?;
    }

    #[test]
    fn any_text_at_all_is_a_file_or_told_why_not(text in "\\PC{0,60}") {
        check(&text)?;
    }
}
