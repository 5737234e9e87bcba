//! Settings that are switched at run time. For each cluster they say whether small parts travel together and
//! how, and whether documents are directed, in all `bulk_reshuffle` filters of the cluster. Switches take
//! precedence over the configuration, and outlive restarts and reloads.
//!
//! There are two ways to switch. The operator uses the admin port ([`admin`]). Users of the faster-bulk
//! plug-in switch as they always have, with `PUT _cluster/settings` and `PUT {index}/_settings` ([`calls`]):
//! the settings that belong to the gateway are taken out of the body ([`body`]), and the cluster gets the
//! others. If there are no others, the cluster gets a request that changes nothing, so that it is the cluster
//! that decides whether this client may change settings. `GET` shows the gateway's settings among the
//! cluster's ([`shown`]).
//!
//! Requests read a snapshot, [`Switched`], behind an atomic pointer. Changes are made one at a time, and each
//! is written to disk before it is in force ([`kept`]).

pub(crate) mod admin;
mod body;
pub(crate) mod calls;
pub(crate) mod filter_path;
pub(crate) mod indices;
mod kept;
mod setting;
mod shown;
mod strict;

pub(crate) use setting::{BadSwitch, Setting};

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use config::{Combine, DirectRouting, Loaded};
use parking_lot::{Mutex, MutexGuard};

use crate::start_error::StartError;
use indices::Indices;
use setting::SwitchValue;

/// The switches of all clusters.
#[derive(Debug)]
pub(crate) struct Switches {
    /// The file in which the switches outlive the process.
    file: PathBuf,
    known: Mutex<BTreeMap<Arc<str>, Arc<ArcSwap<Switched>>>>,
}

/// The switches of one cluster, to read and to change.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSwitches {
    pub(crate) cluster: Arc<str>,
    now: Arc<ArcSwap<Switched>>,
    all: Arc<Switches>,
}

/// The state of the switches of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switched {
    /// The values as they were written, by section and setting.
    given: [[Option<Box<str>>; Setting::ALL.len()]; Section::ALL.len()],
    indices: Indices,
    /// The values as they were read; the section that takes precedence decides.
    combine: Option<bool>,
    flush_bytes: Option<u64>,
    interval: Option<Duration>,
    direct: Option<bool>,
}

/// The two sections in which a cluster keeps settings. Transient settings take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Section {
    Transient,
    Persistent,
}

/// A change of switches, applied in order. `None` leaves a setting to the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchChange {
    pub(crate) settings: Vec<(Section, Setting, Option<Box<str>>)>,
    pub(crate) indices: Vec<(Box<str>, Option<bool>)>,
}

/// Why nothing was switched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSwitched {
    #[error(transparent)]
    Bad(#[from] BadSwitch),
    #[error("{}: {source}", .file.display())]
    Unkept { file: PathBuf, source: io::Error },
}

// === impl Switches ===

impl Switches {
    /// Reads the switches that earlier processes left below `path.data`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not one of the gateway's.
    pub(crate) fn open(loaded: &Loaded) -> Result<Self, StartError> {
        let config = &loaded.config;
        let name = match loaded.fingerprint() {
            Some(_) => kept::FILE.to_owned(),
            None => kept::file_without_names(config),
        };
        let file = config.paths.data.join(name);
        match kept::read(&file) {
            Ok(known) => {
                for (cluster, switched) in &known {
                    tracing::info!(cluster = &**cluster, switched = %switched.to_text(), "switches as they were left");
                }
                let known = known.into_iter();
                let known =
                    known.map(|(cluster, switched)| (cluster, Arc::new(ArcSwap::from_pointee(switched))));
                Ok(Self {
                    file,
                    known: Mutex::new(known.collect()),
                })
            }
            Err(why) => Err(StartError::Switches {
                file,
                why: why.to_string(),
            }),
        }
    }

    /// Returns the file that the switches are kept in.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the switches of a cluster, by its name in the configuration.
    pub(crate) fn of(self: &Arc<Self>, cluster: &Arc<str>) -> ClusterSwitches {
        let now = Arc::clone(self.known().entry(Arc::clone(cluster)).or_default());
        ClusterSwitches {
            cluster: Arc::clone(cluster),
            now,
            all: Arc::clone(self),
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<ArcSwap<Switched>>>> {
        self.known.lock()
    }
}

// === impl ClusterSwitches ===

impl ClusterSwitches {
    /// Returns the switches as they are now.
    pub(crate) fn now(&self) -> Guard<Arc<Switched>> {
        self.now.load()
    }

    /// Changes switches durably. This waits for the disk, so it must not run on a core.
    ///
    /// # Errors
    /// Nothing has changed after an error.
    pub(crate) fn change(&self, change: &SwitchChange) -> Result<Arc<Switched>, NotSwitched> {
        let known = self.all.known(); // held to the end: one change at a time
        let next = Arc::new(self.now.load().with(change)?);
        let all = known.iter().map(|(cluster, now)| match *cluster == self.cluster {
            true => (&**cluster, Arc::clone(&next)),
            false => (&**cluster, now.load_full()),
        });
        kept::write(&self.all.file, all).map_err(|source| NotSwitched::Unkept {
            file: self.all.file.clone(),
            source,
        })?;
        self.now.store(Arc::clone(&next));
        Ok(next)
    }
}

// === impl Switched ===

impl Switched {
    /// Returns how parts travel together at a filter with this configuration, or `None` if they do not.
    pub(crate) fn combine(&self, configured: &Combine) -> Option<Combine> {
        self.combine.unwrap_or(configured.enabled).then(|| Combine {
            enabled: true,
            flush_bytes: self.flush_bytes.unwrap_or(configured.flush_bytes),
            interval: self.interval.unwrap_or(configured.interval),
            ..*configured
        })
    }

    /// Returns whether documents for this index are directed, or `None` to follow the configuration.
    pub(crate) fn directs(&self, index: &str) -> Option<bool> {
        if self.indices.is_empty() {
            return self.direct;
        }
        self.indices.of(index).or(self.direct)
    }

    /// Returns whether documents for some index may be directed although the configuration does not say so.
    pub(crate) fn directs_some(&self) -> bool {
        self.direct == Some(true) || !self.indices.is_empty()
    }

    /// Returns whether documents for an index without a switch of its own are directed.
    pub(crate) fn directs_others(&self) -> Option<bool> {
        self.direct
    }

    /// Returns the value of a setting in a section, as it was written.
    pub(crate) fn given(&self, section: Section, setting: Setting) -> Option<&str> {
        self.given[section as usize][setting as usize].as_deref()
    }

    /// Returns the value of a setting that is in force, as it was written, and its section.
    pub(crate) fn first(&self, setting: Setting) -> Option<(&str, Section)> {
        Section::ALL
            .into_iter()
            .find_map(|section| Some((self.given(section, setting)?, section)))
    }

    /// Returns the number of switches.
    pub(crate) fn count(&self) -> usize {
        let settings = self.given.iter().flatten().filter(|given| given.is_some());
        settings.count() + self.indices.iter().filter(|(_, on)| on.is_some()).count()
    }

    fn has_settings(&self) -> bool {
        self.given.iter().flatten().any(Option::is_some)
    }

    fn is_empty(&self) -> bool {
        !self.has_settings() && self.indices.is_empty()
    }

    /// Returns the switches after a change.
    fn with(&self, change: &SwitchChange) -> Result<Self, BadSwitch> {
        let mut next = self.clone();
        for (section, setting, value) in &change.settings {
            next.given[*section as usize][*setting as usize].clone_from(value);
        }
        for (pattern, on) in &change.indices {
            next.indices.set(pattern, *on)?;
        }
        next.read()?;
        Ok(next)
    }

    fn read(&mut self) -> Result<(), BadSwitch> {
        (self.combine, self.flush_bytes, self.interval, self.direct) = (None, None, None, None);
        for setting in Setting::ALL {
            let Some((text, _)) = self.first(setting) else {
                continue;
            };
            let meaning = setting
                .read(text)
                .map_err(|why| BadSwitch(format!("[{}]: [{text}] {why}", setting.name())))?;
            match (setting, meaning) {
                (Setting::Combine, SwitchValue::On(on)) => self.combine = Some(on),
                (Setting::DirectRouting, SwitchValue::On(on)) => self.direct = Some(on),
                (_, SwitchValue::Bytes(bytes)) => self.flush_bytes = Some(bytes),
                (_, SwitchValue::Time(time)) => self.interval = Some(time),
                (_, SwitchValue::On(_)) => unreachable!("no other switch is on or off"),
            }
        }
        Ok(())
    }

    /// Returns what is in force, for people.
    pub(crate) fn to_text(&self) -> String {
        let settings = Setting::ALL.into_iter().filter_map(|setting| {
            let (text, _) = self.first(setting)?;
            Some(format!("{}={text}", setting.name()))
        });
        settings
            .chain(self.indices.iter().map(index_text))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

// === impl Section ===

impl Section {
    /// Both sections, in order of precedence.
    pub(crate) const ALL: [Section; 2] = [Section::Transient, Section::Persistent];

    /// Returns the cluster's name for the section.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Section::Transient => "transient",
            Section::Persistent => "persistent",
        }
    }
}

// === impl SwitchChange ===

impl SwitchChange {
    /// Returns what the change does, for the log.
    pub(crate) fn to_text(&self) -> String {
        let settings = self.settings.iter().map(|(section, setting, value)| {
            let value = value.as_deref().unwrap_or("null");
            format!("{}.{}={value}", section.name(), setting.name())
        });
        let indices = self
            .indices
            .iter()
            .map(|(pattern, on)| index_text((pattern, *on)));
        settings.chain(indices).collect::<Vec<_>>().join(" ")
    }
}

fn index_text((pattern, on): (&str, Option<bool>)) -> String {
    let on = on.map_or_else(|| "null".to_owned(), |on| on.to_string());
    format!("direct_routing.enabled[{pattern}]={on}")
}

/// Returns how documents are directed when a switch is applied to the configuration.
pub(crate) fn in_force(switched: Option<bool>, configured: DirectRouting) -> DirectRouting {
    match (switched, configured) {
        (Some(false), _) => DirectRouting::Off,
        // The switch does not say how to direct. With this method a document is still found by its id alone.
        (Some(true), DirectRouting::Off) => DirectRouting::MintPacked,
        (_, configured) => configured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIGURED: Combine = Combine {
        enabled: false,
        flush_bytes: 7,
        docs_max: 8,
        requests_max: 9,
        interval: Duration::from_millis(10),
        adaptive: true,
    };

    fn change(settings: &[(Section, Setting, Option<&str>)]) -> SwitchChange {
        let settings = settings.iter().map(|(section, setting, value)| {
            let value = value.map(Into::into);
            (*section, *setting, value)
        });
        SwitchChange {
            settings: settings.collect(),
            indices: Vec::new(),
        }
    }

    #[test]
    fn switches_come_before_the_configuration_and_what_is_not_switched_is_as_configured() {
        let off = Switched::default();
        assert_eq!((off.combine(&CONFIGURED), off.directs("logs")), (None, None));
        let on = off
            .with(&change(&[
                (Section::Persistent, Setting::Combine, Some("true")),
                (Section::Transient, Setting::Interval, Some("50")),
            ]))
            .unwrap();
        let expected = Combine {
            enabled: true,
            interval: Duration::from_millis(50),
            ..CONFIGURED
        };
        assert_eq!(on.combine(&CONFIGURED), Some(expected));
        let off = on
            .with(&change(&[(Section::Transient, Setting::Combine, Some("false"))]))
            .unwrap();
        assert_eq!(off.combine(&CONFIGURED), None, "what is transient comes first");
        let again = off
            .with(&change(&[(Section::Transient, Setting::Combine, None)]))
            .unwrap();
        assert_eq!(again, on);
        assert_eq!((again.count(), Switched::default().count()), (2, 0));
    }

    #[test]
    fn an_index_has_the_last_word_about_itself() {
        let mut wanted = change(&[(Section::Persistent, Setting::DirectRouting, Some("true"))]);
        wanted.indices.push(("logs-*".into(), Some(false)));
        let switched = Switched::default().with(&wanted).unwrap();
        assert_eq!(
            (switched.directs("logs-1"), switched.directs("other")),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn a_change_is_kept_and_one_that_cannot_be_kept_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("deep").join(kept::FILE);
        let switches = Arc::new(Switches {
            file: file.clone(),
            known: Mutex::default(),
        });
        let (one, other) = (switches.of(&"one".into()), switches.of(&"other".into()));
        let on = change(&[(Section::Persistent, Setting::Combine, Some("true"))]);
        one.change(&on).unwrap();
        other
            .change(&change(&[(Section::Transient, Setting::Interval, Some("5"))]))
            .unwrap();
        let known = kept::read(&file).unwrap();
        assert_eq!((&known["one"], &known["other"]), (&**one.now(), &**other.now()));
        std::fs::remove_dir_all(directory.path()).unwrap();
        std::fs::write(directory.path(), "in the way").unwrap();
        let off = change(&[(Section::Persistent, Setting::Combine, None)]);
        assert!(matches!(one.change(&off), Err(NotSwitched::Unkept { .. })));
        assert_eq!(one.now().combine, Some(true));
        std::fs::remove_file(directory.path()).unwrap();
    }
}
