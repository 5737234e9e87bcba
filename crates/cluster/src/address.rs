//! The address of a node: scheme, host and port. It is read from endpoints as users write them, and from
//! publish addresses as nodes report them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Serialize, Serializer};

/// The HTTP address of a node. IPv6 hosts are kept without brackets; `Display` and [`Address::authority`] add
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Whether the node speaks TLS (`https`).
    pub tls: bool,
    /// Host name, IPv4 or IPv6 address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The reason why an endpoint or a publish address could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an address of a node: {why}")]
pub struct BadAddress {
    /// The given text, without any credentials that it held.
    pub text: String,
    /// The fault.
    pub why: AddressFault,
}

/// The fault of a text that is no address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// A scheme other than `http` and `https`.
    #[error("its scheme is neither http nor https")]
    Scheme,
    /// A user name or a password.
    #[error("credentials belong in basic_auth, not in the URL")]
    Credentials,
    /// More than an address.
    #[error("a path, query or fragment is not supported")]
    Path,
    /// `[` without `]`.
    #[error("its bracket is not closed")]
    OpenBracket,
    /// Brackets around something else.
    #[error("there is no IPv6 address between the brackets")]
    NoIpv6,
    /// Text after `]` that is no port.
    #[error("something follows the bracket that is no port")]
    AfterBracket,
    /// No host.
    #[error("it has no host")]
    NoHost,
    /// A character that no host name has.
    #[error("its host holds a character that no host has")]
    HostCharacter,
    /// A port that is none.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// No port, where one is needed.
    #[error("it has no port")]
    NoPort,
}

impl Address {
    /// Reads an endpoint as users write it: `https://es:9200`, `http://[::1]:9200/`, `es:9200`, `es`.
    ///
    /// The default scheme is `http`, the default port 9200, as in the clients of both engines.
    ///
    /// # Errors If the scheme is unknown, if the URL has credentials or a path (both have their own place in
    /// the configuration), if the host is empty, or if the port is not valid.
    pub fn from_endpoint(endpoint: &str) -> Result<Self, BadAddress> {
        let (tls, rest) = match endpoint.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some(_) => {
                return Err(bad(without_credentials(endpoint), AddressFault::Scheme));
            }
            None => (false, endpoint),
        };
        if rest.contains('@') {
            return Err(bad(without_credentials(endpoint), AddressFault::Credentials));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(bad(endpoint, AddressFault::Path));
        }
        let (host, port) = split_host_port(rest).map_err(|why| bad(endpoint, why))?;
        Ok(Self {
            tls,
            host: host.to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
        })
    }

    /// Reads a node's `http.publish_address`: `127.0.0.1:9200`, `[::1]:9200`, or `es-1.local/10.0.0.5:9200`
    /// (host name and address; the name is taken, since a certificate is issued for it).
    ///
    /// The text does not include the scheme: nodes publish the same text with TLS and without.
    ///
    /// # Errors
    /// If there is no host or no port.
    pub fn from_publish_address(text: &str, tls: bool) -> Result<Self, BadAddress> {
        let (name, socket) = match text.split_once('/') {
            Some((name, socket)) => (name, socket),
            None => ("", text),
        };
        let (ip, port) = split_host_port(socket).map_err(|why| bad(text, why))?;
        let port = port.ok_or_else(|| bad(text, AddressFault::NoPort))?;
        let host = if name.is_empty() { ip } else { name };
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
        })
    }

    /// Returns `host:port`, with brackets around an IPv6 address: the value of the `Host` header.
    pub fn authority(&self) -> String {
        if self.host.parse::<Ipv6Addr>().is_ok() {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns whether the address leads back to this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}",
            if self.tls { "https" } else { "http" },
            self.authority()
        )
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare v6 address.
fn split_host_port(text: &str) -> Result<(&str, Option<u16>), AddressFault> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(AddressFault::OpenBracket)?;
        host.parse::<Ipv6Addr>().map_err(|_| AddressFault::NoIpv6)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(parse_port(port)?))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(AddressFault::AfterBracket),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (text, None),
    };
    if host.is_empty() {
        return Err(AddressFault::NoHost);
    }
    if host.contains(|c: char| c == ':' || c == '[' || c == ']' || c.is_whitespace() || c.is_control()) {
        return Err(AddressFault::HostCharacter);
    }
    Ok((host, port))
}

fn parse_port(text: &str) -> Result<u16, AddressFault> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(AddressFault::Port),
    }
}

fn bad(text: impl Into<String>, why: AddressFault) -> BadAddress {
    BadAddress {
        text: text.into(),
        why,
    }
}

/// Keeps a password that was typed into a URL out of the error text.
fn without_credentials(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://***@{after}")
        }
        None => endpoint.to_owned(),
    }
}

const DEFAULT_PORT: u16 = 9200;

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> String {
        Address::from_endpoint(text).map_or_else(|e| e.to_string(), |a| a.to_string())
    }

    #[test]
    fn endpoints_are_read_as_users_write_them() {
        assert_eq!(endpoint("https://es-1:9221"), "https://es-1:9221");
        assert_eq!(endpoint("HTTP://es-1:9221/"), "http://es-1:9221");
        assert_eq!(endpoint("es-1"), "http://es-1:9200");
        assert_eq!(endpoint("https://[::1]:9201"), "https://[::1]:9201");
        assert_eq!(endpoint("::1"), "http://[::1]:9200");
        assert_eq!(endpoint("https://[fe80::1]"), "https://[fe80::1]:9200");
    }

    #[test]
    fn endpoints_that_are_none_say_why() {
        for (text, why) in [
            ("ftp://es", "scheme"),
            ("http://", "no host"),
            ("http://es:0", "port"),
            ("http://es:65536", "port"),
            ("http://es:9200/prefix", "path"),
            ("http://[::1:9200", "bracket"),
            ("http://e s:9200", "character"),
            ("http://[es]:9200", "IPv6"),
        ] {
            assert!(endpoint(text).contains(why), "{text}: {}", endpoint(text));
        }
    }

    #[test]
    fn a_password_in_an_endpoint_is_refused_and_not_repeated() {
        let said = endpoint("https://admin:hunter2@es:9200");
        assert!(said.contains("basic_auth") && !said.contains("hunter2"), "{said}");
        let said = endpoint("ftp://admin:hunter2@es:9200");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn publish_addresses_are_read_in_every_form_that_nodes_use() {
        let read = |text| Address::from_publish_address(text, true).map(|a| a.to_string());
        assert_eq!(read("127.0.0.1:9400").unwrap(), "https://127.0.0.1:9400");
        assert_eq!(read("[::1]:9200").unwrap(), "https://[::1]:9200");
        assert_eq!(
            read("es-1.local/10.0.0.5:9200").unwrap(),
            "https://es-1.local:9200"
        );
        assert_eq!(
            read("es-1.local/[fe80::1]:9200").unwrap(),
            "https://es-1.local:9200"
        );
        assert!(read("10.0.0.5").unwrap_err().to_string().contains("no port"));
        assert!(read("").is_err());
    }
}
