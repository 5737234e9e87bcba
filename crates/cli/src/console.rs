//! `tidegate console`: the web page for clusters and gateways. Its options are here in every build; a build
//! without the feature `console` has no server for them.

#[cfg(not(feature = "console"))]
mod absent;
#[cfg(feature = "console")]
mod demo;
#[cfg(feature = "console")]
mod serve;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

#[cfg(not(feature = "console"))]
pub(crate) use absent::run;
#[cfg(feature = "console")]
pub(crate) use serve::run;

/// Run the console, a web page for many clusters and gateways
///
///     tidegate console
///     tidegate console --listen 0.0.0.0:9000 --tls-cert c.pem --tls-key k.pem
///     tidegate console --demo
///
/// The console is a separate process. It asks clusters through their APIs and
/// gateways through their admin API; no write depends on it. The first start prints
/// a link that creates the first user. The console stores the registry (passwords
/// are encrypted with a key in a file beside it), users, texts of the dev tools and
/// the audit log. It never stores a document or an answer of a cluster.
///
/// Exit status: 0 stopped as told, 2 wrong usage, 3 it could not start.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Address and port to listen on; any address beyond this machine needs TLS
    #[arg(long, value_name = "ADDRESS", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// Folder for the console's data (path.data)
    #[arg(long, value_name = "FOLDER", default_value = "data/console")]
    data: PathBuf,
    /// Path below which to serve, for a console behind a proxy
    #[arg(long, value_name = "PATH", default_value = "")]
    base_path: String,
    /// PEM file of the certificate chain; it and the key are loaded again when they change
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Host name that browsers use, besides addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Allow other addresses without TLS: passwords travel in clear text, unless a proxy in front adds
    /// TLS
    #[arg(long)]
    insecure_http: bool,
    /// YAML file of clusters and gateways to register at each start
    #[arg(long, value_name = "FILE")]
    register: Option<PathBuf>,
    /// YAML file of logins at an OpenID provider: issuer, client, and the roles that its groups give
    #[arg(long, value_name = "FILE")]
    oidc: Option<PathBuf>,
    /// Also start a fake cluster, a gateway and load, already registered; nothing of it is kept
    #[arg(long, conflicts_with_all = ["data", "register"])]
    demo: bool,
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9000));
