//! Complete requests that ask for too much, or for something that no server accepts.

use std::time::Instant;

use anyhow::Result;

use super::{FORBIDDEN, NDJSON, Scene, lines};

pub(super) fn broken_json(scene: &mut Scene<'_>) -> Result<()> {
    let broken = [
        "{\"index\":{\"_index\":\"hostile\"}}\n{\"t\":\"\\x\"}\n",
        "{\"index\":\n{}\n",
        "{\"index\":{\"_index\":\"hostile\"}}\n{\"a\":1}",
        "\0\0\0\n\n\n",
        "{\"index\":{\"_index\":\"Hostile/../x\"}}\n{}\n",
        // The broken line comes after a complete one.
        "{\"index\":{\"_index\":\"hostile\",\"_id\":\"1\"}}\n{\"a\":1}\n{\"indices\":{}}\n{}\n",
    ];
    let body = scene.rng.choice(broken).unwrap_or_default();
    scene.bulk("/_bulk", body)
}

pub(super) fn large_bulks(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile", 200, 10_000, &mut scene.rng);
    scene.bulk("/_bulk", &body)
}

/// Writes to many indices, so that delivery makes many groups of the bulk.
pub(super) fn wide_bulks(scene: &mut Scene<'_>) -> Result<()> {
    let one = |number: u32| lines(&format!("hostile-new-{number}"), 4, 20_000, &mut scene.rng);
    let body: String = (0..10).map(one).collect();
    scene.bulk("/_bulk", &body)
}

/// Sends updates whose answers each contain the whole document.
pub(super) fn echoed_updates(scene: &mut Scene<'_>) -> Result<()> {
    let padding = "x".repeat(20_000);
    let line = format!(
        "{{\"update\":{{\"_index\":\"hostile\",\"_id\":\"echo\",\"_source\":true}}}}\n\
         {{\"doc\":{{\"p\":\"{padding}\"}},\"doc_as_upsert\":true}}\n"
    );
    scene.bulk("/_bulk", &line.repeat(20))
}

/// Updates one document, beside documents of others: concurrent writers conflict.
pub(super) fn contested_updates(scene: &mut Scene<'_>) -> Result<()> {
    let line = |number: u32| {
        format!(
            "{{\"update\":{{\"_index\":\"hostile\",\"_id\":\"contested\"}}}}\n\
             {{\"doc\":{{\"n\":{number}}},\"doc_as_upsert\":true}}\n"
        )
    };
    let body: String = (0..20).map(|_| line(scene.rng.u32(..))).collect();
    scene.bulk("/_bulk", &body)
}

pub(super) fn large_searches(scene: &mut Scene<'_>) -> Result<()> {
    let body = format!(
        "{{\"query\":{{\"match_all\":{{}}}},\"_source\":[\"{}\"]}}",
        "x".repeat(500_000)
    );
    scene.json("POST", "/hostile/_search", &body)
}

/// Writes documents that the cluster refuses, with dead letters of the largest size.
pub(super) fn large_dead_letters(scene: &mut Scene<'_>) -> Result<()> {
    let value = "\\u0000".repeat(6_000);
    let body = format!("{{\"index\":{{\"_index\":\"hostile\"}}}}\n{{\"n\":\"unfit{value}\"}}\n");
    let path = format!("/_bulk?routing={}", "r".repeat(scene.rng.usize(..15_000)));
    // Each quote takes two bytes in a letter.
    let quotes = "\"".repeat(scene.rng.usize(..12_000));
    let headers = format!("Content-Type: application/x-ndjson; x={quotes}\r\n");
    scene.request("POST", &path, &headers, body.as_bytes())
}

pub(super) fn new_indices(scene: &mut Scene<'_>) -> Result<()> {
    let index = format!("hostile-new-{}", scene.rng.u32(..10));
    let body = lines(&index, 3, 10, &mut scene.rng);
    scene.bulk("/_bulk", &body)
}

/// Writes to an index that is not there, and requires an alias: the index must not be created.
pub(super) fn forbidden_indices(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines(FORBIDDEN, 3, 10, &mut scene.rng);
    match scene.rng.bool() {
        true => scene.bulk("/_bulk?require_alias=true", &body),
        false => scene.bulk(
            "/_bulk",
            &body.replace("\"_id\"", "\"require_alias\":true,\"_id\""),
        ),
    }
}

/// Writes documents without ids among others, and accepts a compressed answer.
pub(super) fn without_ids(scene: &mut Scene<'_>) -> Result<()> {
    let mut body = lines("hostile", 10, 10, &mut scene.rng);
    body.push_str(&"{\"index\":{\"_index\":\"hostile\"}}\n{\"a\":1}\n".repeat(10));
    body.push_str(&lines("hostile", 10, 10, &mut scene.rng));
    let headers = format!("{NDJSON}Accept-Encoding: gzip\r\n");
    scene.request("POST", "/_bulk", &headers, body.as_bytes())
}

pub(super) fn many_keys(scene: &mut Scene<'_>) -> Result<()> {
    for _ in 0..30 {
        if Instant::now() > scene.until {
            break;
        }
        let headers = format!("{NDJSON}Idempotency-Key: h{}\r\n", scene.rng.u64(..));
        let body = lines("hostile", 1, 10, &mut scene.rng);
        scene.request("POST", "/_bulk", &headers, body.as_bytes())?;
    }
    Ok(())
}

pub(super) fn bad_parameters(scene: &mut Scene<'_>) -> Result<()> {
    let nonsense = format!("nonsense{}=1", scene.rng.u32(..1_000));
    // Longer than a server accepts.
    let long = format!("routing={}", "r".repeat(5_000));
    let parameters = [
        "refresh=banana",
        "timeout=banana",
        "pipeline=none-such",
        "require_alias=true",
        &nonsense,
        &long,
    ];
    let parameter = scene.rng.choice(parameters).unwrap_or_default();
    let body = lines("hostile", 3, 10, &mut scene.rng);
    // In place of a parameter, some requests have a header that is too long.
    let headers = format!("{NDJSON}X-Long: {}\r\n", "h".repeat(17_000));
    match scene.rng.u32(..6) {
        0 => scene.request("POST", "/_bulk", &headers, body.as_bytes()),
        _ => scene.bulk(&format!("/_bulk?{parameter}"), &body),
    }
}

pub(super) fn vendor_types(scene: &mut Scene<'_>) -> Result<()> {
    let version = scene.rng.u32(7..=10);
    let headers = format!(
        "Content-Type: application/vnd.elasticsearch+x-ndjson; compatible-with={version}\r\n\
         Accept: application/vnd.elasticsearch+json; compatible-with={version}\r\n"
    );
    let body = lines("hostile", 3, 10, &mut scene.rng);
    scene.request("POST", "/_bulk", &headers, body.as_bytes())
}

/// Sends, among other operations, one for which the cluster refuses the whole request.
pub(super) fn refused_as_a_whole(scene: &mut Scene<'_>) -> Result<()> {
    let mut body = lines("hostile", 5, 10, &mut scene.rng);
    body.push_str(
        "{\"update\":{\"_index\":\"hostile\",\"_id\":\"r\",\"retry_on_conflict\":99999999999}}\n{\"doc\":{\"a\":1}}\n",
    );
    scene.bulk("/_bulk", &body)
}

/// Sends writes that cannot be queued: they wait for what is before them, or are refused.
pub(super) fn unqueued_writes(scene: &mut Scene<'_>) -> Result<()> {
    let body = lines("hostile", 3, 10, &mut scene.rng);
    match scene.rng.u32(..4) {
        0 => scene.bulk("/_bulk?filter_path=items", &body),
        1 => scene.json(
            "POST",
            "/hostile/_delete_by_query",
            "{\"query\":{\"match_none\":{}}}",
        ),
        2 => scene.json("PUT", "/hostile/_doc/alone?refresh=wait_for", "{\"a\":1}"),
        _ => scene.request(
            "POST",
            "/_bulk",
            &format!("{NDJSON}Accept: application/yaml\r\n"),
            body.as_bytes(),
        ),
    }
}

/// Names the same index in other spellings, and things that look like an index.
pub(super) fn spelled_paths(scene: &mut Scene<'_>) -> Result<()> {
    let spelled = [
        "/%68ostile/_bulk",
        "/%3Chostile%3E/_bulk",
        "//hostile//_bulk",
        "/hostile,hostile-c/_bulk",
        "/_bulk?index=hostile",
        "/hostile%2F_bulk",
        "/%zz/_bulk",
    ];
    let path = scene.rng.choice(spelled).unwrap_or_default();
    let body = lines("hostile", 3, 10, &mut scene.rng);
    scene.bulk(path, &body)
}

/// Requests the long lists of the admin port all the time.
pub(super) fn admin_lists(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.gateway.admin();
    for path in [
        "/dead_letters?queue=q&group=c&limit=1000",
        "/queue/stats",
        "/metrics",
    ] {
        scene.request_to(to, "GET", path, "", b"")?;
    }
    Ok(())
}
