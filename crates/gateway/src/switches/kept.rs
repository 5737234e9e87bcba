//! The file in which switches are kept: `switches.json` below `path.data`, replaced as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use config::Config;
use serde::{Deserialize, Serialize};

use crate::replace::replace;

use super::{BadSwitch, Section, Setting, SwitchChange, Switched};

/// The name of the file.
pub(super) const FILE: &str = "switches.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchesFile {
    version: u32,
    clusters: BTreeMap<String, KeptCluster>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptCluster {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    transient: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    persistent: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    indices: Vec<KeptIndex>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptIndex {
    index: String,
    enabled: Option<bool>,
}

/// Why the file that switches are kept in cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
    #[error("{cluster}: {why}")]
    Cluster { cluster: String, why: BadSwitch },
}

/// Returns the name of the file when the clusters have no configured names. Gateways without a configuration
/// file may be started in one folder for different clusters, one after another or at the same time.
pub(super) fn file_without_names(config: &Config) -> String {
    let endpoints = config.clusters.values().flat_map(|cluster| &cluster.endpoints);
    let of = endpoints.map(|endpoint| {
        let host = endpoint
            .host
            .replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        format!("-{host}-{}", endpoint.port)
    });
    format!("switches{}.json", of.collect::<String>())
}

/// Returns the contents of a file; nothing if the file does not exist.
pub(super) fn read(file: &Path) -> Result<BTreeMap<Arc<str>, Switched>, Unreadable> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let kept: SwitchesFile = serde_json::from_str(&text)?;
    if kept.version != VERSION {
        return Err(Unreadable::Version(kept.version));
    }
    let clusters = kept.clusters.into_iter();
    let clusters = clusters.map(|(cluster, kept)| match kept.switched() {
        Ok(switched) => Ok((cluster.into(), switched)),
        Err(why) => Err(Unreadable::Cluster { cluster, why }),
    });
    clusters.collect()
}

/// Replaces the file so that at any moment either the old or the new content is there. When this returns, the
/// new content survives a power failure.
pub(super) fn write<'a>(
    file: &Path,
    clusters: impl Iterator<Item = (&'a str, Arc<Switched>)>,
) -> io::Result<()> {
    let clusters = clusters.filter(|(_, switched)| !switched.is_empty());
    let kept = SwitchesFile {
        version: VERSION,
        clusters: clusters
            .map(|(cluster, switched)| (cluster.to_owned(), KeptCluster::of(&switched)))
            .collect(),
    };
    let text = serde_json::to_string_pretty(&kept)? + "\n";
    replace(file, text.as_bytes())
}

// === impl KeptCluster ===

impl KeptCluster {
    fn of(switched: &Switched) -> Self {
        let section = |section| {
            let given = Setting::ALL.into_iter().filter_map(|setting| {
                let text = switched.given(section, setting)?;
                Some((setting.name().to_owned(), text.to_owned()))
            });
            given.collect()
        };
        let indices = switched.indices.iter().map(|(pattern, on)| KeptIndex {
            index: pattern.to_owned(),
            enabled: on,
        });
        Self {
            transient: section(Section::Transient),
            persistent: section(Section::Persistent),
            indices: indices.collect(),
        }
    }

    fn switched(self) -> Result<Switched, BadSwitch> {
        let mut change = SwitchChange::default();
        for (section, given) in [
            (Section::Transient, self.transient),
            (Section::Persistent, self.persistent),
        ] {
            for (name, text) in given {
                let setting = Setting::of_name(&name)
                    .ok_or_else(|| BadSwitch(format!("there is no switch [{name}]")))?;
                change.settings.push((section, setting, Some(text.into())));
            }
        }
        let indices = self.indices.into_iter();
        change.indices = indices.map(|kept| (kept.index.into(), kept.enabled)).collect();
        Switched::default().with(&change)
    }
}

const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Anonymous, DirectRouting, QuickStart};
    use std::os::unix::fs::PermissionsExt as _;

    fn switched() -> Switched {
        let change = SwitchChange {
            settings: vec![
                (Section::Transient, Setting::Interval, Some("50".into())),
                (Section::Persistent, Setting::Combine, Some("true".into())),
            ],
            indices: vec![("logs-*".into(), Some(true)), ("logs-1".into(), None)],
        };
        Switched::default().with(&change).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again_and_only_its_owner_may() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a").join(FILE);
        assert_eq!(read(&file).unwrap(), BTreeMap::new(), "none is there yet");
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(file.with_extension("json.new"), "left over").unwrap();
        let all = [
            ("c", Arc::new(switched())),
            ("none", Arc::new(Switched::default())),
        ];
        write(&file, all.into_iter()).unwrap();
        assert_eq!(read(&file).unwrap(), BTreeMap::from([("c".into(), switched())]));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn without_a_configuration_file_each_cluster_has_a_file_of_its_own() {
        let name = |url: &str| {
            let loaded = Config::quick_start(&QuickStart {
                cluster: url.to_owned(),
                listen: ([127, 0, 0, 1], 0).into(),
                insecure_skip_verify: false,
                ca_file: None,
                anonymous: Anonymous::Pass,
                admin: None,
                combine: false,
                rewrite_to_bulk: false,
                direct_routing: DirectRouting::Off,
                account: None,
            });
            file_without_names(&loaded.unwrap().config)
        };
        assert_eq!(name("http://10.0.0.1:9200"), "switches-10-0-0-1-9200.json");
        assert_eq!(name("http://[::1]:9201"), "switches---1-9201.json");
    }

    #[test]
    fn a_file_that_is_not_whole_or_not_ours_is_refused_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        for (text, reason) in [
            ("", "EOF"),
            ("{\"version\":1,\"clusters\":{", "EOF"),
            ("{\"version\":2,\"clusters\":{}}", "version is 2"),
            ("{\"version\":1,\"clusters\":{},\"more\":1}", "more"),
            (
                "{\"version\":1,\"clusters\":{\"c\":{\"transient\":{\"combine\":\"true\"}}}}",
                "no switch [combine]",
            ),
            (
                "{\"version\":1,\"clusters\":{\"c\":{\"transient\":{\"combine.enabled\":\"perhaps\"}}}}",
                "perhaps",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
