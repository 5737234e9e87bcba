//! Starts to record the spans of traced requests, as the configuration says.

use std::sync::{Arc, LazyLock};

use cluster::TlsFiles;
use traces::{Counts, Protocol, Recorder, Settings};
use wire::Origin;

use crate::start_error::StartError;

/// Starts to record the spans of traced requests.
pub(crate) fn start(
    tracing: &config::Tracing,
    tls: TlsFiles,
    spans: &Arc<Counts>,
) -> Result<Arc<Recorder>, StartError> {
    let (collector, grpc) = (
        &tracing.collector,
        tracing.protocol == config::TracingProtocol::Grpc,
    );
    let origin = match collector.tls {
        false => Origin::http(&collector.host, collector.port),
        true => {
            let tls = tls.load().map_err(StartError::Tracing)?;
            let tls = if grpc { tls.for_http2() } else { tls };
            Origin::https(&collector.host, collector.port, tls)
        }
    };
    let protocol = match grpc {
        true => Protocol::Grpc { tls: collector.tls },
        false => Protocol::Http {
            path: tracing.path.to_string(),
        },
    };
    let settings = Settings {
        origin,
        protocol,
        gzip: tracing.compression == config::TracingCompression::Gzip,
        headers: tracing.headers.clone(),
        timeout: tracing.timeout,
        sample: tracing.sample,
        follow_clients: tracing.follow_clients,
        resource: resource(tracing),
    };
    Recorder::start(settings, spans).map_err(StartError::Threads)
}

/// Returns the attributes of this gateway. Those of the configuration come last and replace the others.
fn resource(tracing: &config::Tracing) -> Vec<(String, String)> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut resource = vec![
        ("service.name", tracing.service_name.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", INSTANCE.clone()),
        ("host.name", host.trim().to_owned()),
    ];
    resource.retain(|(key, value)| !value.is_empty() && !tracing.attributes.contains_key(*key));
    let resource = resource.into_iter().map(|(key, value)| (key.to_owned(), value));
    resource.chain(tracing.attributes.clone()).collect()
}

/// The id of this process in traces: a random UUID (version 4).
static INSTANCE: LazyLock<String> = LazyLock::new(|| {
    let [a, b, c, d] = [
        fastrand::u32(..),
        fastrand::u32(..),
        fastrand::u32(..),
        fastrand::u32(..),
    ];
    let (b, c) = (b & 0xffff_0fff | 0x4000, c & 0x3fff_ffff | 0x8000_0000);
    format!(
        "{a:08x}-{:04x}-{:04x}-{:04x}-{:04x}{d:08x}",
        b >> 16,
        b & 0xffff,
        c >> 16,
        c & 0xffff
    )
});
