//! Remembers a cluster's answers about forms, for all cores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bulk::{Dialect, Flavour, Version};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use parking_lot::{Mutex, MutexGuard};

use super::ask::Refusal;
use super::{AnswerHead, Form, PRODUCT};

/// The forms that a cluster takes and refuses, as far as it was asked.
#[derive(Default)]
pub(crate) struct Forms(Mutex<FormAnswers>);

struct FormAnswers {
    /// The version that said so; another may say otherwise.
    dialect: Option<Dialect>,
    plain: AnswerHead,
    taken: Remembered<AnswerHead>,
    refused: Remembered<Arc<Refusal>>,
    /// The lengths that the cluster takes.
    target_bytes: usize,
    header_bytes: usize,
}

/// The verdict on a form.
pub(super) enum FormVerdict {
    Taken(AnswerHead),
    Refused(Arc<Refusal>),
    /// The cluster is to be asked; an old answer holds while the cluster does not answer.
    Ask(Option<AnswerHead>),
}

/// A bounded memory, which forgets the entry that was used least recently.
struct Remembered<T> {
    entries: HashMap<String, CacheEntry<T>>,
    uses: u64,
}

struct CacheEntry<T> {
    value: T,
    since: Instant,
    used: u64,
}

// === impl Forms ===

impl Forms {
    fn lock(&self, dialect: &Dialect) -> MutexGuard<'_, FormAnswers> {
        let mut known = self.0.lock();
        if known.dialect.as_ref() != Some(dialect) {
            *known = FormAnswers {
                dialect: Some(*dialect),
                plain: AnswerHead(Arc::new(plain_head(dialect))),
                ..FormAnswers::default()
            };
        }
        known
    }

    pub(super) fn verdict(&self, form: &Form<'_>, dialect: &Dialect) -> FormVerdict {
        let mut known = self.lock(dialect);
        let usual = form.target_bytes <= known.target_bytes && form.header_bytes <= known.header_bytes;
        if form.plain {
            return match usual {
                true => FormVerdict::Taken(known.plain.clone()),
                false => FormVerdict::Ask(None),
            };
        }
        if let Some((refusal, age)) = known.refused.get(&form.key)
            && age < REFUSED_FOR
        {
            return FormVerdict::Refused(refusal);
        }
        match known.taken.get(&form.key) {
            Some((head, age)) if usual && age < TAKEN_FOR => FormVerdict::Taken(head),
            Some((head, _)) if usual => FormVerdict::Ask(Some(head)),
            _ => FormVerdict::Ask(None),
        }
    }

    /// Records that the cluster takes this form, and requests that are as long.
    pub(super) fn taken(&self, form: &Form<'_>, dialect: &Dialect, head: HeaderMap) -> AnswerHead {
        let mut known = self.lock(dialect);
        known.target_bytes = known.target_bytes.max(form.target_bytes);
        known.header_bytes = known.header_bytes.max(form.header_bytes);
        let head = AnswerHead(Arc::new(head));
        if !form.plain {
            known.refused.entries.remove(&form.key);
            known.taken.put(&form.key, head.clone(), TAKEN_MAX);
        }
        head
    }

    /// Records that the cluster refuses this form; or that the request is too long for it, which says nothing
    /// of others.
    pub(super) fn refused(&self, form: &Form<'_>, dialect: &Dialect, refusal: &Arc<Refusal>) {
        let mut known = self.lock(dialect);
        let usual = form.target_bytes <= known.target_bytes && form.header_bytes <= known.header_bytes;
        if usual && !form.plain {
            known.taken.entries.remove(&form.key);
            known.refused.put(&form.key, Arc::clone(refusal), REFUSED_MAX);
        }
    }
}

// === impl FormAnswers ===

impl Default for FormAnswers {
    fn default() -> Self {
        Self {
            dialect: None,
            plain: AnswerHead(Arc::default()),
            taken: Remembered::default(),
            refused: Remembered::default(),
            target_bytes: TARGET_BYTES_USUAL,
            header_bytes: HEADER_BYTES_USUAL,
        }
    }
}

/// Returns the head that the servers of a version put on their answer to a plain bulk (`RestController`,
/// `AbstractRestChannel`).
pub(super) fn plain_head(dialect: &Dialect) -> HeaderMap {
    let since = |major, minor| {
        dialect.flavour == Flavour::Elasticsearch && dialect.version >= Version::new(major, minor, 0)
    };
    let mut head = HeaderMap::new();
    head.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(match since(8, 0) {
            true => "application/json",
            false => "application/json; charset=UTF-8",
        }),
    );
    if since(7, 14) {
        head.insert(PRODUCT, HeaderValue::from_static("Elasticsearch"));
    }
    head
}

// === impl Remembered ===

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            uses: 0,
        }
    }
}

impl<T: Clone> Remembered<T> {
    fn get(&mut self, key: &str) -> Option<(T, Duration)> {
        self.uses += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.uses;
        Some((entry.value.clone(), entry.since.elapsed()))
    }

    fn put(&mut self, key: &str, value: T, most: usize) {
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        if self.entries.len() >= most && !self.entries.contains_key(key) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.entries.remove(&oldest);
            }
        }
        self.uses += 1;
        let entry = CacheEntry {
            value,
            since: Instant::now(),
            used: self.uses,
        };
        self.entries.insert(key.to_owned(), entry);
    }
}

/// How long a cluster is not asked again about a form.
const TAKEN_FOR: Duration = Duration::from_secs(600);
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// The most forms that are remembered. Refused forms, which anybody can invent, have a bound of their own.
const TAKEN_MAX: usize = 1_000;
const REFUSED_MAX: usize = 200;
/// Forms with a longer key are asked about each time.
const KEY_BYTES_MAX: usize = 1_000;
/// Half of the lengths that servers take by default (`http.max_initial_line_length`, `http.max_header_size`):
/// within that, no question is needed.
const TARGET_BYTES_USUAL: usize = 2_048;
const HEADER_BYTES_USUAL: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    const ELASTICSEARCH_9: Dialect = Dialect::new(Flavour::Elasticsearch, Version::new(9, 5, 3));
    const OPENSEARCH: Dialect = Dialect::new(Flavour::OpenSearch, Version::new(3, 8, 0));

    fn form(key: &str, target_bytes: usize) -> Form<'static> {
        Form {
            target: "",
            key: key.to_owned(),
            plain: key.is_empty(),
            target_bytes,
            header_bytes: 100,
        }
    }

    fn refusal() -> Arc<Refusal> {
        Arc::new(Refusal::new(
            http::Response::new(()).into_parts().0,
            b"{}",
            "/p/_bulk",
        ))
    }

    #[test]
    fn answers_hold_for_the_version_that_gave_them() {
        let forms = Forms::default();
        let one = form("one", 10);
        assert!(matches!(forms.verdict(&one, &OPENSEARCH), FormVerdict::Ask(None)));
        forms.refused(&one, &OPENSEARCH, &refusal());
        assert!(matches!(
            forms.verdict(&one, &OPENSEARCH),
            FormVerdict::Refused(_)
        ));
        assert!(matches!(
            forms.verdict(&one, &ELASTICSEARCH_9),
            FormVerdict::Ask(None)
        ));
        forms.taken(&one, &ELASTICSEARCH_9, HeaderMap::new());
        assert!(matches!(
            forms.verdict(&one, &ELASTICSEARCH_9),
            FormVerdict::Taken(_)
        ));
    }

    #[test]
    fn a_plain_form_needs_no_question_unless_it_is_long() {
        let forms = Forms::default();
        let FormVerdict::Taken(AnswerHead(head)) = forms.verdict(&form("", 10), &ELASTICSEARCH_9) else {
            panic!("plain")
        };
        assert_eq!(head[PRODUCT], "Elasticsearch");
        assert_eq!(head[CONTENT_TYPE], "application/json");
        let long = form("", 4_000);
        assert!(matches!(
            forms.verdict(&long, &ELASTICSEARCH_9),
            FormVerdict::Ask(None)
        ));
        forms.refused(&long, &ELASTICSEARCH_9, &refusal());
        let FormVerdict::Taken(_) = forms.verdict(&form("", 10), &ELASTICSEARCH_9) else {
            panic!("a long one was refused, which says nothing of it")
        };
        forms.taken(&form("", 4_001), &ELASTICSEARCH_9, HeaderMap::new());
        assert!(matches!(
            forms.verdict(&long, &ELASTICSEARCH_9),
            FormVerdict::Taken(_)
        ));
    }

    #[test]
    fn a_flood_of_forms_that_are_refused_displaces_none_that_is_taken() {
        let forms = Forms::default();
        let good = form("good", 10);
        forms.taken(&good, &OPENSEARCH, HeaderMap::new());
        for n in 0..2_000 {
            forms.refused(&form(&format!("bad {n}"), 10), &OPENSEARCH, &refusal());
        }
        assert!(matches!(forms.verdict(&good, &OPENSEARCH), FormVerdict::Taken(_)));
        let known = forms.lock(&OPENSEARCH);
        assert_eq!(known.refused.entries.len(), REFUSED_MAX);
        assert!(known.refused.entries.contains_key("bad 1999"));
    }
}
