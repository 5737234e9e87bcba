//! The metrics of the process, under the names that all programs use, and those of its build, its
//! configuration and its certificates.

use std::path::Path;
use std::sync::Arc;

use wire::exposition::{Exposition, escape};

use super::AdminState;
use crate::live::Live;

impl AdminState {
    /// Writes the metrics of the build and the configuration.
    pub(super) fn write_configuration(&self, out: &mut Exposition<'_>) {
        let (version, commit) = (
            env!("CARGO_PKG_VERSION"),
            option_env!("TIDEGATE_COMMIT").unwrap_or("unknown"),
        );
        let build = format!("version=\"{}\",commit=\"{}\"", escape(version), escape(commit));
        out.metric(
            "tidegate_build_info",
            "gauge",
            "Always 1; the labels identify the build.",
            [(build, 1.0)],
        );
        let counted = self.shared.reloads.counted();
        let one = |value: f64| [(String::new(), value)];
        out.metric(
            "tidegate_config_reloads_total",
            "counter",
            "Reloads that put a configuration in force.",
            one(counted.succeeded as f64),
        );
        out.metric(
            "tidegate_config_reloads_failed_total",
            "counter",
            "Reloads that were refused: the previous configuration stayed in force.",
            one(counted.failed as f64),
        );
        out.metric(
            "tidegate_config_last_reload_successful",
            "gauge",
            "Whether the last reload, or the start, put the file in force; 0: the gateway runs another configuration than the file's.",
            one(f64::from(u8::from(counted.in_force))),
        );
        out.metric(
            "tidegate_config_last_reload_success_timestamp_seconds",
            "gauge",
            "When a configuration was last put in force, in seconds since 1970.",
            one(counted.succeeded_at),
        );
        out.metric(
            "tidegate_config_waits_for_restart",
            "gauge",
            "Keys of the file that take effect only after a restart.",
            one(counted.waiting as f64),
        );
    }

    /// Returns when each certificate ends, with the labels of its metric.
    pub(super) fn expiries(&self) -> Vec<(String, f64)> {
        let live = self.shared.live.load_full();
        let mut samples = expiries(&live);
        samples.extend(self.certificates().into_iter().filter_map(|(entry, pem)| {
            let at = wire::earliest_expiry(&pem)?;
            Some((labels("entry", &entry), at as f64))
        }));
        let admin = self
            .tls
            .certificate_pem()
            .and_then(|pem| wire::earliest_expiry(&pem));
        samples.extend(admin.map(|at| (labels("admin", "admin"), at as f64)));
        samples
    }

    pub(super) fn write_expiries(&self, out: &mut Exposition<'_>) {
        out.metric(
            "tidegate_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the first certificate of a chain, or of a file of authorities, expires, in seconds since 1970.",
            self.expiries(),
        );
    }
}

/// Returns when the certificates in configured files end: those of clusters as they are in use, the others as
/// the files are now. Files that cannot be read are left out; the log reports them elsewhere.
fn expiries(live: &Live) -> Vec<(String, f64)> {
    let config = &live.config;
    let mut samples = Vec::new();
    for (name, cluster) in &live.clusters {
        let Some(tls) = cluster.tls() else { continue };
        let ends = [
            ("cluster_ca", tls.ca_expires),
            ("cluster_client", tls.certificate_expires),
        ];
        let ends = ends
            .into_iter()
            .filter_map(|(kind, at)| Some((labels(kind, name), at? as f64)));
        samples.extend(ends);
    }
    let mut add = |kind: &str, name: &Arc<str>, file: Option<&Path>| {
        if let Some(at) = file.and_then(wire::earliest_expiry_of_file) {
            samples.push((labels(kind, name), at as f64));
        }
    };
    for entry in &config.entries {
        let tls = entry.tls.as_ref();
        add(
            "entry_client_ca",
            &entry.name,
            tls.and_then(|tls| tls.client_ca_file.as_deref()),
        );
    }
    let admin = config.admin.tls.as_ref();
    add(
        "admin_client_ca",
        &"admin".into(),
        admin.and_then(|tls| tls.client_ca_file.as_deref()),
    );
    let in_use = |name: &Arc<str>| {
        live.clusters
            .get(name)
            .is_some_and(|cluster| cluster.tls().is_some())
    };
    for (name, cluster) in config.clusters.iter().filter(|(name, _)| !in_use(name)) {
        let tls = &cluster.tls;
        add("cluster_ca", name, tls.ca_file.as_deref());
        let own = tls.client_certificate.as_ref().map(|(file, _)| file.as_path());
        add("cluster_client", name, own);
    }
    samples
}

fn labels(kind: &str, name: &str) -> String {
    format!("of=\"{kind}\",name=\"{}\"", escape(name))
}

/// Writes the metrics of the process, as the system sees it.
pub(super) fn write_process(out: &mut Exposition<'_>) {
    let now = Process::now();
    let mut write = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        out.metric(name, kind, help, value.map(|value| (String::new(), value)));
    };
    write(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the process, in user and system mode.",
        now.cpu_s,
    );
    write(
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the process that is in RAM.",
        now.resident_bytes,
    );
    write(
        "process_open_fds",
        "gauge",
        "Open file descriptors, sockets included.",
        now.descriptors,
    );
    write(
        "process_max_fds",
        "gauge",
        "Most file descriptors that the process may have open.",
        now.descriptors_max,
    );
    write(
        "process_start_time_seconds",
        "gauge",
        "When the process was started, in seconds since 1970.",
        now.started_at,
    );
}

/// The values from `/proc`; `None` where `/proc` does not exist.
#[derive(Default)]
struct Process {
    cpu_s: Option<f64>,
    resident_bytes: Option<f64>,
    descriptors: Option<f64>,
    descriptors_max: Option<f64>,
    started_at: Option<f64>,
}

// === impl Process ===

impl Process {
    fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let stat = read("/proc/self/stat").unwrap_or_default();
        // The name in parentheses may contain anything; the third field follows it.
        let fields: Vec<f64> = stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| {
            let fields = rest.split_whitespace().skip(1);
            fields.map(|field| field.parse().unwrap_or(0.0)).collect()
        });
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let ticks = |number: usize| fields.get(number - 4).map(|ticks| ticks / ticks_per_s);
        let labelled = |text: Option<String>, label: &str, column: usize| {
            let text = text?;
            let line = text.lines().find_map(|line| line.strip_prefix(label))?;
            line.split_whitespace().nth(column)?.parse::<f64>().ok()
        };
        let booted = labelled(read("/proc/stat"), "btime", 0);
        Self {
            cpu_s: ticks(14).zip(ticks(15)).map(|(user, system)| user + system),
            resident_bytes: labelled(read("/proc/self/status"), "VmRSS:", 0).map(|kb| kb * 1024.0),
            descriptors: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|all| all.count() as f64),
            descriptors_max: labelled(read("/proc/self/limits"), "Max open files", 0),
            started_at: booted.zip(ticks(22)).map(|(booted, after)| booted + after),
        }
    }
}
