//! Users who ask for more than they may do, where the cluster has users.

use anyhow::Result;

use super::{FORBIDDEN, JSON, NDJSON, Scene, lines};

/// Writes over good clients' documents, and to an index that is not there, as a user who may only read.
pub(super) fn readers(scene: &mut Scene<'_>) -> Result<()> {
    let headers = format!("Authorization: Bearer reader\r\n{NDJSON}");
    let (index, id) = match scene.rng.u32(..3) {
        0 => (FORBIDDEN, "1".to_owned()),
        // The first documents of the good clients.
        1 => ("good", format!("g{}", (1_u64 << 32) + scene.rng.u64(1..20))),
        _ => ("good-sync", format!("g{}", (2_u64 << 32) + scene.rng.u64(1..20))),
    };
    if scene.rng.bool() {
        let headers = headers.replace(NDJSON, JSON);
        return scene.request("PUT", &format!("/{index}/_doc/{id}"), &headers, b"{\"w\":0}");
    }
    let body = match scene.rng.bool() {
        true => format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n{{\"w\":0}}\n"),
        false => format!("{{\"delete\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n"),
    };
    scene.request("POST", "/_bulk", &headers, body.as_bytes())
}

/// Writes with a password that is nobody's.
pub(super) fn strangers(scene: &mut Scene<'_>) -> Result<()> {
    let nobody = scene.rng.u32(..);
    let headers = format!("Authorization: Bearer {nobody}\r\n{NDJSON}");
    let body = lines(FORBIDDEN, 3, 10, &mut scene.rng);
    scene.request("POST", "/_bulk", &headers, body.as_bytes())
}

/// Sends requests again with the same key and another token of the same user.
pub(super) fn renewed_tokens(scene: &mut Scene<'_>) -> Result<()> {
    let (key, body) = (scene.rng.u64(..), lines("hostile", 3, 10, &mut scene.rng));
    for token in ["hostile", "renewed"] {
        let headers = format!("Authorization: Bearer {token}\r\n{NDJSON}Idempotency-Key: r{key}\r\n");
        scene.request("POST", "/_bulk", &headers, body.as_bytes())?;
    }
    Ok(())
}

/// Switches for patterns that cover indices of others.
pub(super) fn narrowed_switches(scene: &mut Scene<'_>) -> Result<()> {
    let path = ["/*/_settings", "/_settings", "/_all/_settings", "/*o*/_settings"][scene.rng.usize(..4)];
    let on = scene.rng.bool();
    let body = format!("{{\"index.direct_routing.enable\":{on}}}");
    scene.json("PUT", path, &body)
}
