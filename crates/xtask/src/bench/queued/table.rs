//! The queue's figures, beside their targets.

use super::super::rounds::Figure;
use super::super::table::{PEAK_MIB_MAX, align, mark, part, thousands};
use super::backlog::Drained;
use super::latency::Latency;
use super::phases::Measured;

/// How much more the last tenth of a backlog may seem to cost than a short queue: measurements on a shared
/// machine vary by that much.
const ROOM: f64 = 1.15;

pub(super) fn print(
    machine: &str,
    measured: &[Measured],
    latencies: &[Latency],
    drained: Option<&Drained>,
) -> String {
    let mut text = String::new();
    if !measured.is_empty() {
        text += &cases(measured);
        text.push('\n');
    }
    if !latencies.is_empty() {
        text += &acknowledgements(latencies);
        text.push('\n');
    }
    if let Some(drained) = drained {
        text += &backlog(drained);
        text.push('\n');
    }
    text + machine
}

/// Returns the figures of accepting and delivering, one line per case, and a description of the cases.
pub(super) fn cases(measured: &[Measured]) -> String {
    let mut text = phases(measured);
    text.push('\n');
    for one in measured.iter().filter(|one| one.case.before.is_none()) {
        text += &format!(
            "{}: {}; {} connections\n",
            one.case.name, one.case.about, one.case.load.connections
        );
    }
    text
}

fn phases(measured: &[Measured]) -> String {
    let mut lines = vec![
        [
            "case",
            "accept CPU s / M",
            "deliver",
            "sum",
            "both at once",
            "HAProxy",
            "accepted/s",
            "delivered/s",
            "ack p50 ms",
            "p99 ms",
            "disk B / doc",
            "wire B / doc",
            "peak MiB",
            "misrouted",
            "targets",
        ]
        .map(str::to_owned),
    ];
    for one in measured {
        lines.push([
            one.case.title(),
            spread(one.accept),
            spread(one.deliver),
            spread(one.sum),
            spread(one.together),
            one.haproxy.map_or("–".to_owned(), spread),
            thousands(one.accepted_a_second.median),
            thousands(one.delivered_a_second.median),
            format!("{:.1}", one.p50_ms.median),
            format!("{:.1}", one.p99_ms.median),
            format!("{:.0}", one.disk_bytes),
            format!("{:.0}", one.wire_bytes),
            format!("{:.0}", one.peak_mib),
            format!("{:.1} %", one.misrouted * 100.0),
            targets(one),
        ]);
    }
    align(&lines)
}

fn targets(one: &Measured) -> String {
    if one.case.before.is_some() {
        return String::new();
    }
    let memory = format!("≤ {PEAK_MIB_MAX:.0} MiB: {}", mark(one.peak_mib <= PEAK_MIB_MAX));
    let mut marks = Vec::new();
    if let Some(target) = one.case.target {
        marks.push(format!("sum ≤ {target:.2}: {}", mark(one.sum.median <= target)));
    }
    if let (Some(most), Some(haproxy)) = (one.case.of_haproxy, one.haproxy) {
        marks.push(part(one.sum.median / haproxy.median, most, "HAProxy's"));
    }
    marks.push(memory);
    marks.join(", ")
}

fn acknowledgements(latencies: &[Latency]) -> String {
    let mut lines = vec![
        [
            "clients",
            "docs a bulk",
            "ack p50 ms",
            "p99 ms",
            "max ms",
            "docs/s",
        ]
        .map(str::to_owned),
    ];
    for one in latencies {
        lines.push([
            one.clients.to_string(),
            one.bulk.to_string(),
            format!("{:.1}", one.p50_ms),
            format!("{:.1}", one.p99_ms),
            format!("{:.1}", one.max_ms),
            thousands(one.docs_a_second),
        ]);
    }
    align(&lines)
}

fn backlog(drained: &Drained) -> String {
    let [grown, emptied] = drained.peak_mib;
    let lines = [
        [
            "backlog",
            "deliver CPU s / M: short queue",
            "first tenth",
            "all",
            "last tenth",
            "delivered/s",
            "GiB on disk",
            "start ms",
            "peak MiB growing",
            "draining",
            "targets",
        ]
        .map(str::to_owned),
        [
            format!("{:.1} M docs, {}", drained.docs as f64 / 1e6, drained.compression),
            format!("{:.2}", drained.short),
            format!("{:.2}", drained.first),
            format!("{:.2}", drained.all),
            format!("{:.2}", drained.last),
            thousands(drained.docs_a_second),
            format!("{:.1}", drained.disk_gib),
            format!("{:.0}", drained.start_ms),
            format!("{grown:.0}"),
            format!("{emptied:.0}"),
            format!(
                "last ≤ short + 15 %: {}, ≤ {PEAK_MIB_MAX:.0} MiB: {}",
                mark(drained.last <= drained.short * ROOM),
                mark(grown.max(emptied) <= PEAK_MIB_MAX)
            ),
        ],
    ];
    align(&lines)
}

fn spread(figure: Figure) -> String {
    format!("{:.2} ({:.2}..{:.2})", figure.median, figure.min, figure.max)
}
