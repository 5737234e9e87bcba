//! The bill of materials: the crates in the program, with their versions, as SPDX 2.3 in JSON. They come from
//! Cargo's own resolution for the system that the program runs on, without dependencies of tests and builds
//! only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::Tree;
use crate::portable;

/// The crate of the program.
const PROGRAM: &str = "cli";

/// Writes the bill of materials, and returns its file.
pub(super) fn write(tree: &Tree, to: &Path) -> Result<PathBuf> {
    let metadata = portable::resolution()?;
    let used = used(&metadata)?;
    let sums = checksums()?;
    let packages = metadata["packages"].as_array().context("cargo names packages")?;
    let packages: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .filter(|(id, _)| used.contains_key(id))
        .collect();
    let described: Vec<Value> = packages
        .values()
        .map(|package| describe(package, tree, &sums))
        .collect();
    let mut relations = Vec::new();
    for (id, depends) in &used {
        let from = spdx_id(packages.get(id).context("a package of the resolution")?);
        if packages[id]["name"] == PROGRAM {
            relations.push(relation("SPDXRef-DOCUMENT", "DESCRIBES", &from));
        }
        for other in depends {
            let to = spdx_id(packages.get(other).context("a package of the resolution")?);
            relations.push(relation(&from, "DEPENDS_ON", &to));
        }
    }
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("tidegate-{}", tree.version),
        "documentNamespace": format!("urn:tidegate:{}:{}", tree.version, tree.commit),
        "creationInfo": {"created": tree.time()?, "creators": ["Tool: tidegate-xtask"]},
        "packages": described,
        "relationships": relations,
    });
    let file = to.join(format!("tidegate-{}.spdx.json", tree.version));
    fs::write(&file, serde_json::to_string_pretty(&document)? + "\n")?;
    Ok(file)
}

/// Returns each crate in the program, with the crates that it uses directly.
fn used(metadata: &Value) -> Result<BTreeMap<&str, BTreeSet<&str>>> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .context("cargo resolves")?;
    let nodes: BTreeMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let is_program = |package: &&Value| package["name"] == PROGRAM;
    let program = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(is_program);
    let mut left = vec![
        program
            .and_then(|package| package["id"].as_str())
            .context("the program")?,
    ];
    let mut used = BTreeMap::new();
    while let Some(id) = left.pop() {
        if used.contains_key(id) {
            continue;
        }
        let Some(node) = nodes.get(id) else {
            bail!("cargo does not resolve {id}");
        };
        let is_in = |dependency: &&Value| {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        };
        let depends = node["deps"].as_array().into_iter().flatten().filter(is_in);
        let depends: BTreeSet<&str> = depends.filter_map(|one| one["pkg"].as_str()).collect();
        left.extend(depends.iter().copied());
        used.insert(id, depends);
    }
    Ok(used)
}

/// Returns the checksums of crate archives in `Cargo.lock`, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock = fs::read_to_string(crate::root().join("Cargo.lock"))?;
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let start = format!("{key} = \"");
            let line = package.lines().find_map(|line| line.strip_prefix(start.as_str()));
            line.map(|value| value.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    Ok(sums)
}

fn describe(package: &Value, tree: &Tree, sums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let (name, version) = (text("name"), text("version"));
    // A slash was once allowed as a separator.
    let license = match text("license").replace('/', " OR ") {
        none if none.is_empty() => "NOASSERTION".to_owned(),
        license => license,
    };
    let is_program = name == PROGRAM;
    let mut described = json!({
        "SPDXID": spdx_id(package),
        "name": if is_program { "tidegate" } else { name.as_str() },
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
    });
    if package["source"].is_string() {
        described["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{version}"),
        }]);
        if let Some(sum) = sums.get(&(name, version)) {
            described["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": sum}]);
        }
    } else if is_program {
        described["primaryPackagePurpose"] = json!("APPLICATION");
        described["comment"] = json!(format!("commit {}", tree.commit));
    }
    described
}

fn spdx_id(package: &Value) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
    let of = |key: &str| package[key].as_str().unwrap_or_default();
    let name = format!("{}-{}", of("name"), of("version"));
    let name = name.replace('_', "-u-");
    format!("SPDXRef-{}", name.replace(|letter| !plain(letter), "-p-"))
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to})
}
