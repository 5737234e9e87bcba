//! A compiled request of the file.

use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::condition::{Condition, Field};
use crate::slot::Slot;
use crate::template::Template;
use crate::variable::{Draws, Need, Variable, VariableKind};

/// A compiled request: rendering it only copies.
#[derive(Debug)]
pub(crate) struct Request {
    /// Method and path as the file has them.
    pub(crate) name: String,
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    pub(crate) body: Option<Body>,
    /// How often the request is sent in each round.
    pub(crate) times: u32,
    /// The variables that its runtime variables draw from.
    pub(crate) once: Box<[u16]>,
    /// The numbers of values that rendering the request draws from numbered variables.
    pub(crate) needs: Box<[Need]>,
    /// The condition that its answer must meet.
    pub(crate) assertion: Option<Condition>,
    /// The fields of its answer that later requests of the same user may use.
    pub(crate) register: Box<[(u16, Field)]>,
    /// How long the user sleeps after the request.
    pub(crate) sleep: Option<Duration>,
}

/// The address of a request.
#[derive(Debug)]
pub(crate) enum Url {
    /// The server is always the same; the rest, beginning with `/`, may vary.
    Fixed { server: Server, target: Template },
    /// The server varies too.
    Moving(Template),
}

/// A server's name and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The headers of a request, without those that frame it.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    pub(crate) fixed: HeaderMap,
    pub(crate) moving: Vec<(HeaderName, Template)>,
    /// User and password, where one of them has variables.
    pub(crate) account: Option<(Template, Template)>,
}

/// The body of a request: one text, repeated.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) text: Template,
    pub(crate) repeat: u32,
    /// The variables that its runtime variables draw from, once per repetition.
    pub(crate) once: Box<[u16]>,
    /// No variable stands in the place of an action, so every repetition has as many operations as the first.
    pub(crate) uniform: bool,
}

// === impl Body ===

impl Body {
    /// Appends the body, and returns the length of the first repetition.
    pub(crate) fn render(&self, draws: &mut Draws, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        draws.begin_line(&self.once);
        self.text.render(draws, out);
        let first = out.len() - start;
        for _ in 1..self.repeat {
            draws.begin_line(&self.once);
            self.text.render(draws, out);
        }
        first
    }
}

// === impl Headers ===

impl Headers {
    /// Whether any of the headers has variables.
    pub(crate) fn vary(&self) -> bool {
        !self.moving.is_empty() || self.account.is_some()
    }

    /// Returns the headers of one request, based on `fixed`. A value that is not valid in a header is left
    /// out.
    pub(crate) fn render(&self, fixed: &HeaderMap, draws: &mut Draws) -> HeaderMap {
        let mut headers = fixed.clone();
        let mut text = Vec::new();
        for (name, template) in &self.moving {
            text.clear();
            template.render(draws, &mut text);
            if let Ok(value) = HeaderValue::from_bytes(&text) {
                headers.append(name.clone(), value);
            }
        }
        if let Some((user, password)) = &self.account {
            text.clear();
            user.render(draws, &mut text);
            text.push(b':');
            password.render(draws, &mut text);
            headers.insert(AUTHORIZATION, basic(&text));
        }
        headers
    }
}

/// Returns the value of `Authorization` for `user:password`.
pub(crate) fn basic(account: &[u8]) -> HeaderValue {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(account);
    let mut value = HeaderValue::try_from(format!("Basic {text}")).expect("base 64 is text of a header");
    value.set_sensitive(true);
    value
}

/// Why a URL is wrong, as the end of a sentence that begins with its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no `://`.
    #[error("has no scheme: write `http://` or `https://` before it")]
    NoScheme,
    /// A scheme other than http and https.
    #[error("has the scheme `{0}`; only http and https are supported")]
    Scheme(String),
    /// The URL has no host, or its port is not a port.
    #[error("has no server in `{0}`")]
    NoServer(String),
}

// === impl Server ===

impl Server {
    /// Returns the server of an absolute URL, where its path begins, and the account in it, if any.
    ///
    /// # Errors
    /// What is wrong with the URL, as the end of a sentence that begins with its name.
    pub(crate) fn of(url: &str) -> Result<(Server, usize, Option<&str>), UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::NoScheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => {
                return Err(UrlError::Scheme(scheme.to_owned()));
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority = &rest[..end];
        let (account, authority) = match authority.rsplit_once('@') {
            Some((account, authority)) => (Some(account), authority),
            None => (None, authority),
        };
        let wrong = || UrlError::NoServer(authority.to_owned());
        let parsed: http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        if parsed.host().is_empty() {
            return Err(wrong());
        }
        let port = match authority[parsed.host().len()..].strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => [80, 443][usize::from(tls)],
        };
        let server = Server {
            tls,
            host: parsed.host().to_owned(),
            port,
        };
        Ok((server, scheme.len() + 3 + end, account))
    }
}

/// Returns what a whole request draws from numbered variables.
pub(crate) fn needs(
    variables: &[Variable],
    texts: &[&Template],
    once: &[u16],
    body: Option<&Body>,
) -> Box<[Need]> {
    let mut draws = vec![0_u64; variables.len()];
    let mut count = |slot: Slot, times: u64| {
        if let Slot::Variable(variable) = slot {
            match &variables[usize::from(variable)].kind {
                VariableKind::Array(array) => draws[usize::from(array.of)] += times * u64::from(array.size),
                _ => draws[usize::from(variable)] += times,
            }
        }
    };
    texts
        .iter()
        .flat_map(|text| text.slots())
        .for_each(|slot| count(slot, 1));
    once.iter()
        .for_each(|variable| count(Slot::Variable(*variable), 1));
    if let Some(body) = body {
        let times = u64::from(body.repeat);
        body.text.slots().for_each(|slot| count(slot, times));
        body.once
            .iter()
            .for_each(|variable| count(Slot::Variable(*variable), times));
    }
    draws
        .into_iter()
        .enumerate()
        .filter(|(at, draws)| {
            *draws > 0
                && matches!(
                    variables[*at].kind,
                    VariableKind::Sequence(_) | VariableKind::Uuid
                )
        })
        .map(|(at, draws)| Need {
            variable: at as u16,
            draws,
        })
        .collect()
}

/// Escapes what may not stand in a request line; the rest, `%` included, stays as it was written.
pub(crate) fn escape_target(target: &mut Vec<u8>) {
    // A fragment is the client's business.
    if let Some(fragment) = memchr::memchr(b'#', target) {
        target.truncate(fragment);
    }
    if is_plain_target(target) {
        return;
    }
    let mut out = Vec::with_capacity(target.len() + 16);
    for byte in target.iter() {
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    *target = out;
}

/// Whether a target can be sent as it is.
pub(crate) fn is_plain_target(target: &[u8]) -> bool {
    target.iter().all(|byte| is_plain(*byte) && *byte != b'#')
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
}

/// Whether a target is that of a bulk request.
pub(crate) fn is_bulk(target: &[u8]) -> bool {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    path == b"_bulk" || path.ends_with(b"/_bulk") || path.ends_with(b"/_bulk/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Result<(String, u16, bool, usize), UrlError> {
        Server::of(url).map(|(server, at, _)| (server.host, server.port, server.tls, at))
    }

    #[test]
    fn servers_are_read_from_urls() {
        assert_eq!(server("http://a:9200/x"), Ok(("a".into(), 9200, false, 13)));
        assert_eq!(server("https://a?q"), Ok(("a".into(), 443, true, 9)));
        assert_eq!(server("http://[::1]:80"), Ok(("[::1]".into(), 80, false, 15)));
        for wrong in [
            "a:9200/x",
            "ftp://a",
            "http:///x",
            "http://a:99999/",
            "http://a b/",
        ] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Server::of("http://u:p@a/x").unwrap().2, Some("u:p"));
    }

    #[test]
    fn targets_are_escaped_where_they_must_be() {
        let escaped = |text: &str| {
            let mut target = text.as_bytes().to_vec();
            escape_target(&mut target);
            String::from_utf8(target).unwrap()
        };
        assert_eq!(
            escaped("/i/_search?q=name:a b&x=%20#f"),
            "/i/_search?q=name:a%20b&x=%20"
        );
        assert_eq!(escaped("/ü\n"), "/%C3%BC%0A");
    }

    #[test]
    fn bulk_requests_are_known_by_their_path() {
        assert!(is_bulk(b"/_bulk") && is_bulk(b"/a/_bulk?pretty") && is_bulk(b"/a/b/_bulk"));
        assert!(!is_bulk(b"/a_bulk") && !is_bulk(b"/_search?x=/_bulk"));
    }
}
