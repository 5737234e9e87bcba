//! Dead letters: list, show, edit, replay, purge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use bulk::RouteTable;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::AdminState;
use super::refusal::Refusal;
use crate::clock::now_ms;
use crate::own_thread::on_own_thread;
use crate::queue::dead_letters::{
    Edit, Letter, LetterFilter, LettersError, Patch, PatchTerms, Patched, ReplayTarget, Replayed,
    ShownLetter, Unfit, like, tidy_on,
};
use crate::queue::{Queue, broken_replay};

/// The query parameters of these endpoints.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LettersQuery {
    queue: Option<String>,
    id: Option<String>,
    group: Option<String>,
    index: Option<String>,
    status: Option<String>,
    r#type: Option<String>,
    reason: Option<String>,
    like: Option<String>,
    field: Option<String>,
    since: Option<String>,
    until: Option<String>,
    /// A place in the store where a list goes on, or the id of the letter where a patch does.
    #[serde(default)]
    from: u64,
    /// The `before` of the answer that counted the letters, or that a request goes on from.
    before: Option<u64>,
    limit: Option<usize>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    confirm: bool,
}

type Query_ = Result<Query<LettersQuery>, QueryRejection>;

pub(super) async fn list(State(admin): State<Arc<AdminState>>, query: Query_) -> Result<Response, Refusal> {
    let asked = asked(query)?;
    let (queue, filter) = (asked.queue(&admin)?, asked.filter()?);
    let limit = asked.limit.unwrap_or(LETTERS).min(LETTERS_MAX);
    blocking(move || {
        let page = queue
            .dead_letters
            .list(&filter, &queue.committed(), asked.from, limit)
            .map_err(Refusal::failed)?;
        #[derive(Serialize)]
        struct Listed<'a> {
            dead_letters: Vec<ShownLetter<'a>>,
            next: Option<u64>,
        }
        let listed = Listed {
            dead_letters: page.letters.iter().map(|letter| letter.shown()).collect(),
            next: page.next,
        };
        Ok(Json(listed).into_response())
    })
    .await
}

pub(super) async fn show(
    State(admin): State<Arc<AdminState>>,
    id: Result<Path<u64>, PathRejection>,
    query: Query_,
) -> Result<Response, Refusal> {
    let (Path(id), asked) = (
        id.map_err(|error| Refusal::invalid(error.body_text()))?,
        asked(query)?,
    );
    let queue = asked.queue(&admin)?;
    blocking(move || {
        let found = queue.dead_letters.get(id, &queue.committed());
        let letter = found.map_err(Refusal::failed)?.ok_or_else(|| no_letter(id))?;
        Ok(Json(letter.shown()).into_response())
    })
    .await
}

pub(super) async fn edit(
    State(admin): State<Arc<AdminState>>,
    id: Result<Path<u64>, PathRejection>,
    query: Query_,
    body: Bytes,
) -> Result<Response, Refusal> {
    let (Path(id), asked) = (
        id.map_err(|error| Refusal::invalid(error.body_text()))?,
        asked(query)?,
    );
    if asked.dry_run {
        return Err(Refusal::invalid(
            "an edit is never only tried: leave `dry_run` out",
        ));
    }
    let queue = asked.queue(&admin)?;
    let edit: Edit = serde_json::from_slice(&body).map_err(|error| {
        Refusal::invalid(format!(
            "the body is {{\"action\": {{…}}, \"source\": {{…}}}}, either or both: {error}"
        ))
    })?;
    let snapshot = admin.snapshot(&queue)?;
    blocking(move || {
        let edited = queue
            .dead_letters
            .edit(id, &edit, &queue.committed(), &snapshot.table, now_ms());
        tidy_on(&queue);
        match edited {
            Ok(letter) => Ok(Json(letter.shown()).into_response()),
            Err(Unfit::NoLetter) => Err(no_letter(id)),
            Err(Unfit::Failed(error)) => Err(failed(&error)),
            Err(error) => Err(Refusal::invalid(error.to_string())),
        }
    })
    .await
}

/// Counts letters by what they have in common.
pub(super) async fn facets(State(admin): State<Arc<AdminState>>, query: Query_) -> Result<Response, Refusal> {
    let asked = asked(query)?;
    let (queue, filter) = (asked.queue(&admin)?, asked.filter()?);
    blocking(move || {
        let counted = queue.dead_letters.facets(&filter, &queue.committed());
        Ok(Json(counted.map_err(Refusal::failed)?).into_response())
    })
    .await
}

pub(super) async fn patch(
    State(admin): State<Arc<AdminState>>,
    query: Query_,
    body: Bytes,
) -> Result<Response, Refusal> {
    let asked = asked(query)?;
    let (queue, filter) = (asked.queue(&admin)?, asked.selection()?);
    let patch: Patch = serde_json::from_slice(&body).map_err(|error| {
        Refusal::invalid(format!(
            "the body is {{\"patch\": [STEP, …]}}, a step one of set, remove, rename, convert: {error}"
        ))
    })?;
    if let Some(fault) = patch.fault() {
        return Err(Refusal::invalid(fault));
    }
    let snapshot = admin.snapshot(&queue)?;
    blocking(move || {
        let terms = PatchTerms {
            table: &snapshot.table,
            now_ms: now_ms(),
            dry_run: asked.dry_run,
            from: asked.from,
            within: REPLAY_MAX,
        };
        let done = queue
            .dead_letters
            .patch(&patch, &filter, &queue.committed(), &terms);
        tidy_on(&queue);
        let done = done.map_err(|error| failed(&error))?;
        if !asked.dry_run {
            tracing::info!(
                queue = &*queue.name,
                patched = done.patched,
                unchanged = done.unchanged,
                refused = done.refused.len(),
                "dead letters were patched"
            );
        }
        Ok(Json(ShownPatch::of(&done, asked.dry_run)).into_response())
    })
    .await
}

/// The answer to a patch. It is written directly, since a `Value` would cut the digits of letters' numbers.
#[derive(Serialize)]
struct ShownPatch<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    would: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patched: Option<u64>,
    unchanged: u64,
    refused: usize,
    refusals: Vec<Value>,
    preview: Vec<ShownPair<'a>>,
    more: bool,
    next: Option<u64>,
    before: u64,
}

#[derive(Serialize)]
struct ShownPair<'a> {
    before: ShownLetter<'a>,
    after: ShownLetter<'a>,
}

impl<'a> ShownPatch<'a> {
    fn of(done: &'a Patched, dry_run: bool) -> Self {
        let pair = |(before, after): &'a (Letter, Letter)| ShownPair {
            before: before.shown(),
            after: after.shown(),
        };
        Self {
            would: dry_run.then_some(done.patched),
            patched: (!dry_run).then_some(done.patched),
            unchanged: done.unchanged,
            refused: done.refused.len(),
            refusals: refusals(&done.refused),
            preview: done.preview.iter().map(pair).collect(),
            more: done.next.is_some(),
            next: done.next,
            before: done.before,
        }
    }
}

fn refusals(refused: &BTreeMap<u64, String>) -> Vec<Value> {
    let shown = refused.iter().take(REFUSED_SHOWN);
    shown.map(|(id, why)| json!({"id": id, "why": why})).collect()
}

pub(super) async fn replay(State(admin): State<Arc<AdminState>>, query: Query_) -> Result<Response, Refusal> {
    let asked = asked(query)?;
    let (queue, filter) = (asked.queue(&admin)?, asked.selection()?);
    if asked.dry_run {
        return count(queue, filter).await;
    }
    let snapshot = admin.snapshot(&queue)?;
    let (asking, name, known) = (
        Arc::clone(&admin),
        Arc::clone(&queue.cluster),
        Arc::clone(&snapshot.table),
    );
    let newest = move || {
        let live = asking.shared.live.load();
        let cluster = live.clusters.get(&name);
        cluster.map_or_else(
            || Arc::clone(&known),
            |cluster| Arc::clone(&cluster.snapshot().table),
        )
    };
    let queues = admin.shared.queues.load();
    let groups: Vec<Arc<str>> = queues
        .groups()
        .iter()
        .filter(|group| group.queue.name == queue.name)
        .map(|group| Arc::clone(&group.settings.group))
        .collect();
    drop(queues);
    let others = admin.shared.live.load().other_clusters(&queue.name).into_iter();
    let others = others.map(|(group, cluster)| {
        let snapshot = cluster.snapshot();
        (group, snapshot.learnt().then(|| Arc::clone(&snapshot.table)))
    });
    let others: Vec<(Arc<str>, Option<Arc<RouteTable>>)> = others.collect();
    blocking(move || {
        let way = ReplayTarget {
            log: &queue.log,
            table: &snapshot.table,
            newest: &newest,
            whereabouts: queue.whereabouts.as_deref(),
            groups: &groups,
            others: &others,
            within: REPLAY_MAX,
        };
        let letters = &queue.dead_letters;
        let inside = queue.entrance.enter();
        let _inside = inside.ok_or_else(|| Refusal::conflict("a reload is removing the queue".to_owned()))?;
        let done = letters.replay(&filter, &queue.committed(), &way, || queue.flush());
        let done = done.map_err(|error| {
            broken_replay::end(&queue);
            failed(&error)
        })?;
        tidy_on(&queue);
        tracing::info!(
            queue = &*queue.name,
            replayed = done.replayed,
            refused = done.refused.len(),
            stopped = done.stopped,
            "dead letters were replayed"
        );
        Ok(Json(shown_replay(&done)).into_response())
    })
    .await
}

fn shown_replay(done: &Replayed) -> Value {
    json!({
        "replayed": done.replayed,
        "refused": done.refused.len(),
        "refusals": refusals(&done.refused),
        "stopped": done.stopped,
        "more": done.more,
        "before": done.before,
    })
}

pub(super) async fn purge(State(admin): State<Arc<AdminState>>, query: Query_) -> Result<Response, Refusal> {
    let asked = asked(query)?;
    let (queue, filter) = (asked.queue(&admin)?, asked.selection()?);
    if asked.dry_run {
        return count(queue, filter).await;
    }
    if !asked.confirm {
        let reason = "what is purged is gone for good: say `confirm=true` (`dry_run=true` counts first)";
        return Err(Refusal::invalid(reason));
    }
    blocking(move || {
        let letters = &queue.dead_letters;
        let purged = letters.purge(&filter, &queue.committed(), || queue.flush());
        let purged = purged.map_err(|error| failed(&error))?;
        tidy_on(&queue);
        tracing::info!(queue = &*queue.name, purged, "dead letters were purged");
        Ok(Json(json!({"purged": purged})).into_response())
    })
    .await
}

async fn count(queue: Arc<Queue>, filter: LetterFilter) -> Result<Response, Refusal> {
    blocking(move || {
        let counted = queue.dead_letters.count(&filter, &queue.committed());
        let (counted, before) = counted.map_err(Refusal::failed)?;
        Ok(Json(json!({"would": counted, "before": before})).into_response())
    })
    .await
}

/// Runs work that reads or writes the disk, beside the port's own thread.
pub(super) async fn blocking(
    work: impl FnOnce() -> Result<Response, Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    on_own_thread(work)
        .await
        .unwrap_or_else(|error| Err(Refusal::unavailable(error.to_string())))
}

fn asked(query: Query_) -> Result<LettersQuery, Refusal> {
    let Query(asked) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
    Ok(asked)
}

fn no_letter(id: u64) -> Refusal {
    Refusal::not_found(format!("there is no dead letter {id}"))
}

fn failed(error: &LettersError) -> Refusal {
    match error {
        LettersError::Append(log::AppendError::Full(_)) => Refusal::unavailable(error.to_string()),
        _ => Refusal::failed(error),
    }
}

// === impl LettersQuery ===

impl LettersQuery {
    fn queue(&self, admin: &AdminState) -> Result<Arc<Queue>, Refusal> {
        admin.queue(self.queue.as_deref())
    }

    fn filter(&self) -> Result<LetterFilter, Refusal> {
        let ids = self.id.as_deref().map(|ids| {
            let ids: Result<BTreeSet<u64>, _> = ids.split(',').map(str::parse).collect();
            ids.map_err(|_| Refusal::invalid("`id` is one number, or several with commas between"))
        });
        let status = self.status.as_deref().map(|status| {
            LetterFilter::parse_status(status)
                .ok_or_else(|| Refusal::invalid("`status` is written as 400, 4xx or 400-404"))
        });
        Ok(LetterFilter {
            ids: ids.transpose()?,
            group: self.group.clone(),
            index: self.index.clone(),
            status: status.transpose()?,
            kind: self.r#type.clone(),
            reason: self.reason.clone(),
            like: self.like.as_deref().map(like),
            field: self.field.clone(),
            since_ms: self.since.as_deref().map(time_ms).transpose()?,
            until_ms: self.until.as_deref().map(time_ms).transpose()?,
            before: self.before,
        })
    }

    /// Returns the selected letters. An empty selection is refused here, so that nothing is removed by
    /// accident.
    fn selection(&self) -> Result<LetterFilter, Refusal> {
        let filter = self.filter()?;
        // A bound selects nothing by itself.
        let none = LetterFilter {
            before: filter.before,
            ..LetterFilter::default()
        };
        if filter == none && !self.all {
            return Err(Refusal::invalid("say which: `id`, a filter, or `all=true`"));
        }
        Ok(filter)
    }
}

/// Parses a time as people write it, or in ms since 1970.
pub(super) fn time_ms(text: &str) -> Result<u64, Refusal> {
    let parsed = text.parse().ok().or_else(|| {
        let stamp: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(stamp.as_millisecond()).ok()
    });
    parsed.ok_or_else(|| {
        Refusal::invalid(format!(
            "{text} is not a time: write 2026-11-21T10:00:00Z, or ms since 1970"
        ))
    })
}

// === impl AdminState ===

impl AdminState {
    /// Returns the queue of this name, or the only queue if no name is given.
    pub(super) fn queue(&self, name: Option<&str>) -> Result<Arc<Queue>, Refusal> {
        let queues = self.shared.queues.load();
        match name {
            Some(name) => {
                let queue = queues.get(name).cloned();
                queue.ok_or_else(|| Refusal::not_found(format!("there is no queue {name}")))
            }
            None => {
                let mut all = queues.all();
                match (all.next(), all.next()) {
                    (Some(only), None) => Ok(Arc::clone(only)),
                    (None, _) => Err(Refusal::not_found("there is no queue")),
                    _ => Err(Refusal::invalid(
                        "there are several queues: say which with `queue=`",
                    )),
                }
            }
        }
    }

    /// Returns the topology of the cluster that a queue's clients write to.
    fn snapshot(&self, queue: &Queue) -> Result<Arc<cluster::Snapshot>, Refusal> {
        let live = self.shared.live.load_full();
        let cluster = live.clusters.get(&queue.cluster);
        let snapshot = cluster.map(|cluster| cluster.snapshot());
        snapshot.filter(|snapshot| snapshot.learnt()).ok_or_else(|| {
            Refusal::unavailable(format!("the topology of {} is not known yet", queue.cluster))
        })
    }
}

/// The number of dead letters listed unless the request asks for more.
const LETTERS: usize = 100;
const LETTERS_MAX: usize = 10_000;
/// A replay that takes longer is answered after this time, and continues when it is requested again: a
/// connection must not be silent for long.
const REPLAY_MAX: Duration = Duration::from_secs(20);
/// The number of refusals that an answer lists one by one.
const REFUSED_SHOWN: usize = 100;
