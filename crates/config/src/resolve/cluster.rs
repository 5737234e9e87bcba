//! Clusters: endpoints, accounts, TLS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use settings::Secret;

use super::{Resolver, item_path};
use crate::file::{ElasticsearchFile, FilterFile, FlowFile, ForwardFile, SchemeFile};
use crate::runtime::*;

impl Resolver<'_> {
    pub(super) fn clusters(
        &mut self,
        clusters: &[ElasticsearchFile],
        flows: &[FlowFile],
    ) -> BTreeMap<Arc<str>, Arc<Cluster>> {
        self.names(
            "elasticsearch",
            clusters.iter().map(|cluster| cluster.name.as_str()),
        );
        let mut resolved = BTreeMap::new();
        for (at, cluster) in clusters.iter().enumerate() {
            let path = format!("elasticsearch[{at}]");
            let (endpoints, account_in_url) = self.endpoints(&path, cluster);
            let credentials = self.credentials(&path, cluster, account_in_url);
            let tls = if cluster.enabled {
                self.cluster_tls(&path, cluster)
            } else {
                ClusterTls::default()
            };
            if let Some(first) = endpoints.first()
                && endpoints.iter().any(|endpoint| endpoint.tls != first.tls)
            {
                self.error(
                    &path,
                    "some endpoints are `http` and some `https`: make them the same",
                );
            }
            if cluster.anonymous == Anonymous::UseGatewayAccount && credentials.is_none() {
                let message = "there is no gateway account to use; add `basic_auth` or `api_key`";
                self.error(&format!("{path}.anonymous"), message);
            }
            let interval = cluster.discovery.refresh.interval.0;
            self.refresh_interval(&format!("{path}.discovery"), interval);
            let interval = self
                .wanted_intervals(cluster, flows)
                .into_iter()
                .fold(interval, Duration::min);
            if cluster.discovery.timeout.0.is_zero() {
                self.error(&format!("{path}.discovery.timeout"), "must be more than 0");
            }
            if !cluster.enabled {
                continue;
            }
            let name: Arc<str> = cluster.name.as_str().into();
            resolved.insert(
                name.clone(),
                Arc::new(Cluster {
                    name,
                    endpoints,
                    credentials,
                    anonymous: cluster.anonymous,
                    tls,
                    discovery: Discovery {
                        enabled: cluster.discovery.enabled,
                        interval: cluster.discovery.refresh.enabled.then_some(interval),
                        timeout: cluster.discovery.timeout.0,
                    },
                }),
            );
        }
        resolved
    }

    fn refresh_interval(&mut self, path: &str, interval: Duration) {
        if interval.as_millis() < 100 {
            self.error(&format!("{path}.refresh.interval"), "must be 100ms at least");
        }
    }

    /// Returns the intervals at which the filters of this cluster want its nodes to be looked at.
    fn wanted_intervals(&mut self, cluster: &ElasticsearchFile, flows: &[FlowFile]) -> Vec<Duration> {
        let mut forwards = Vec::new();
        for (at, flow) in flows.iter().enumerate() {
            forwards_of(&format!("flow[{at}].filter"), &flow.filter, &mut forwards);
        }
        let mut wanted = Vec::new();
        for (path, forward) in forwards {
            let refresh = &forward.refresh;
            let Some(interval) = refresh.interval.filter(|_| forward.elasticsearch == cluster.name) else {
                continue;
            };
            self.refresh_interval(&path, interval.0);
            let why = match (cluster.discovery.enabled, cluster.discovery.refresh.enabled) {
                _ if !refresh.enabled => "has no effect beside `enabled: false`".to_owned(),
                (true, true) => {
                    wanted.push(interval.0);
                    continue;
                }
                (false, _) => format!(
                    "has no effect: the cluster `{}` has `discovery.enabled: false`",
                    cluster.name
                ),
                (true, false) => format!(
                    "has no effect: the cluster `{}` has `discovery.refresh.enabled: false`",
                    cluster.name
                ),
            };
            self.warning(&format!("{path}.refresh.interval"), why);
        }
        wanted
    }

    /// Returns the endpoints, and the account in a URL.
    fn endpoints(&mut self, path: &str, cluster: &ElasticsearchFile) -> (Vec<Endpoint>, Option<Credentials>) {
        let scheme = match cluster.schema {
            SchemeFile::Http => "http",
            SchemeFile::Https => "https",
        };
        let mut written: Vec<(String, String)> = Vec::new();
        written.extend(
            cluster
                .endpoint
                .iter()
                .map(|url| (format!("{path}.endpoint"), url.clone())),
        );
        for (at, url) in cluster.endpoints.0.iter().enumerate() {
            written.push((
                item_path(path, "endpoints", at, cluster.endpoints.0.len()),
                url.clone(),
            ));
        }
        let hosts = cluster.host.iter().map(|host| (format!("{path}.host"), host));
        let many = cluster.hosts.0.iter().enumerate();
        let many = many.map(|(at, host)| (item_path(path, "hosts", at, cluster.hosts.0.len()), host));
        for (path, host) in hosts.chain(many) {
            let url = if host.contains("://") {
                host.clone()
            } else {
                format!("{scheme}://{host}")
            };
            written.push((path, url));
        }
        if written.is_empty() {
            self.error(path, "`endpoints` is missing");
        }
        let (mut endpoints, mut account): (Vec<Endpoint>, _) = (Vec::new(), None);
        for (path, url) in written {
            match endpoint(&url) {
                // A node that is given by two keys is still one node.
                Ok((endpoint, _)) if endpoints.contains(&endpoint) => {}
                Ok((endpoint, credentials)) => {
                    endpoints.push(endpoint);
                    account = account.or(credentials);
                }
                Err(why) => self.error(&path, why.to_string()),
            }
        }
        (endpoints, account)
    }

    fn credentials(
        &mut self,
        path: &str,
        cluster: &ElasticsearchFile,
        in_url: Option<Credentials>,
    ) -> Option<Credentials> {
        let basic = cluster.basic_auth.as_ref().map(|auth| Credentials::Basic {
            username: auth.username.clone(),
            password: auth.password.clone(),
        });
        let key = cluster.api_key.as_ref().filter(|key| !key.is_empty()).map(|key| {
            let encoded = if key.expose().contains(':') {
                Secret::new(STANDARD.encode(key.expose()))
            } else {
                key.clone()
            };
            Credentials::ApiKey(encoded)
        });
        let all: Vec<Credentials> = [basic, key, in_url].into_iter().flatten().collect();
        if all.len() > 1 {
            self.error(path, "has more than one account: give one of `basic_auth`, `api_key`, `user:password@` in the endpoint");
        }
        if let Some(Credentials::Basic { username, .. }) = all.first()
            && username.contains(':')
        {
            self.error(
                &format!("{path}.basic_auth.username"),
                "holds a `:`, which basic authentication can't send",
            );
        }
        all.into_iter().next()
    }

    fn cluster_tls(&mut self, path: &str, cluster: &ElasticsearchFile) -> ClusterTls {
        let tls = &cluster.tls;
        self.tls(
            &format!("{path}.tls"),
            tls.insecure_skip_verify,
            &tls.ca_file,
            (&tls.cert_file, &tls.key_file),
            "the cluster",
        )
    }

    /// Returns how the certificates of `whom` are checked, and which certificate `whom` is shown.
    pub(super) fn tls(
        &mut self,
        path: &str,
        insecure_skip_verify: bool,
        ca_file: &Option<String>,
        shown: (&Option<String>, &Option<String>),
        whom: &str,
    ) -> ClusterTls {
        if insecure_skip_verify && ca_file.is_some() {
            self.error(
                path,
                "`ca_file` is of no use with `insecure_skip_verify: true`: remove one of them",
            );
        }
        if insecure_skip_verify {
            let message = format!(
                "any certificate is taken: whoever sits between here and {whom} can read and change everything; give `ca_file` instead"
            );
            self.warning(&format!("{path}.insecure_skip_verify"), message);
        }
        let client_certificate = match shown {
            (Some(cert), Some(key)) => Some((
                self.file(&format!("{path}.cert_file"), cert),
                self.file(&format!("{path}.key_file"), key),
            )),
            (None, None) => None,
            (cert, _) => {
                let missing = if cert.is_some() { "key_file" } else { "cert_file" };
                self.error(
                    path,
                    format!("`{missing}` is missing: certificate and key go together"),
                );
                None
            }
        };
        ClusterTls {
            insecure_skip_verify,
            ca_file: ca_file
                .as_ref()
                .map(|name| self.file(&format!("{path}.ca_file"), name)),
            client_certificate,
        }
    }
}

/// What is wrong with a cluster's URL. The message follows its key, and never repeats the URL, which may
/// contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEndpoint {
    #[error("has no `http://` or `https://` before it")]
    NoScheme,
    #[error("begins with neither `http://` nor `https://`")]
    Scheme,
    #[error("is not a URL of a node: it holds `?`, `#` or a space")]
    Query,
    #[error("has a path after the host: nodes are reached at `/` only")]
    Path,
    #[error("has no port from 1 to 65535 after the host")]
    Port,
    #[error("has a bad IPv6 address")]
    Ipv6,
    #[error("has no valid host name")]
    Host,
}

/// Parses a cluster's URL: `http[s]://[user:password@]host[:port]`. The default port is 9200.
///
/// # Errors
/// Returns what is wrong with the URL.
pub(crate) fn endpoint(written: &str) -> Result<(Endpoint, Option<Credentials>), BadEndpoint> {
    let (endpoint, prefix, account) = url(written, PORT)?;
    match prefix.trim_matches('/').is_empty() {
        true => Ok((endpoint, account)),
        false => Err(BadEndpoint::Path),
    }
}

/// Parses a URL: `http[s]://[user:password@]host[:port][/path]`. Returns the path, too.
///
/// # Errors
/// Returns what is wrong with the URL.
pub(super) fn url(
    url: &str,
    default_port: u16,
) -> Result<(Endpoint, &str, Option<Credentials>), BadEndpoint> {
    let (scheme, rest) = url.trim().split_once("://").ok_or(BadEndpoint::NoScheme)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return Err(BadEndpoint::Scheme),
    };
    if rest.contains(['?', '#']) || rest.contains(char::is_whitespace) {
        return Err(BadEndpoint::Query);
    }
    let (authority, prefix) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let (account, address) = match authority.rsplit_once('@') {
        Some((account, address)) => (Some(account), address),
        None => (None, authority),
    };
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.contains(']') => (
            host,
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or(BadEndpoint::Port)?,
        ),
        _ => (address, default_port),
    };
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner
            .parse::<std::net::Ipv6Addr>()
            .map(|ip| ip.to_string())
            .map_err(|_| BadEndpoint::Ipv6)?,
        None if host.is_empty()
            || !host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) =>
        {
            return Err(BadEndpoint::Host);
        }
        None => host.to_owned(),
    };
    let credentials = account.map(|account| {
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text)
                .decode_utf8_lossy()
                .into_owned()
        };
        let (username, password) = account.split_once(':').unwrap_or((account, ""));
        Credentials::Basic {
            username: decode(username),
            password: Secret::new(decode(password)),
        }
    });
    Ok((
        Endpoint {
            tls,
            host: host.into(),
            port,
        },
        prefix,
        credentials,
    ))
}

/// Collects all `elasticsearch` filters of a flow, with their paths.
fn forwards_of<'f>(path: &str, filters: &'f [FilterFile], out: &mut Vec<(String, &'f ForwardFile)>) {
    for (at, filter) in filters.iter().enumerate() {
        let path = format!("{path}[{at}]");
        if let Some(forward) = &filter.elasticsearch {
            out.push((format!("{path}.elasticsearch"), forward));
        }
        for (key, below) in [("then", &filter.then), ("else", &filter.r#else)] {
            forwards_of(
                &format!("{path}.{key}"),
                below.as_deref().unwrap_or_default(),
                out,
            );
        }
    }
}

/// The port of the servers' HTTP interface.
const PORT: u16 = 9200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_whole() {
        let (endpoint, credentials) = endpoint("https://ad%40min:p%3Ass@es.example:9243/").unwrap();
        assert_eq!(endpoint.to_string(), "https://es.example:9243");
        assert_eq!(
            credentials,
            Some(Credentials::Basic {
                username: "ad@min".into(),
                password: Secret::new("p:ss")
            })
        );
        for (url, shown) in [
            ("http://127.0.0.1", "http://127.0.0.1:9200"),
            ("HTTP://es", "http://es:9200"),
            ("http://[::1]:1", "http://[::1]:1"),
            ("http://[::1]", "http://[::1]:9200"),
            ("http://es:9200/", "http://es:9200"),
        ] {
            assert_eq!(super::endpoint(url).unwrap().0.to_string(), shown, "{url}");
        }
    }

    #[test]
    fn broken_urls_are_refused_without_being_repeated() {
        for url in [
            "es:9200",
            "ftp://secret",
            "http://",
            "http://secret:99999",
            "http://:9200",
            "http://[zz]:1",
            "http://a:secret@",
            "http://es?secret",
            "http://es/secret",
            "http://es secret",
            "http://es:0",
            "http://sécret",
        ] {
            let error = endpoint(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }
}
