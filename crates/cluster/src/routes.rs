//! Making the table with which bulks are planned from a reading of the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bulk::{Dialect, Flavour, Formula, IndexRoute, NodeIx, RouteTable, RouteTableBuilder, Target, Why};
use serde::Serialize;

use crate::node::Node;
use crate::state::{AliasMember, IndexMetadata, IndexSettings, Placement, Topology};

/// The route table in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutesStatus {
    /// The indices for which bulks are split.
    pub indices_split: usize,
    /// The indices whose bulks pass through, by reason.
    pub indices_passed: BTreeMap<String, usize>,
    /// Aliases.
    pub aliases: usize,
    /// Data streams.
    pub data_streams: usize,
    /// The primaries without a node.
    pub primaries_missing: usize,
    /// A number for the indices and the nodes of their primaries: it is another one when they are elsewhere.
    #[serde(skip)]
    pub primaries: u64,
}

/// One reading of the cluster state.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) topology: Topology,
    pub(crate) settings: BTreeMap<String, IndexSettings>,
    pub(crate) aliases: BTreeMap<String, Vec<AliasMember>>,
    /// The data streams with their backing indices, the write index last.
    pub(crate) data_streams: BTreeMap<String, Vec<String>>,
    pub(crate) harmless_pipelines: BTreeSet<String>,
    /// The pipelines that write the sender of a request into documents.
    pub(crate) telling_pipelines: BTreeSet<String>,
}

/// Whether an index's predictions have been compared with the cluster's own answers, and the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The predictions agreed, or need no check.
    Trusted,
    /// The predictions disagreed.
    Failed,
    /// The predictions have not been compared yet.
    Unchecked,
}

/// The table, with the facts about its making that the watch needs.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) table: Arc<RouteTable>,
    /// Every open index that could be read, by name.
    pub(crate) indices: BTreeMap<String, Arc<IndexRoute>>,
    /// The indices that would be predictable once checked; write indices of aliases and data streams come
    /// first.
    pub(crate) unchecked: Vec<Arc<IndexRoute>>,
    pub(crate) status: RoutesStatus,
}

/// Makes a table that knows no name.
pub(crate) fn nothing(dialect: Option<Dialect>, nodes: usize) -> Arc<RouteTable> {
    let dialect = dialect.unwrap_or(Dialect::new(Flavour::OpenSearch, bulk::Version::new(1, 0, 0)));
    Arc::new(RouteTable::builder(dialect, u16::try_from(nodes).unwrap_or(u16::MAX)).build())
}

/// Returns the ids of the nodes with the primaries of an index, by shard.
fn primary_nodes<'n>(route: &IndexRoute, nodes: &'n [Arc<Node>]) -> Vec<Option<&'n str>> {
    let id = |ix: &Option<NodeIx>| Some(&*nodes.get(usize::from(ix.as_ref()?.0))?.id);
    route.primaries.iter().map(id).collect()
}

/// Makes the table. `trust` is called for indices that are predictable otherwise.
pub(crate) fn make(
    reading: &Reading,
    metadata: &HashMap<String, IndexMetadata>,
    nodes: &[Arc<Node>],
    dialect: Dialect,
    mut trust: impl FnMut(&IndexSettings, &IndexRoute) -> Trust,
) -> Routes {
    let places: HashMap<&str, NodeIx> = nodes
        .iter()
        .zip(0..u16::MAX)
        .filter(|(node, _)| node.discovered)
        .map(|(node, ix)| (node.id.as_str(), NodeIx(ix)))
        .collect();
    let mut status = RoutesStatus::default();
    let mut places_of = DefaultHasher::new();
    let (mut indices, mut unchecked) = (BTreeMap::new(), Vec::new());
    for (name, settings) in &reading.settings {
        let mut route = route(
            name,
            settings,
            reading,
            metadata.get(&settings.uuid),
            &places,
            dialect,
        );
        if route.opaque.is_none() {
            match trust(settings, &route) {
                Trust::Trusted => {}
                Trust::Failed => route.opaque = Some(Why::PredictionFailed),
                Trust::Unchecked => {
                    unchecked.push(Arc::new(route.clone()));
                    route.opaque = Some(Why::UnverifiedIndex);
                }
            }
        }
        match route.opaque {
            Some(why) => *status.indices_passed.entry(why.as_str().to_owned()).or_default() += 1,
            None => status.indices_split += 1,
        }
        status.primaries_missing += route.primaries.iter().filter(|node| node.is_none()).count();
        (name, primary_nodes(&route, nodes)).hash(&mut places_of);
        indices.insert(name.clone(), Arc::new(route));
    }
    let mut builder = RouteTable::builder(dialect, u16::try_from(nodes.len()).unwrap_or(u16::MAX));
    for route in indices.values() {
        builder.index(route.clone());
    }
    let written = names(reading, &indices, &mut builder, dialect.flavour);
    for name in &reading.harmless_pipelines {
        builder.harmless_pipeline(name);
    }
    for name in &reading.telling_pipelines {
        builder.telling_pipeline(name);
    }
    status.primaries = places_of.finish();
    status.aliases = reading.aliases.len();
    status.data_streams = reading.data_streams.len();
    unchecked.sort_by_key(|route: &Arc<IndexRoute>| {
        (!written.contains(&*route.name), route.name.starts_with('.'))
    });
    Routes {
        table: Arc::new(builder.build()),
        indices,
        unchecked,
        status,
    }
}

/// Puts data streams and aliases into the table; returns the indices that they write to.
fn names<'r>(
    reading: &'r Reading,
    indices: &BTreeMap<String, Arc<IndexRoute>>,
    builder: &mut RouteTableBuilder,
    flavour: Flavour,
) -> BTreeSet<&'r str> {
    let mut written: BTreeSet<&str> = BTreeSet::new();
    for (name, backing) in &reading.data_streams {
        let write = backing.last().map_or("", String::as_str);
        written.insert(write);
        builder.name(name, data_stream(indices.get(write)));
        builder.members(name, &boxed(backing));
    }
    for (name, members) in &reading.aliases {
        let target = match write_member(members, |of| takes_writes_only_if_marked(of, reading, flavour)) {
            Some(member) => {
                written.insert(&member.of);
                alias(member, indices, &reading.data_streams)
            }
            None => Target::Opaque(Why::AmbiguousAlias),
        };
        builder.name(name, target);
        let behind = members.iter().flat_map(|member| {
            let backing = reading.data_streams.get(&member.of);
            backing.map_or(std::slice::from_ref(&member.of), Vec::as_slice)
        });
        builder.members(name, &boxed(behind));
    }
    written
}

/// Makes the route of one index, without regard to trust.
fn route(
    name: &str,
    settings: &IndexSettings,
    reading: &Reading,
    metadata: Option<&IndexMetadata>,
    places: &HashMap<&str, NodeIx>,
    dialect: Dialect,
) -> IndexRoute {
    let formula = formula(settings, metadata, dialect);
    let primaries: Box<[Option<NodeIx>]> = match reading.topology.routing_table.indices.get(name) {
        Some(shards) => shards
            .primaries(settings.shards.min(SHARDS_MAX))
            .map(|id| places.get(id?).copied())
            .collect(),
        None => vec![None; settings.shards.min(SHARDS_MAX) as usize].into(),
    };
    let pipelines = || settings.default_pipeline.iter().chain(&settings.final_pipeline);
    let moves = |pipeline: &String| !reading.harmless_pipelines.contains(pipeline);
    let tells_caller = pipelines().any(|pipeline| reading.telling_pipelines.contains(pipeline));
    let unpredictable = match settings.placement {
        Placement::Content => Some(Why::RoutedByContent),
        Placement::Adaptive => Some(Why::AdaptiveShards),
        Placement::Hash if metadata.is_some_and(|m| m.split_in_place) => Some(Why::UnknownFormula),
        Placement::Hash if formula.is_none() => Some(Why::UnknownFormula),
        // If one pipeline moves documents and another one writes the sender, the latter decides.
        Placement::Hash if tells_caller && pipelines().any(moves) => Some(Why::CallersPipeline),
        Placement::Hash if pipelines().any(moves) => Some(Why::MovingPipeline),
        Placement::Hash if pipelines().next().is_some() && !dialect.ingests_singly() => {
            Some(Why::BatchedIngest)
        }
        Placement::Hash => None,
    };
    let ready = metadata.is_some() && reading.topology.routing_table.indices.contains_key(name);
    let opaque = match ready {
        _ if reading.topology.is_closed(name) => Some(Why::IndexClosed),
        false => Some(Why::IndexUnavailable),
        true => unpredictable,
    };
    let mut route = IndexRoute {
        partition_size: settings.partition_size,
        routing_required: metadata.is_some_and(|m| m.routing_required),
        ingests: pipelines().next().is_some(),
        tells_caller,
        numbered: matches!(unpredictable, None | Some(Why::BatchedIngest)),
        ..IndexRoute::new(name, formula.unwrap_or(Formula::Modulo), primaries)
    };
    // Nothing may be computed with numbers that make no sense, a check neither: it would never end, or panic.
    let nonsense = route.why_opaque();
    route.numbered &= nonsense.is_none();
    route.opaque = opaque.or(nonsense);
    route
}

/// Returns the routing formula of an index. Elasticsearch routes indices that were made by 9.4 or later by
/// the plain number of shards, although it still reports `routing_num_shards` for them
/// (`IndexVersions.MOD_ROUTING_FUNCTION`). OpenSearch's version ids carry a mask and are never compared with
/// it.
fn formula(settings: &IndexSettings, metadata: Option<&IndexMetadata>, dialect: Dialect) -> Option<Formula> {
    if dialect.flavour == Flavour::Elasticsearch && settings.created >= MOD_ROUTING_FUNCTION {
        return Some(Formula::Modulo);
    }
    let told = metadata.and_then(|m| m.routing_num_shards);
    let six = dialect.flavour == Flavour::Elasticsearch && dialect.version.major <= 6;
    let routing_num_shards = match told {
        Some(number) => number,
        // Elasticsearch 6 does not report it: it is the number of shards unless it was set.
        None if six => settings.routing_shards.unwrap_or(settings.shards),
        None => return None,
    };
    Some(Formula::Classic { routing_num_shards })
}

/// Returns whether an alias writes to this member only if it is marked, even if it is the only one: so it is
/// for data streams of Elasticsearch (`DataStreamAlias`). OpenSearch has aliases of indices only.
fn takes_writes_only_if_marked(member: &str, reading: &Reading, flavour: Flavour) -> bool {
    flavour == Flavour::Elasticsearch && reading.data_streams.contains_key(member)
}

/// Returns the member that takes writes: the only one marked so, or the only one there is unless it is marked
/// otherwise (`IndexAbstraction.Alias`) or `needs_mark`. If two members are marked, or none of several, the
/// alias takes no writes.
fn write_member(members: &[AliasMember], needs_mark: impl Fn(&str) -> bool) -> Option<&AliasMember> {
    let mut marked = members
        .iter()
        .filter(|member| member.is_write_index == Some(true));
    match (marked.next(), marked.next(), members) {
        (Some(only), None, _) => Some(only),
        (None, _, [only]) if only.is_write_index.is_none() && !needs_mark(&only.of) => Some(only),
        _ => None,
    }
}

fn alias(
    member: &AliasMember,
    indices: &BTreeMap<String, Arc<IndexRoute>>,
    data_streams: &BTreeMap<String, Vec<String>>,
) -> Target {
    if let Some(backing) = data_streams.get(&member.of) {
        return data_stream(backing.last().and_then(|write| indices.get(write)));
    }
    match (indices.get(&member.of), &member.index_routing) {
        (Some(_), Some(routing)) if routing.contains(',') => Target::Opaque(Why::AmbiguousAlias),
        (Some(write), routing) => Target::Alias {
            write: write.clone(),
            index_routing: routing.as_deref().map(Into::into),
        },
        (None, _) => Target::Opaque(Why::IndexUnavailable),
    }
}

fn boxed<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<Box<str>> {
    names.into_iter().map(|name| name.as_str().into()).collect()
}

fn data_stream(write: Option<&Arc<IndexRoute>>) -> Target {
    match write {
        Some(write) => Target::DataStream { write: write.clone() },
        None => Target::Opaque(Why::IndexUnavailable),
    }
}

/// The first `index.version.created` that is routed by the number of shards (Elasticsearch 9.4).
const MOD_ROUTING_FUNCTION: u64 = 9_064_000;

/// Far above what servers allow; bounds the memory that a nonsensical reply can make us allocate.
const SHARDS_MAX: u32 = 65_537;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Discovered;
    use crate::pipelines::{harmless_pipelines, telling_pipelines};
    use crate::state;
    use crate::testing::{fixture, node};

    fn read(name: &str) -> (Reading, HashMap<String, IndexMetadata>, Vec<Arc<Node>>, Dialect) {
        let discovered = Discovered::parse(fixture(name, "nodes").as_bytes()).unwrap();
        let pipelines: serde_json::Value = serde_json::from_str(&fixture(name, "pipelines")).unwrap();
        let reading = Reading {
            topology: serde_json::from_str(&fixture(name, "topology")).unwrap(),
            settings: state::parse_settings(fixture(name, "settings").as_bytes()).unwrap(),
            aliases: state::parse_aliases(fixture(name, "aliases").as_bytes()).unwrap(),
            data_streams: state::parse_data_streams(fixture(name, "data_streams").as_bytes()).unwrap(),
            harmless_pipelines: harmless_pipelines(pipelines.as_object().unwrap()),
            telling_pipelines: telling_pipelines(pipelines.as_object().unwrap()),
        };
        let metadata = state::parse_metadata(fixture(name, "metadata").as_bytes())
            .unwrap()
            .into_iter()
            .collect();
        let nodes = discovered.nodes.iter().map(|n| node(&n.id, &["data"])).collect();
        (reading, metadata, nodes, discovered.dialect.unwrap())
    }

    fn routes(name: &str) -> Routes {
        let (reading, metadata, nodes, dialect) = read(name);
        make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Trusted)
    }

    #[test]
    fn the_formula_is_chosen_by_engine_and_by_the_version_that_made_the_index() {
        for (name, expected) in [
            (
                "opensearch-3.8.0",
                Formula::Classic {
                    routing_num_shards: 768,
                },
            ),
            (
                "opensearch-2.19.4",
                Formula::Classic {
                    routing_num_shards: 768,
                },
            ),
            (
                "elasticsearch-7.10.2",
                Formula::Classic {
                    routing_num_shards: 768,
                },
            ),
            (
                "elasticsearch-8.19.21",
                Formula::Classic {
                    routing_num_shards: 768,
                },
            ),
            ("elasticsearch-9.5.3", Formula::Modulo),
        ] {
            let routes = routes(name);
            let plain = &routes.indices["plain"];
            assert_eq!((plain.formula, plain.opaque), (expected, None), "{name}");
            assert_eq!(plain.primaries.iter().flatten().count(), 6, "{name}");
            assert_eq!(routes.indices["nrs6"].shards(), 6);
            assert_eq!(
                (
                    routes.indices["routed"].partition_size,
                    routes.indices["routed"].routing_required
                ),
                (2, true)
            );
            assert_eq!(routes.indices["shut"].opaque, Some(Why::IndexClosed));
        }
    }

    #[test]
    fn elasticsearch_6_that_tells_no_routing_shards_uses_the_number_of_shards() {
        let dialect = Dialect::new(Flavour::Elasticsearch, bulk::Version::new(6, 8, 23));
        let mut settings = IndexSettings {
            created: 6_082_399,
            shards: 5,
            ..IndexSettings::default()
        };
        let metadata = IndexMetadata::default();
        let of = |settings: &IndexSettings, dialect| formula(settings, Some(&metadata), dialect);
        assert_eq!(
            of(&settings, dialect),
            Some(Formula::Classic {
                routing_num_shards: 5
            })
        );
        settings.routing_shards = Some(20);
        assert_eq!(
            of(&settings, dialect),
            Some(Formula::Classic {
                routing_num_shards: 20
            })
        );
        let seven = Dialect::new(Flavour::Elasticsearch, bulk::Version::new(7, 10, 2));
        assert_eq!(of(&settings, seven), None, "later versions must tell");
    }

    #[test]
    fn names_resolve_as_the_cluster_resolves_them() {
        // The metadata fixture covers some indices only; the others must pass through rather than be guessed.
        let (mut reading, mut metadata, nodes, dialect) = read("opensearch-3.8.0");
        for settings in reading.settings.values_mut() {
            // Pipelines are tested elsewhere.
            settings.default_pipeline = None;
            let told = IndexMetadata {
                routing_num_shards: Some(1024),
                ..IndexMetadata::default()
            };
            metadata.entry(settings.uuid.clone()).or_insert(told);
        }
        let routes = make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Trusted);
        let table = &routes.table;
        assert!(matches!(table.target("plain"), Some(Target::Index(_))));
        match table.target("al") {
            Some(Target::Alias { write, index_routing }) => {
                assert_eq!((&*write.name, index_routing.as_deref()), ("piped", Some("x")));
            }
            other => panic!("{other:?}"),
        }
        match table.target("logs-a") {
            Some(Target::DataStream { write }) => assert_eq!(&*write.name, ".ds-logs-a-000002"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            table.target("ao"),
            Some(Target::Opaque(Why::AdaptiveShards))
        ));
        assert!(table.target("absent").is_none());
        assert_eq!(
            table.admit_pipeline("p1", bulk::Level::Node),
            Err(Why::BatchedIngest)
        );
    }

    #[test]
    fn indices_that_are_new_wait_for_their_check_write_indices_first() {
        let (reading, metadata, nodes, dialect) = read("opensearch-3.8.0");
        let routes = make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Unchecked);
        assert!(matches!(
            routes.table.target("plain"),
            Some(Target::Opaque(Why::UnverifiedIndex))
        ));
        assert!(routes.unchecked.iter().any(|r| &*r.name == "plain"));
        let failed = make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Failed);
        assert!(matches!(
            failed.table.target("plain"),
            Some(Target::Opaque(Why::PredictionFailed))
        ));
    }

    #[test]
    fn an_index_behind_a_pipeline_is_split_where_the_pipeline_is_harmless_and_documents_are_ingested_singly()
    {
        for (server, pipeline, expected) in [
            ("elasticsearch-9.5.3", "p1", None),
            ("elasticsearch-9.5.3", "p2", Some(Why::MovingPipeline)),
            ("opensearch-3.8.0", "p1", Some(Why::BatchedIngest)),
            ("opensearch-3.8.0", "p2", Some(Why::MovingPipeline)),
        ] {
            let (mut reading, metadata, nodes, dialect) = read(server);
            // The fixture of Elasticsearch was taken without pipelines.
            reading.harmless_pipelines.insert("p1".to_owned());
            reading.settings.get_mut("plain").unwrap().final_pipeline = Some(pipeline.to_owned());
            let routes = make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Trusted);
            let why = match routes.table.target("plain") {
                Some(Target::Opaque(why)) => Some(*why),
                _ => None,
            };
            assert_eq!(why, expected, "{server} {pipeline}");
        }
    }

    #[test]
    fn primaries_have_another_number_when_they_are_elsewhere_and_only_then() {
        let (mut reading, mut metadata, mut nodes, dialect) = read("opensearch-3.8.0");
        let number = |reading: &Reading, metadata: &HashMap<_, _>, nodes: &[Arc<Node>]| {
            let routes = make(reading, metadata, nodes, dialect, |_, _| Trust::Trusted);
            routes.status.primaries
        };
        let before = number(&reading, &metadata, &nodes);
        // Nodes are told in another order, and a mapping and the aliases change.
        nodes.reverse();
        metadata.values_mut().for_each(|one| one.routing_required ^= true);
        reading.aliases.clear();
        assert_eq!(number(&reading, &metadata, &nodes), before);
        let indices = &mut reading.topology.routing_table.indices;
        let (plain, nrs6) = (indices["plain"].clone(), indices["nrs6"].clone());
        indices.insert("nrs6".to_owned(), plain.clone());
        indices.insert("plain".to_owned(), nrs6);
        let swapped = number(&reading, &metadata, &nodes);
        assert_ne!(swapped, before);
        reading.topology.routing_table.indices.remove("plain");
        let missing = number(&reading, &metadata, &nodes);
        assert!(missing != swapped && missing != before);
        reading.settings.remove("plain");
        let gone = number(&reading, &metadata, &nodes);
        assert!(![missing, swapped, before].contains(&gone));
    }

    #[test]
    fn an_alias_takes_writes_only_where_the_cluster_lets_it() {
        let member = |of: &str, marked| AliasMember {
            of: of.to_owned(),
            is_write_index: marked,
            index_routing: None,
        };
        let write =
            |members: &[AliasMember]| write_member(members, |of| of == "stream").map(|m| m.of.clone());
        assert_eq!(write(&[member("a", None)]).as_deref(), Some("a"));
        assert_eq!(write(&[member("a", Some(false))]), None);
        assert_eq!(write(&[member("a", None), member("b", None)]), None);
        assert_eq!(
            write(&[member("a", None), member("b", Some(true))]).as_deref(),
            Some("b")
        );
        assert_eq!(write(&[member("a", Some(false)), member("b", None)]), None);
        assert_eq!(write(&[member("stream", None)]), None);
        assert_eq!(write(&[member("stream", Some(true))]).as_deref(), Some("stream"));
    }

    #[test]
    fn an_alias_of_a_data_stream_of_elasticsearch_takes_no_writes_unless_it_says_so() {
        for (marked, expected) in [(None, Some(Why::AmbiguousAlias)), (Some(true), None)] {
            let (mut reading, mut metadata, nodes, dialect) = read("elasticsearch-9.5.3");
            let of = ".ds-stream-000001".to_owned();
            let backing = reading.settings["plain"].clone();
            metadata.insert("u".to_owned(), metadata[&backing.uuid].clone());
            let uuid = "u".to_owned();
            reading
                .settings
                .insert(of.clone(), IndexSettings { uuid, ..backing });
            let shards = reading.topology.routing_table.indices["plain"].clone();
            reading.topology.routing_table.indices.insert(of.clone(), shards);
            reading.data_streams.insert("stream".to_owned(), vec![of]);
            let member = AliasMember {
                of: "stream".to_owned(),
                is_write_index: marked,
                index_routing: None,
            };
            reading.aliases.insert("alias".to_owned(), vec![member]);
            let routes = make(&reading, &metadata, &nodes, dialect, |_, _| Trust::Trusted);
            match (routes.table.target("alias"), expected) {
                (Some(Target::Opaque(why)), Some(expected)) => assert_eq!(*why, expected),
                (Some(Target::DataStream { write }), None) => assert_eq!(&*write.name, ".ds-stream-000001"),
                (other, expected) => panic!("{marked:?}: {other:?}, expected {expected:?}"),
            }
        }
    }
}
