//! The configuration: what is in force, what another text would change, and a text that is put in force until
//! it is confirmed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use config::diff::{Changes, EntryChange, SectionChange, changes_of};
use config::kept::KeptFile;
use config::masked::{mask, unmask};
use config::{Config, Loaded, Problem, Secret, Severity};
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminState;
use super::guard::Asker;
use super::refusal::Refusal;
use crate::applied::{AppliedState, ConfigAsk, NotApplied};
use crate::front::tls_problems;

#[derive(Deserialize)]
pub(super) struct How {
    version: Option<String>,
    within_s: Option<u64>,
    #[serde(default)]
    only_unconfirmed: bool,
}

/// Answers with the text of the file, its secrets masked, and with the version that a change has to name.
pub(super) async fn file(State(admin): State<Arc<AdminState>>) -> Result<Json<Value>, Refusal> {
    let (name, kept) = admin.config_file()?;
    let text = kept
        .text()
        .map_err(|error| Refusal::conflict(format!("{name}: {error}")))?;
    let fingerprint = config::reload::fingerprint(&text);
    let in_force = admin.shared.live.load().fingerprint;
    // A text that nobody could parse was never in force.
    let masked = mask(&text);
    let why_not = kept.may_be_replaced().err();
    Ok(Json(json!({
        "file": name,
        "version": in_force.map(|in_force| admin.shared.configs.version(in_force)),
        "in_force": in_force == Some(fingerprint),
        "text": masked,
        "read_only": why_not.map(|error| error.to_string()),
        "has_former": kept.former_text().is_some(),
        "applied": admin.applied(),
    })))
}

/// Answers with what was applied last, and what became of it.
pub(super) async fn applied(State(admin): State<Arc<AdminState>>) -> Json<Value> {
    Json(admin.applied())
}

/// Answers with the problems of a text.
pub(super) async fn check(State(admin): State<Arc<AdminState>>, text: String) -> Json<Value> {
    Json(match admin.read(&text) {
        Ok((loaded, _)) => verdict(&loaded.warnings),
        Err(problems) => verdict(&problems),
    })
}

/// Answers with the problems of a text, with what it would change, and whether it is the text in force.
pub(super) async fn diff(State(admin): State<Arc<AdminState>>, text: String) -> Json<Value> {
    let (loaded, whole) = match admin.read(&text) {
        Ok(read) => read,
        Err(problems) => return Json(verdict(&problems)),
    };
    let mut told = verdict(&loaded.warnings);
    let live = admin.shared.live.load_full();
    let changes = changes_of(loaded, &live.config, &live.file);
    told["changes"] = sections(&changes);
    told["words"] = json!(changes.to_string());
    told["unchanged"] = json!(live.fingerprint == Some(config::reload::fingerprint(&whole)));
    Json(told)
}

/// Writes a text into the file and puts it in force, until it is confirmed or its time is over.
pub(super) async fn apply(
    State(admin): State<Arc<AdminState>>,
    Query(how): Query<How>,
    Extension(asker): Extension<Asker>,
    text: String,
) -> Result<Response, Refusal> {
    let within = within(how.within_s)?;
    let version = how.version.ok_or_else(|| {
        Refusal::invalid(
            "`version`: name the version that your text is a change of; GET /config/_file has it",
        )
    })?;
    let text = match admin.read(&text) {
        Ok((_, whole)) => Secret::new(whole),
        Err(problems) => return Ok(unusable(&problems)),
    };
    let ask = ConfigAsk::Apply {
        text,
        version,
        within,
    };
    admin.ask(&asker, ask).await
}

/// Keeps what was applied.
pub(super) async fn confirm(
    State(admin): State<Arc<AdminState>>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Refusal> {
    admin.ask(&asker, ConfigAsk::Confirm).await
}

/// Takes back what was applied.
pub(super) async fn revert(
    State(admin): State<Arc<AdminState>>,
    Query(how): Query<How>,
    Extension(asker): Extension<Asker>,
) -> Result<Response, Refusal> {
    let within = within(how.within_s)?;
    let ask = ConfigAsk::Revert {
        within,
        only_unconfirmed: how.only_unconfirmed,
    };
    admin.ask(&asker, ask).await
}

impl AdminState {
    /// Returns the name of the configuration file, and the file.
    fn config_file(&self) -> Result<(String, KeptFile), Refusal> {
        let live = self.shared.live.load_full();
        let name = live.file_name.as_deref().ok_or_else(|| {
            Refusal::conflict("the gateway was started with options and has no configuration file")
        })?;
        let kept = KeptFile::find(Path::new(name));
        let kept = kept.map_err(|error| Refusal::conflict(format!("{name}: {error}")))?;
        Ok((name.to_owned(), kept))
    }

    /// Checks a text that may have masks. Returns what it says, and the text with its secrets.
    fn read(&self, text: &str) -> Result<(Loaded, String), Vec<Problem>> {
        let file = self.config_file().ok();
        let name = file.as_ref().map(|(name, _)| &**name);
        let environment = |name: &str| std::env::var(name).ok();
        let parse =
            |text: &str| Config::parse(text, name, &environment).map_err(|rejected| rejected.problems);
        let former = file.as_ref().and_then(|(_, kept)| kept.text().ok());
        // Masks stand for values of `env` too, so the text as it was sent may be invalid and the whole not.
        let whole = unmask(text, &former.unwrap_or_default(), name)
            .map_err(|masks| [masks, parse(text).err().unwrap_or_default()].concat())?;
        let loaded = parse(&whole).map_err(|mut problems| {
            place_in(&mut problems, &parse(text).err().unwrap_or_default());
            problems
        })?;
        let problems = tls_problems(&loaded);
        match problems.is_empty() {
            true => Ok((loaded, whole)),
            false => Err([loaded.warnings, problems].concat()),
        }
    }

    async fn ask(&self, asker: &Asker, ask: ConfigAsk) -> Result<Response, Refusal> {
        let done = self.shared.configs.ask(asker.to_string(), ask).await;
        match done {
            Ok(()) => Ok(Json(self.applied()).into_response()),
            Err(NotApplied::Problems(problems)) => Ok(unusable(&problems)),
            Err(error) => Err(Refusal::conflict(error.to_string())),
        }
    }

    fn applied(&self) -> Value {
        let Some(last) = self.shared.configs.last() else {
            return Value::Null;
        };
        let left = last.deadline.saturating_duration_since(Instant::now());
        let mut told = json!(last);
        told["left_s"] = match last.state {
            AppliedState::Unconfirmed => json!(left.as_secs_f64()),
            _ => Value::Null,
        };
        told
    }
}

/// Gives the problems of a text the places that they have in the text as it was sent, with masks.
fn place_in(problems: &mut [Problem], as_sent: &[Problem]) {
    for problem in problems {
        let same = |sent: &&Problem| (&sent.path, &sent.message) == (&problem.path, &problem.message);
        let line = |at: &Problem| at.place.map(|place| place.line);
        let sent = as_sent
            .iter()
            .filter(same)
            .find(|sent| line(sent) == line(problem));
        problem.place = sent.map_or(problem.place, |sent| sent.place);
    }
}

fn within(asked: Option<u64>) -> Result<Duration, Refusal> {
    let seconds = asked.unwrap_or(WITHIN_S);
    match WITHIN_S_MIN..=WITHIN_S_MAX {
        range if range.contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(Refusal::invalid(format!(
            "`within_s`: from {WITHIN_S_MIN} to {WITHIN_S_MAX} seconds"
        ))),
    }
}

fn verdict(problems: &[Problem]) -> Value {
    let count = |severity| problems.iter().filter(|one| one.severity == severity).count();
    let errors = count(Severity::Error);
    json!({
        "valid": errors == 0,
        "errors": errors,
        "warnings": count(Severity::Warning),
        "problems": problems,
    })
}

/// Answers 400 with all problems, and with the first error as the reason.
fn unusable(problems: &[Problem]) -> Response {
    let first = problems
        .iter()
        .find(|problem| problem.severity == Severity::Error);
    let reason = first.map_or_else(
        || NotApplied::Problems(Vec::new()).to_string(),
        ToString::to_string,
    );
    let mut told = verdict(problems);
    told["error"] = json!({"type": "illegal_argument_exception", "reason": reason});
    told["status"] = json!(400);
    (StatusCode::BAD_REQUEST, Json(told)).into_response()
}

fn sections(changes: &Changes) -> Value {
    let entries: serde_json::Map<String, Value> = changes
        .entries
        .iter()
        .map(|(name, change)| {
            let word = match change {
                EntryChange::Added => "added".to_owned(),
                EntryChange::Removed => "removed".to_owned(),
                EntryChange::Changed => "changed".to_owned(),
                EntryChange::Renamed(before) => format!("renamed from {before}"),
                EntryChange::Moved => "moved".to_owned(),
            };
            (name.to_string(), json!(word))
        })
        .collect();
    let named = |of: &std::collections::BTreeMap<Arc<str>, SectionChange>| {
        let words = of.iter().map(|(name, change)| {
            let word = match change {
                SectionChange::Added => "added",
                SectionChange::Removed => "removed",
                SectionChange::Changed => "changed",
            };
            (name.to_string(), json!(word))
        });
        Value::Object(words.collect())
    };
    json!({
        "entries": entries,
        "routers": named(&changes.routers),
        "flows": named(&changes.flows),
        "clusters": named(&changes.clusters),
        "queues": named(&changes.queues),
        "pipelines": named(&changes.pipelines),
        "keys": changes.keys,
        "restart": changes.restart,
    })
}

const WITHIN_S: u64 = 30;
const WITHIN_S_MIN: u64 = 5;
const WITHIN_S_MAX: u64 = 3600;
