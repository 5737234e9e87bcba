//! Compares rendering with the obvious way of doing it.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;

use crate::request::{Body, needs};
use crate::slot::Slot;
use crate::template::{Template, TemplateError};
use crate::variable::{Draws, Sequence, Variable, VariableKind, Words};

fn variables() -> Arc<[Variable]> {
    let mut words = Words::default();
    words.add("wörd".as_bytes());
    [
        ("id", VariableKind::Sequence(Sequence::new(7, 11))),
        ("word", VariableKind::Words(words)),
        ("seven", VariableKind::Range { from: 7, to: 7 }),
    ]
    .map(|(name, kind)| Variable {
        name: name.to_owned(),
        kind,
    })
    .into()
}

/// `once` is a runtime variable of the request, `line` is one of body lines; both draw from `id`.
fn resolve(name: &str) -> Result<Slot, TemplateError> {
    match name {
        "id" => Ok(Slot::Variable(0)),
        "word" => Ok(Slot::Variable(1)),
        "seven" => Ok(Slot::Variable(2)),
        "once" => Ok(Slot::Request(0)),
        "line" => Ok(Slot::Line(0)),
        other => Err(TemplateError::Name(format!("no {other}"))),
    }
}

/// The slow and obvious renderer: replaces the first remaining name, until none remains.
fn obvious(text: &str, repeat: u32) -> String {
    let mut drawn = 0_u64;
    let mut next = || {
        drawn += 1;
        7 + (drawn - 1) % 5
    };
    let once = next();
    let mut out = String::new();
    for _ in 0..repeat {
        let line = next();
        let mut text = text.to_owned();
        while let Some(start) = text.find("$[[") {
            let end = start + text[start..].find("]]").unwrap();
            let value = match text[start + 3..end].trim() {
                "id" => next().to_string(),
                "word" => "wörd".to_owned(),
                "seven" => "7".to_owned(),
                "once" => once.to_string(),
                _ => line.to_string(),
            };
            text.replace_range(start..end + 2, &value);
        }
        out += &text;
    }
    out
}

#[test]
fn what_is_wrong_with_a_text_is_said() {
    let compile = |text: &str| Template::compile(text, &mut |name| resolve(name).map(Some));
    assert_eq!(
        compile("a $[[nobody]]"),
        Err(TemplateError::Name("no nobody".to_owned()))
    );
    assert_eq!(compile("a $[[id"), Err(TemplateError::Unclosed));
    let kept = Template::compile("a $[[nobody]] b", &mut |_| Ok(None)).unwrap();
    assert_eq!(kept.fixed(), Some(&b"a $[[nobody]] b"[..]));
    let plain = compile("$ [[ ]] $[").unwrap();
    assert_eq!(plain.fixed(), Some(&b"$ [[ ]] $["[..]));
}

proptest! {
    #[test]
    fn rendering_is_what_the_obvious_renderer_says(
        parts in prop::collection::vec(
            prop_oneof![
                "[a-zé$\\[\\n]{0,6}".prop_filter("no name begins", |text| !text.contains("$[[")),
                prop::sample::select(vec!["$[[id]]", "$[[ word ]]", "$[[seven]]", "$[[once]]", "$[[line]]"])
                    .prop_map(str::to_owned),
            ],
            0..12,
        ),
        repeat in 1_u32..5,
    ) {
        let text = parts.join(" ");
        prop_assume!(!text.contains("$[[[") && !text.contains("]]]"));
        let variables = variables();
        let body = Body {
            text: Template::compile(&text, &mut |name| resolve(name).map(Some)).unwrap(),
            repeat,
            once: [0].into(),
            uniform: true,
        };
        let needs = needs(&variables, &[], &[0], Some(&body));
        let mut draws = Draws::new(Arc::clone(&variables), 1);
        draws.begin(Timestamp::UNIX_EPOCH, &needs, &[0]);
        let mut out = Vec::new();
        body.render(&mut draws, &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), obvious(&text, repeat));
    }
}
