//! Sends figures to a statsd server, once a second, over UDP.

use std::fmt::Write as _;
use std::io;
use std::net::{ToSocketAddrs, UdpSocket};

use crate::progress::Progress;

/// The section `statsd` of a load file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsdTarget {
    /// The server's name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Prefix of every name, with a dot after it; may be empty.
    pub namespace: String,
}

/// A socket to a statsd server.
#[derive(Debug)]
pub struct Statsd {
    socket: UdpSocket,
    namespace: String,
}

// === impl Statsd ===

impl Statsd {
    /// Looks the server up. Whether the server listens is not known, since UDP does not say.
    ///
    /// # Errors
    /// If the name is not known or no socket can be opened.
    pub fn connect(target: &StatsdTarget) -> io::Result<Statsd> {
        let mut addresses = (target.host.as_str(), target.port).to_socket_addrs()?;
        let address = addresses.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Ok(Statsd {
            socket,
            namespace: match target.namespace.as_str() {
                "" => String::new(),
                namespace => format!("{namespace}."),
            },
        })
    }

    /// Sends what happened in the last second: counts as counters, latencies as gauges in milliseconds. A
    /// datagram that nobody receives is lost, as is usual with statsd.
    pub fn send(&self, now: &Progress) {
        let _ = self.socket.send(lines(&self.namespace, now).as_bytes());
    }
}

fn lines(namespace: &str, now: &Progress) -> String {
    let last = &now.last;
    let mut out = String::new();
    for (name, count) in [
        ("requests", last.answers),
        ("errors", last.errors),
        ("invalid", last.invalid),
        ("documents", last.documents),
        ("failed_documents", last.failed_documents),
        ("sent_bytes", last.sent_bytes),
        ("received_bytes", last.received_bytes),
    ] {
        // Writing to a string can't fail.
        let _ = writeln!(out, "{namespace}{name}:{count}|c");
    }
    if let Some(ms) = &now.latency_ms {
        for (name, value) in [("p50", ms.p50), ("p90", ms.p90), ("p99", ms.p99), ("max", ms.max)] {
            let _ = writeln!(out, "{namespace}latency_ms.{name}:{value:.3}|g");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::progress::Counts;

    #[test]
    fn a_second_arrives_as_counters() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let statsd = Statsd::connect(&StatsdTarget {
            host: "127.0.0.1".to_owned(),
            port: server.local_addr().unwrap().port(),
            namespace: "load".to_owned(),
        });
        let counts = Counts {
            answers: 7,
            documents: 700,
            ..Counts::default()
        };
        statsd.unwrap().send(&Progress {
            at_s: 1.0,
            span_s: 1.0,
            last: counts,
            total: counts,
            latency_ms: None,
            trouble: None,
        });
        let mut datagram = [0; 2_000];
        let length = server.recv(&mut datagram).unwrap();
        let text = std::str::from_utf8(&datagram[..length]).unwrap();
        assert!(
            text.starts_with("load.requests:7|c\n") && text.contains("load.documents:700|c\n"),
            "{text}"
        );
    }
}
