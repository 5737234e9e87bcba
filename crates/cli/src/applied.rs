//! Configurations that are applied through the admin port. The file is replaced and reloaded; unless somebody
//! confirms it in time, and the gateway is ready with it, the former file is put back and reloaded.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::kept::KeptFile;
use config::reload::fingerprint;
use config::{Config, Secret};
use gateway::{Applied, AppliedState, ConfigAsk, ConfigAsked, Gateway, NotApplied};

/// Reads the file again and puts it in force.
pub(crate) type Reload<'a> = &'a mut dyn FnMut() -> Result<(), NotApplied>;

/// What is applied, and waits for its confirmation.
pub(crate) struct Applying<'a> {
    file: Option<&'a Path>,
    pending: Option<Pending>,
}

/// The former file cannot be put back.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}: it was applied and never confirmed, and the former file cannot be put back: {error}; put it back by \
     hand, or remove {0}.unconfirmed to keep what was applied",
    file.display()
)]
pub(crate) struct NotPutBack {
    file: PathBuf,
    error: std::io::Error,
}

struct Pending {
    kept: KeptFile,
    /// The former text, in case that its file is removed meanwhile.
    former: Secret,
    /// The fingerprint of the text.
    text: u64,
    /// Since when the gateway has not been ready.
    bad_since: Option<Instant>,
    /// Why it is taken back, once the former file is in its place and only has to be put in force.
    taken_back: Option<String>,
    /// When to try again to take it back.
    again_at: Instant,
}

/// Puts the former file back if the present one was applied and never confirmed. Returns whether it was.
///
/// # Errors
/// Fails if the former file cannot be put back.
pub(crate) fn go_back_at_start(file: &Path) -> Result<bool, NotPutBack> {
    let Ok(kept) = KeptFile::find(file) else {
        return Ok(false); // reading it says why
    };
    kept.go_back_if_unconfirmed().map_err(|error| NotPutBack {
        file: file.to_owned(),
        error,
    })
}

/// Logs and records that the former file was put back at the start.
pub(crate) fn tell_of_start(gateway: &Gateway) {
    let why = "the gateway ended before anybody had confirmed it";
    tracing::warn!("an applied configuration was taken back, the former one is in force: {why}");
    gateway.set_applied(Applied {
        actor: "unknown".to_owned(),
        state: AppliedState::Reverted,
        changes: String::new(),
        why: Some(why.to_owned()),
        at_ms: unix_ms(),
        within_s: 0,
        patience_s: 0,
        deadline: Instant::now(),
        was_ready: true,
        not_ready: Vec::new(),
    });
}

impl<'a> Applying<'a> {
    pub(crate) fn new(file: Option<&'a Path>) -> Self {
        Self { file, pending: None }
    }

    /// Whether there is something to [`look`](Self::look) at.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Does what was asked for, and tells the client.
    pub(crate) fn take(&mut self, asked: ConfigAsked, gateway: &Gateway, reload: Reload<'_>) {
        let ConfigAsked { actor, ask, told } = asked;
        let (action, done) = match ask {
            ConfigAsk::Apply {
                text,
                version,
                within,
            } => {
                let applied = self.in_force(gateway).and_then(|(kept, in_force)| {
                    if in_force != version {
                        let why = "the configuration in force is another version than the one that this text \
                                   is a change of: somebody has changed it meanwhile";
                        return Err(refused(why));
                    }
                    self.apply(kept, gateway, &actor, (text.expose(), within), reload)
                });
                ("apply", applied)
            }
            ConfigAsk::Confirm => (
                "confirm",
                self.not_overtaken(gateway)
                    .and_then(|()| self.confirm(gateway, &actor)),
            ),
            ConfigAsk::Revert {
                within,
                only_unconfirmed,
            } => {
                let reverted = self.not_overtaken(gateway).and_then(|()| {
                    if only_unconfirmed && !self.is_pending() {
                        return Err(refused(NOTHING_WAITS));
                    }
                    self.revert(gateway, &actor, within, reload)
                });
                ("revert", reverted)
            }
        };
        if let Err(error) = &done {
            tracing::warn!(actor, action, %error, "configuration: not done");
        }
        let _ = told.send(done); // whoever asked may be gone
    }

    /// Takes the configuration back if its time is over or the gateway is not ready with it.
    pub(crate) fn look(&mut self, gateway: &Gateway, reload: Reload<'_>) {
        if self.not_overtaken(gateway).is_err() {
            return;
        }
        let (Some(pending), Some(mut applied)) = (&mut self.pending, gateway.applied()) else {
            return;
        };
        let may_go_back = Instant::now() >= pending.again_at;
        if let Some(why) = pending.taken_back.clone() {
            if may_go_back {
                self.go_back(gateway, why, reload);
            }
            return;
        }
        applied.not_ready = gateway.why_not_ready();
        let bad_since = match applied.not_ready.is_empty() {
            true => None,
            false => Some(pending.bad_since.unwrap_or_else(Instant::now)),
        };
        pending.bad_since = bad_since;
        let patience = Duration::from_secs(applied.patience_s);
        let is_bad = applied.was_ready && bad_since.is_some_and(|since| since.elapsed() >= patience);
        let why = match is_bad {
            true => Some(format!(
                "the gateway was not ready with it for {} s: {}",
                applied.patience_s,
                applied.not_ready.join("; ")
            )),
            false => (Instant::now() >= applied.deadline)
                .then(|| format!("nobody confirmed it within {} s", applied.within_s)),
        };
        gateway.set_applied(applied);
        if let Some(why) = why
            && may_go_back
        {
            self.go_back(gateway, why, reload);
        }
    }

    /// Checks that nobody has written the file since it was applied. Such a text is a decision of its own,
    /// whatever becomes of it, and ends what is pending.
    fn not_overtaken(&mut self, gateway: &Gateway) -> Result<(), NotApplied> {
        let is_other = |pending: &&Pending| {
            let text = pending.kept.text();
            pending.taken_back.is_none() && text.is_ok_and(|text| fingerprint(&text) != pending.text)
        };
        let Some(pending) = self.pending.as_ref().filter(is_other) else {
            return Ok(());
        };
        if let Err(error) = pending.kept.confirm() {
            tracing::warn!(%error, "the copy of an applied configuration cannot be removed");
        }
        tracing::info!("the applied configuration is overtaken: its file was changed");
        let why = "the file was changed";
        self.end(gateway, AppliedState::Overtaken, Some(why.to_owned()));
        Err(refused(format!(
            "{why}, so nothing waits for a confirmation any more"
        )))
    }

    /// Returns the file and the version in force, if the file is what is in force and nothing is pending.
    fn in_force(&self, gateway: &Gateway) -> Result<(KeptFile, String), NotApplied> {
        if self.is_pending() {
            return Err(refused(
                "another configuration waits for its confirmation: confirm it (POST /config/_confirm), \
                 or take it back (POST /config/_revert)",
            ));
        }
        let (Some(file), Some((version, in_force))) = (self.file, gateway.version()) else {
            let why = "the gateway was started with options and has no configuration file";
            return Err(refused(why));
        };
        let trouble = |error: std::io::Error| refused(format!("{}: {error}", file.display()));
        let kept = KeptFile::find(file).map_err(trouble)?;
        if fingerprint(&kept.text().map_err(trouble)?) != in_force {
            let why = "the file has changes that are not in force: put it in order first";
            return Err(refused(format!("{}: {why}", file.display())));
        }
        Ok((kept, version))
    }

    /// Puts a text in force until it is confirmed.
    fn apply(
        &mut self,
        kept: KeptFile,
        gateway: &Gateway,
        actor: &str,
        (text, within): (&str, Duration),
        reload: Reload<'_>,
    ) -> Result<(), NotApplied> {
        let name = self.file.map(|file| file.display().to_string());
        let environment = |name: &str| std::env::var(name).ok();
        let loaded = Config::parse(text, name.as_deref(), &environment)
            .map_err(|rejected| NotApplied::Problems(rejected.problems))?;
        let changes = gateway.would_change(&loaded);
        if !changes.restart.is_empty() {
            let keys = changes.restart.join(", ");
            return Err(refused(format!(
                "a restart is needed for {keys}: change the file, and restart the gateway"
            )));
        }
        if gateway
            .version()
            .is_some_and(|(_, in_force)| in_force == fingerprint(text))
        {
            return Err(refused("this is the configuration in force"));
        }
        let was_ready = gateway.why_not_ready().is_empty();
        let trouble =
            |error: std::io::Error| refused(format!("{}: {error}", name.as_deref().unwrap_or_default()));
        let former = kept.text().map(Secret::new).map_err(trouble)?;
        kept.replace(text).map_err(trouble)?;
        if let Err(error) = reload() {
            kept.go_back().map_err(trouble)?;
            let _ = reload(); // the old one is in force; now its file is read again
            return Err(error);
        }
        let applied = Applied {
            actor: actor.to_owned(),
            state: AppliedState::Unconfirmed,
            changes: changes.to_string(),
            why: None,
            at_ms: unix_ms(),
            within_s: within.as_secs(),
            patience_s: (within.as_secs() / PATIENCE_PART).max(1),
            deadline: Instant::now() + within,
            was_ready,
            not_ready: gateway.why_not_ready(),
        };
        tracing::info!(
            actor, changes = %changes, within_s = applied.within_s,
            "configuration applied; it is taken back unless it is confirmed"
        );
        gateway.set_applied(applied);
        self.pending = Some(Pending {
            kept,
            former,
            text: fingerprint(text),
            bad_since: None,
            taken_back: None,
            again_at: Instant::now(),
        });
        Ok(())
    }

    fn confirm(&mut self, gateway: &Gateway, actor: &str) -> Result<(), NotApplied> {
        let (Some(pending), Some(applied)) = (&self.pending, gateway.applied()) else {
            return Err(refused(NOTHING_WAITS));
        };
        if let Some(why) = &pending.taken_back {
            return Err(refused(format!("it is being taken back: {why}")));
        }
        let not_ready = gateway.why_not_ready();
        if applied.was_ready && !not_ready.is_empty() {
            let why = not_ready.join("; ");
            return Err(refused(format!("the gateway is not ready with it: {why}")));
        }
        let trouble = |error: std::io::Error| refused(error.to_string());
        pending.kept.confirm().map_err(trouble)?;
        tracing::info!(actor, "applied configuration confirmed");
        self.end(gateway, AppliedState::Confirmed, None);
        Ok(())
    }

    /// Goes back to the former text. If nothing is pending, that is a change like any other.
    fn revert(
        &mut self,
        gateway: &Gateway,
        actor: &str,
        within: Duration,
        reload: Reload<'_>,
    ) -> Result<(), NotApplied> {
        if self.is_pending() {
            self.go_back(gateway, format!("{actor} took it back"), reload);
            return match self.is_pending() {
                true => Err(refused(
                    "the former configuration cannot be put in force yet, which is tried again; the log says why",
                )),
                false => Ok(()),
            };
        }
        let (kept, _) = self.in_force(gateway)?;
        let former = kept.former_text();
        let former = former.ok_or_else(|| refused("there is no former configuration"))?;
        self.apply(kept, gateway, actor, (&former, within), reload)
    }

    /// Puts the former file back and in force. As long as that is not possible, it is tried again.
    fn go_back(&mut self, gateway: &Gateway, why: String, reload: Reload<'_>) {
        let Some(pending) = &mut self.pending else { return };
        pending.again_at = Instant::now() + AGAIN;
        if pending.taken_back.is_none() {
            let (kept, former) = (&pending.kept, pending.former.expose());
            let gone_back = kept.keep_former(former).and_then(|()| kept.go_back());
            // If only the copy of the new text is left, it is another text than the file's and means nothing.
            if let Err(error) = gone_back
                && !kept.text().is_ok_and(|text| text == former)
            {
                tracing::error!(%error, "the former configuration cannot be put back, and is tried again");
                return;
            }
            pending.taken_back = Some(why.clone());
        }
        if let Err(error) = reload() {
            let error = first_problem(&error);
            tracing::error!(
                error,
                "the former configuration is in its file, but cannot be put in force, and is tried again"
            );
            let why = format!("{why}; the former file is in its place, but cannot be put in force: {error}");
            self.set(gateway, AppliedState::Unconfirmed, Some(why));
            return;
        }
        tracing::warn!("an applied configuration was taken back, the former one is in force: {why}");
        self.end(gateway, AppliedState::Reverted, Some(why));
    }

    fn end(&mut self, gateway: &Gateway, state: AppliedState, why: Option<String>) {
        self.pending = None;
        self.set(gateway, state, why);
    }

    fn set(&self, gateway: &Gateway, state: AppliedState, why: Option<String>) {
        if let Some(applied) = gateway.applied() {
            gateway.set_applied(Applied {
                state,
                why,
                ..applied
            });
        }
    }
}

fn first_problem(error: &NotApplied) -> String {
    match error {
        NotApplied::Problems(problems) if !problems.is_empty() => problems[0].to_string(),
        error => error.to_string(),
    }
}

fn refused(why: impl Into<String>) -> NotApplied {
    NotApplied::Refused(why.into())
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

const NOTHING_WAITS: &str = "no configuration waits for its confirmation";

/// The time until a former configuration that could not be put back or in force is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// The part of the time that a gateway may be without readiness, as it reads a new cluster for the first
/// time.
const PATIENCE_PART: u64 = 3;
