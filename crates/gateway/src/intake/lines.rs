//! Reads the action lines of bulks that are not planned, for the index of each action.
//!
//! A line without a token is skipped where an action is due, and counts as a source where a source is due
//! (`BulkRequestParser`).

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// An action line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionLine<'a> {
    #[serde(borrow)]
    index: Option<Meta<'a>>,
    create: Option<Meta<'a>>,
    update: Option<Meta<'a>>,
    delete: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "_index")]
    index: Option<Cow<'a, str>>,
    pipeline: Option<IgnoredAny>,
}

/// Returns the actions of a bulk, one by one. `None` stands for an action that cannot be read, and is the
/// last item: servers accept more than is read here (a number as a name, the first of several operations).
pub(crate) fn actions(body: &[u8]) -> impl Iterator<Item = Option<ActionLine<'_>>> {
    let mut lines = body.split(|byte| *byte == b'\n');
    let mut is_over = false;
    std::iter::from_fn(move || {
        let line = lines.find(|line| is_over || !line.trim_ascii().is_empty())?;
        if is_over {
            return None;
        }
        let action = serde_json::from_slice::<ActionLine<'_>>(line)
            .ok()
            .filter(ActionLine::is_one);
        match &action {
            Some(action) if !action.is_delete() => drop(lines.next()),
            Some(_) => {}
            None => is_over = true,
        }
        Some(action)
    })
}

impl ActionLine<'_> {
    fn all(&self) -> [&Option<Meta<'_>>; 4] {
        [&self.index, &self.create, &self.update, &self.delete]
    }

    fn is_one(&self) -> bool {
        self.all().into_iter().flatten().count() == 1
    }

    fn is_delete(&self) -> bool {
        self.delete.is_some()
    }

    /// Returns the index that the action itself names.
    pub(crate) fn index(&self) -> Option<&str> {
        let mut all = self.all().into_iter().flatten();
        all.find_map(|meta| meta.index.as_deref())
    }

    /// Returns whether the action names a pipeline, which may send its document anywhere.
    pub(crate) fn has_pipeline(&self) -> bool {
        self.all()
            .into_iter()
            .flatten()
            .any(|meta| meta.pipeline.is_some())
    }
}
