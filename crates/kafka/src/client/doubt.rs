//! Why a broker is refused in a TLS handshake. The library says no more than that its certificate could not
//! be verified, so the broker is called once more by [`wire::why_refused`].

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::{Options, Tls};

/// Returns the broker that a line of the library names as one with which a handshake failed, and why in words
/// for people; none if the line is about something else, or the reason cannot be found. Blocks.
pub(crate) fn explained(options: &Options, line: &str) -> Option<String> {
    let (tls, broker) = (options.tls.as_ref()?, refused_broker(line)?);
    let why = match config(tls) {
        Ok(config) => wire::why_refused(broker, &config, PATIENCE)?,
        Err(error) => error.to_string(),
    };
    Some(format!("{broker}: {why}"))
}

/// Returns `host:port` of the broker with which a handshake failed:
/// `ssl://kafka-1:9093/bootstrap: SSL handshake failed: … (after 2ms in state SSL_HANDSHAKE)`.
fn refused_broker(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("ssl://")?;
    let (broker, rest) = rest.split_once('/')?;
    rest.contains("SSL_HANDSHAKE").then_some(broker)
}

fn config(tls: &Tls) -> io::Result<wire::ClientTlsConfig> {
    let read = |path: &Path| {
        let in_file = |error| io::Error::other(format!("{}: {error}", path.display()));
        std::fs::read(path).map_err(in_file)
    };
    let identity_pem = match &tls.client_certificate {
        None => None,
        Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
    };
    Ok(wire::ClientTlsConfig {
        roots: match &tls.ca_file {
            Some(file) => wire::Roots::File(file.clone()),
            None => wire::Roots::Native,
        },
        insecure: !tls.verify,
        identity_pem,
    })
}

/// How long a broker may take to shake hands.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_is_read_from_what_the_library_says_of_a_handshake() {
        let line = "[thrd:sasl_ssl://kafka-1:9093/bootstrap]: sasl_ssl://kafka-1:9093/bootstrap: SSL handshake failed: \
                    error:0A000086:SSL routines::certificate verify failed (after 2ms in state SSL_HANDSHAKE)";
        assert_eq!(refused_broker(line), Some("kafka-1:9093"));
        let line = "ssl://[::1]:9093/2: error:1000007d (after 1ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)";
        assert_eq!(refused_broker(line), Some("[::1]:9093"));
        let line = "sasl_ssl://kafka-1:9093/1: SASL authentication error (after 9ms in state AUTH_REQ)";
        assert_eq!(refused_broker(line), None);
        assert_eq!(refused_broker("plaintext://kafka-1:9092/1: Disconnected"), None);
    }
}
