//! Entries: addresses, TLS, limits.

use std::net::SocketAddr;

use super::Resolver;
use crate::file::{EntryFile, EntryTlsFile, RouterFile};
use crate::runtime::*;

impl Resolver<'_> {
    pub(super) fn address(&mut self, path: &str, text: &str) -> Option<SocketAddr> {
        match listen_address(text) {
            Ok(address) => Some(address),
            Err(why) => {
                self.error(path, format!("`{text}` {why}"));
                None
            }
        }
    }

    pub(super) fn entries(&mut self, entries: &[EntryFile], routers: &[RouterFile]) -> Vec<Entry> {
        self.names("entry", entries.iter().map(|entry| entry.name.as_str()));
        let mut resolved: Vec<Entry> = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let path = format!("entry[{at}]");
            let known = routers.iter().map(|router| (router.name.as_str(), true));
            self.refers(&format!("{path}.router"), &entry.router, "router", known);
            let binding_path = format!("{path}.network.binding");
            let binding = match entry.network.binding.as_str() {
                "" => None,
                text => self.address(&binding_path, text),
            };
            self.entry_bounds(&path, entry);
            let tls = if entry.enabled {
                self.entry_tls(&format!("{path}.tls"), &entry.tls)
            } else {
                None
            };
            let (Some(binding), true) = (binding, entry.enabled) else {
                continue;
            };
            if binding.port() != 0
                && let Some(other) = resolved.iter().find(|other| overlap(other.binding, binding))
                && !entry.network.skip_occupied_port
            {
                let message = format!("{binding} is taken by entry `{}` ({})", other.name, other.binding);
                self.error(&binding_path, message);
            }
            resolved.push(Entry {
                name: entry.name.as_str().into(),
                router: entry.router.as_str().into(),
                binding,
                skip_occupied_port: entry.network.skip_occupied_port,
                reuse_port: entry.network.reuse_port,
                tls,
                connections_max: entry.max_concurrency as usize,
                limits: Limits {
                    head_bytes_max: entry.max_request_head_size.0 as usize,
                    header_count_max: entry.max_request_headers as usize,
                    body_bytes_max: entry.max_request_body_size.0,
                },
                timeouts: EntryTimeouts {
                    header: entry.header_timeout.0,
                    read: entry.read_timeout.0,
                    write: entry.write_timeout.0,
                    idle: entry.idle_timeout.0,
                    body_bytes_per_second_min: entry.min_body_rate.0,
                },
            });
        }
        if resolved.is_empty() && !self.problems.has_errors() {
            self.error("entry", "no entry is switched on, so nothing would listen");
        }
        resolved
    }

    /// Checks the limits of an entry: none may be so small that nothing works, and none means "unlimited".
    fn entry_bounds(&mut self, path: &str, entry: &EntryFile) {
        for (key, bytes, least, most) in [
            (
                "max_request_head_size",
                entry.max_request_head_size.0,
                1 << 10,
                16 << 20,
            ),
            (
                "max_request_body_size",
                entry.max_request_body_size.0,
                1,
                u32::MAX.into(),
            ),
        ] {
            if !(least..=most).contains(&bytes) {
                self.error(
                    &format!("{path}.{key}"),
                    format!("must be from {least} to {most} bytes"),
                );
            }
        }
        for (key, time) in [
            ("header_timeout", entry.header_timeout.0),
            ("read_timeout", entry.read_timeout.0),
            ("write_timeout", entry.write_timeout.0),
            ("idle_timeout", entry.idle_timeout.0),
        ] {
            if time.is_zero() {
                self.error(
                    &format!("{path}.{key}"),
                    "must be more than 0: there is no \"for ever\"",
                );
            }
        }
    }

    pub(super) fn entry_tls(&mut self, path: &str, tls: &EntryTlsFile) -> Option<EntryTls> {
        if !tls.enabled {
            return None;
        }
        let certificate = match (&tls.cert_file, &tls.key_file) {
            (Some(cert), Some(key)) => Certificate::Files {
                cert_file: self.file(&format!("{path}.cert_file"), cert),
                key_file: self.file(&format!("{path}.key_file"), key),
            },
            (None, None) => {
                self.warning(
                    path,
                    "a certificate signed by itself is made at each start, which no client trusts by itself; give `cert_file` and `key_file`",
                );
                Certificate::SelfSigned
            }
            (cert, _) => {
                let missing = if cert.is_some() { "key_file" } else { "cert_file" };
                self.error(
                    path,
                    format!("`{missing}` is missing: certificate and key go together"),
                );
                return None;
            }
        };
        let client_ca_file = tls
            .client_ca_file
            .as_ref()
            .map(|name| self.file(&format!("{path}.client_ca_file"), name));
        Some(EntryTls {
            certificate,
            client_ca_file,
            hot_reload: tls.hot_reload,
        })
    }
}

/// Returns whether two listeners cannot both listen on these addresses.
pub fn overlap(left: SocketAddr, right: SocketAddr) -> bool {
    left.port() == right.port()
        && (left.ip() == right.ip() || left.ip().is_unspecified() || right.ip().is_unspecified())
}

/// Why an address cannot be listened on. The message follows the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadListenAddress {
    /// The text after the last colon is not a port.
    #[error("has no port from 0 to 65535 at its end")]
    Port,
    /// There is no colon.
    #[error("has no port; write it as `0.0.0.0:8000`")]
    NoPort,
    /// The text before the port is not an address.
    #[error("is not an address and port, as in `0.0.0.0:8000` or `[::]:8000`")]
    NoAddress,
}

/// Parses an address to listen on. `:8000` and `*:8000` mean every address. Names other than `localhost` are
/// not looked up, because their meaning may change.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn listen_address(text: &str) -> Result<SocketAddr, BadListenAddress> {
    let text = text.trim();
    let expanded = match text.rsplit_once(':') {
        Some(("" | "*", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    expanded.parse().map_err(|_| match text.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_err() => BadListenAddress::Port,
        None => BadListenAddress::NoPort,
        _ => BadListenAddress::NoAddress,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_without_asking_anyone() {
        for (text, read) in [
            (":8000", "0.0.0.0:8000"),
            ("*:8000", "0.0.0.0:8000"),
            ("localhost:1", "127.0.0.1:1"),
            ("[::]:8000", "[::]:8000"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), read, "{text}");
        }
        for wrong in [
            "",
            "8000",
            "127.0.0.1",
            "es.example:8000",
            "127.0.0.1:65536",
            "::1:8000x",
            "[::1]",
        ] {
            assert!(listen_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn listeners_overlap_on_equal_or_unspecified_addresses() {
        let on = |left: &str, right: &str| overlap(left.parse().unwrap(), right.parse().unwrap());
        assert!(
            on("127.0.0.1:1", "127.0.0.1:1") && on("0.0.0.0:1", "127.0.0.1:1") && on("127.0.0.1:1", "[::]:1")
        );
        assert!(!on("127.0.0.1:1", "127.0.0.1:2") && !on("127.0.0.1:1", "127.0.0.2:1"));
    }
}
