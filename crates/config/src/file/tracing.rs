//! `tracing`: traces of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use settings::Secret;

use super::{Share, Time, section};
use crate::runtime::{TracingCompression, TracingProtocol};

section! {
    /// Traces of requests, for OpenTelemetry collectors.
    TracingFile {
        /// Trace requests. Needs `otlp.endpoint`.
        enabled: bool = false,
        /// The share of requests that are traced.
        sample: Share = Share(0.01),
        /// Follow clients that say in `traceparent` whether their request is traced. `false`: only `sample`
        /// decides, and the client's trace goes on all the same.
        follow_clients: bool = true,
        /// The collector.
        otlp: OtlpFile = OtlpFile::default(),
        /// Name of this service in traces.
        service_name: String = "tidegate".to_owned(),
        /// Further attributes of this service, such as `deployment.environment.name`.
        attributes: BTreeMap<String, String> = BTreeMap::new(),
    }
}

section! {
    /// A collector that speaks OTLP.
    OtlpFile {
        /// URL: `http://` or `https://`, host, port. With `http/protobuf`, `/v1/traces` is added to it,
        /// unless it ends in that. Without a port: 4318, with `grpc` 4317.
        endpoint: Option<String> = None,
        /// Protocol.
        protocol: TracingProtocol = TracingProtocol::HttpProtobuf,
        /// How each request is compressed. `gzip` takes CPU time.
        compression: TracingCompression = TracingCompression::None,
        /// Headers of each request, such as a token. Their values are secrets.
        headers: BTreeMap<String, Secret> = BTreeMap::new(),
        /// Longest time that the collector may take for a request.
        timeout: Time = Time(Duration::from_secs(10)),
        /// Check of the collector's certificate, for `https`.
        tls: OtlpTlsFile = OtlpTlsFile::default(),
    }
}

section! {
    /// Check of the collector's certificate.
    OtlpTlsFile {
        /// Accept any certificate; for tests only. Anyone on the network path can then read and change
        /// everything, with the headers.
        insecure_skip_verify: bool = false,
        /// PEM file of the certificate authorities to trust instead of the system's.
        ca_file: Option<String> = None,
        /// PEM file of the certificate that the gateway presents.
        cert_file: Option<String> = None,
        /// PEM file of the private key.
        key_file: Option<String> = None,
    }
}
