//! A registered cluster or gateway, ready to be asked: addresses, TLS and credentials.

mod trust;

use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::{Address, BadAddress, BadConfig, Credentials};
use http::HeaderValue;
use settings::Secret;
use wire::{Origin, TlsError};

use self::trust::Trust;
use crate::store::{ClusterEntry, GatewayEntry, Store, StoreError};

/// The addresses to ask, and the account.
pub(crate) struct Target {
    pub(crate) addresses: Vec<Address>,
    origins: Vec<Origin>,
    pub(crate) authorization: Option<HeaderValue>,
    /// The index of the address that answered last.
    current: AtomicUsize,
}

/// Why a registered entry cannot be asked; the entry itself is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadTarget {
    /// An address is not valid.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The entry has no address.
    #[error("it has no address")]
    NoAddress,
    /// The certificate authority, or the certificate to show, cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Name and password cannot be put into a header.
    #[error(transparent)]
    Credentials(#[from] BadConfig),
    /// The secret cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Target {
    /// Creates the target of a registered cluster, with its stored password.
    pub(crate) fn of_cluster(store: &Store, entry: &ClusterEntry) -> Result<Self, BadTarget> {
        let password = store.cluster_secret(entry)?;
        Self::cluster(entry, password)
    }

    /// Creates the target of a cluster with this password.
    pub(crate) fn cluster(entry: &ClusterEntry, password: Option<Secret>) -> Result<Self, BadTarget> {
        let credentials = match (&entry.username, password) {
            (Some(username), password) => Credentials::Basic {
                username: username.clone(),
                password: password.unwrap_or_default(),
            },
            // A password without a name is an API key.
            (None, Some(key)) => Credentials::ApiKey(key),
            (None, None) => Credentials::None,
        };
        let authorization = credentials.authorization()?;
        let tls = Trust {
            ca_pem: entry.ca_pem.as_deref(),
            client_pem: None,
            verify: entry.verify,
        };
        Self::new(&entry.endpoints, authorization, &tls)
    }

    /// Creates the target of a registered gateway, with its stored secrets.
    pub(crate) fn of_gateway(store: &Store, entry: &GatewayEntry) -> Result<Self, BadTarget> {
        let token = store.gateway_token(entry)?;
        let client_pem = store.gateway_client_pem(entry)?;
        Self::gateway(entry, token, client_pem)
    }

    /// Creates the target of a gateway with this token, and this certificate and key to show to it.
    pub(crate) fn gateway(
        entry: &GatewayEntry,
        token: Option<Secret>,
        client_pem: Option<Secret>,
    ) -> Result<Self, BadTarget> {
        let tls = Trust {
            ca_pem: entry.ca_pem.as_deref(),
            client_pem: client_pem.as_ref(),
            verify: entry.verify,
        };
        Self::new(std::slice::from_ref(&entry.url), bearer(token.as_ref())?, &tls)
    }

    /// Creates the target of a webhook's receiver.
    pub(crate) fn receiver(
        place: String,
        secret: Option<&Secret>,
        ca_pem: Option<&str>,
        verify: bool,
    ) -> Result<Self, BadTarget> {
        let tls = Trust {
            ca_pem,
            client_pem: None,
            verify,
        };
        Self::new(&[place], bearer(secret)?, &tls)
    }

    fn new(
        endpoints: &[String],
        authorization: Option<HeaderValue>,
        trust: &Trust<'_>,
    ) -> Result<Self, BadTarget> {
        let addresses: Vec<Address> = endpoints
            .iter()
            .map(|endpoint| Address::from_endpoint(endpoint))
            .collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(BadTarget::NoAddress);
        }
        let tls = if addresses.iter().any(|address| address.tls) {
            Some(trust.tls()?)
        } else {
            None
        };
        let origin = |address: &Address| match &tls {
            Some(tls) if address.tls => Origin::https(&address.host, address.port, tls.clone()),
            _ => Origin::http(&address.host, address.port),
        };
        let authorization = authorization.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Ok(Self {
            origins: addresses.iter().map(origin).collect(),
            addresses,
            authorization,
            current: AtomicUsize::new(0),
        })
    }

    /// Returns the origins; the one that answered last comes first.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (usize, &Origin)> {
        let (count, first) = (self.origins.len(), self.current.load(Ordering::Relaxed));
        (0..count).map(move |at| {
            let at = (first + at) % count;
            (at, &self.origins[at])
        })
    }

    /// Notes that this origin has answered.
    pub(crate) fn answered(&self, at: usize) {
        self.current.store(at, Ordering::Relaxed);
    }
}

fn bearer(token: Option<&Secret>) -> Result<Option<HeaderValue>, BadTarget> {
    let header = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.expose())));
    let header = header.transpose();
    Ok(header.map_err(|_| BadConfig::Header("authorization".to_owned()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A certificate of no one, for its form.
    const CA: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBdDCCARugAwIBAgIUDkG+gkOuCGwS9nrkB++PUJm7WF8wCgYIKoZIzj0EAwIw\n\
        DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgxMjE1MDhaGA8yMTI2MTEwNDEyMTUw\n\
        OFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNAV\n\
        51f8f5gu/GrHoZIGv3nvDDn2JV++ZDLFBu/yC/BonSKMH9HnBXLBG0vue3mrzu8q\n\
        JJRXjUIBfuUo0FNvduqjUzBRMB0GA1UdDgQWBBSJ4FZ4DVD4uTXCN5m0TieIiaku\n\
        bzAfBgNVHSMEGDAWgBSJ4FZ4DVD4uTXCN5m0TieIiakubzAPBgNVHRMBAf8EBTAD\n\
        AQH/MAoGCCqGSM49BAMCA0cAMEQCIHtPniEIjXEUw0KqaYsO5KZYygRAs8pbynSB\n\
        kXlP19i7AiAN6tChLgpeGAc4MeoXmwL+FjPzdDXyBxOQG8+2OfuJcg==\n\
        -----END CERTIFICATE-----\n\
        ";

    fn origins(ca_pem: Option<&str>, verify: bool) -> Vec<Origin> {
        let entry = ClusterEntry {
            endpoints: vec!["https://a:9200".into(), "https://b:9200".into()],
            ca_pem: ca_pem.map(str::to_owned),
            verify,
            ..ClusterEntry::default()
        };
        Target::cluster(&entry, None).unwrap().origins
    }

    #[test]
    fn targets_of_one_entry_share_connections_and_those_with_another_authority_do_not() {
        assert_eq!(origins(None, true), origins(None, true));
        assert_eq!(origins(Some(CA), true), origins(Some(CA), true));
        for (other, verify) in [(None, true), (Some(CA), false), (None, false)] {
            assert_ne!(origins(Some(CA), true), origins(other, verify));
        }
        let two = format!("{CA}{CA}");
        assert_ne!(origins(Some(CA), true), origins(Some(&two), true));
    }
}
