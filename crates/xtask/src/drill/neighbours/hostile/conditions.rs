//! Writes to indices and aliases that refuse writes for a while, or keep changing where they lead.

use anyhow::Result;

use super::{Scene, lines};

pub(super) fn impossible_shards(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile", 3, 10, &mut scene.rng);
    let timeout = ["100ms", "1s"][scene.rng.usize(..2)];
    scene.bulk(
        &format!("/_bulk?wait_for_active_shards=99&timeout={timeout}"),
        &body,
    )
}

pub(super) fn blocked_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-blocked", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let blocked = scene.rng.bool();
    scene.fabric.block("hostile-blocked", blocked)
}

pub(super) fn closed_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-closed", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let close = scene.rng.bool();
    scene.fabric.close("hostile-closed", close)
}

pub(super) fn alias_without_write_index(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile-unled", 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    let (pair, writes) = (["hostile-a", "hostile-b"], scene.rng.bool());
    scene.fabric.lead("hostile-unled", pair, &pair, writes)
}

pub(super) fn alias_swaps(scene: &mut Scene<'_>) -> Result<()> {
    let pair = ["hostile-c", "hostile-d"];
    let to = pair[scene.rng.usize(..2)];
    scene.fabric.lead("hostile-led", pair, &[to], true)?;
    let body = lines("hostile-led", 20, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)
}

/// Rolls an alias over; it keeps the index that took the writes before.
pub(super) fn rollovers(scene: &mut Scene<'_>) -> Result<()> {
    let mut pair = ["hostile-e", "hostile-f"];
    scene.rng.shuffle(&mut pair);
    let body = lines("hostile-rolled", 20, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)?;
    scene.fabric.lead("hostile-rolled", pair, &pair, true)?;
    scene.bulk("/_bulk", &body)
}

/// Writes without an id and a routing where routing is required: the whole request fails, with everything
/// that travels with it, also other operations of the same bulk.
pub(super) fn routing_required(scene: &mut Scene<'_>) -> Result<()> {
    let body = "{\"index\":{\"_index\":\"hostile-routed\"}}\n{\"a\":1}\n";
    match scene.rng.u32(..3) {
        0 => scene.bulk("/_bulk", body),
        1 => {
            let others = lines("hostile", 10, 10, &mut scene.rng);
            scene.bulk("/_bulk", &(others + body))
        }
        _ => scene.json("POST", "/hostile-routed/_doc", "{\"a\":1}"),
    }
}
