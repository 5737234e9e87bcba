//! A cluster or gateway as a form or a file describes it, checked before it is stored.

use cluster::{Address, BadAddress};
use serde::{Deserialize, Deserializer};
use settings::Secret;
use wire::{ClientTls, ClientTlsConfig, Roots, TlsError};

use crate::secrets::row_id;
use crate::store::{ClusterEntry, GatewayEntry};

/// A described cluster. An absent field leaves the stored value as it is; `null` removes it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ClusterDraft {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) endpoints: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) username: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) password: Option<Option<Secret>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) ca_pem: Option<Option<String>>,
    pub(crate) verify: Option<bool>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) colour: Option<Option<String>>,
    pub(crate) read_only: Option<bool>,
    pub(crate) protected: Option<bool>,
}

/// A described gateway, with the same rules.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct GatewayDraft {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) url: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) token: Option<Option<Secret>>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) ca_pem: Option<Option<String>>,
    /// A certificate with its key, for a gateway that asks for one.
    #[serde(default, deserialize_with = "given")]
    pub(crate) client_pem: Option<Option<Secret>>,
    pub(crate) verify: Option<bool>,
}

/// Why a description is refused, as text that follows the name of the field.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadDraft {
    #[error("name: 1 to {NAME_CHARS_MAX} characters are wanted")]
    Name,
    #[error("endpoints: 1 to {ENDPOINTS_MAX} addresses are wanted")]
    Endpoints,
    #[error("endpoints: {0}")]
    Endpoint(BadAddress),
    #[error("url: {0}")]
    Url(BadAddress),
    #[error("colour: `#rrggbb` is wanted")]
    Colour,
    #[error("client_pem: {0}")]
    ClientPem(#[from] TlsError),
}

/// Distinguishes `null` from an absent field.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl ClusterDraft {
    /// Applies the draft to the stored entry, or to an empty one. An error says what is wrong with the draft.
    pub(crate) fn on(&self, stored: Option<ClusterEntry>) -> Result<ClusterEntry, BadDraft> {
        let mut entry = stored.unwrap_or_else(|| ClusterEntry {
            id: row_id(),
            verify: true,
            ..ClusterEntry::default()
        });
        if let Some(name) = &self.name {
            entry.name = name.trim().to_owned();
        }
        if let Some(endpoints) = &self.endpoints {
            entry.endpoints = endpoints.iter().map(|one| one.trim().to_owned()).collect();
        }
        if let Some(username) = &self.username {
            entry.username = username.clone().filter(|name| !name.is_empty());
        }
        if let Some(ca_pem) = &self.ca_pem {
            entry.ca_pem = ca_pem.clone().filter(|pem| !pem.trim().is_empty());
        }
        if let Some(colour) = &self.colour {
            entry.colour = colour.clone();
        }
        entry.verify = self.verify.unwrap_or(entry.verify);
        entry.read_only = self.read_only.unwrap_or(entry.read_only);
        entry.protected = self.protected.unwrap_or(entry.protected);
        check_name(&entry.name)?;
        if entry.endpoints.is_empty() || entry.endpoints.len() > ENDPOINTS_MAX {
            return Err(BadDraft::Endpoints);
        }
        for endpoint in &entry.endpoints {
            Address::from_endpoint(endpoint).map_err(BadDraft::Endpoint)?;
        }
        if entry.colour.as_deref().is_some_and(|colour| !is_colour(colour)) {
            return Err(BadDraft::Colour);
        }
        Ok(entry)
    }

    /// Returns the change of the stored password: none, removal, or a new password.
    pub(crate) fn secret(&self) -> Option<Option<&Secret>> {
        secret_of(&self.password)
    }
}

impl GatewayDraft {
    /// Applies the draft to the stored entry, or to an empty one. An error says what is wrong with the draft.
    pub(crate) fn on(&self, stored: Option<GatewayEntry>) -> Result<GatewayEntry, BadDraft> {
        let mut entry = stored.unwrap_or_else(|| GatewayEntry {
            id: row_id(),
            verify: true,
            ..GatewayEntry::default()
        });
        if let Some(name) = &self.name {
            entry.name = name.trim().to_owned();
        }
        if let Some(url) = &self.url {
            entry.url = url.trim().to_owned();
        }
        if let Some(ca_pem) = &self.ca_pem {
            entry.ca_pem = ca_pem.clone().filter(|pem| !pem.trim().is_empty());
        }
        entry.verify = self.verify.unwrap_or(entry.verify);
        check_name(&entry.name)?;
        Address::from_endpoint(&entry.url).map_err(BadDraft::Url)?;
        Ok(entry)
    }

    /// Returns the change of the stored token: none, removal, or a new token.
    pub(crate) fn token(&self) -> Option<Option<&Secret>> {
        secret_of(&self.token)
    }

    /// Checks the certificate and its key, if there are new ones, before they are kept.
    pub(crate) fn check_client_pem(&self) -> Result<(), BadDraft> {
        if let Some(Some(pem)) = self.client_pem() {
            let pem = pem.expose().as_bytes().to_vec();
            ClientTls::new(&ClientTlsConfig {
                roots: Roots::Native,
                // Nobody is called with it, so no authorities are read.
                insecure: true,
                identity_pem: Some((pem.clone(), pem)),
            })?;
        }
        Ok(())
    }

    /// Returns the change of the stored certificate and key in the same way.
    pub(crate) fn client_pem(&self) -> Option<Option<&Secret>> {
        secret_of(&self.client_pem)
    }
}

/// An empty secret means removal.
fn secret_of(given: &Option<Option<Secret>>) -> Option<Option<&Secret>> {
    let given = given.as_ref()?;
    Some(given.as_ref().filter(|secret| !secret.is_empty()))
}

fn check_name(name: &str) -> Result<(), BadDraft> {
    let fits =
        !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.chars().any(char::is_control);
    fits.then_some(()).ok_or(BadDraft::Name)
}

fn is_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#');
    digits.is_some_and(|digits| digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

const NAME_CHARS_MAX: usize = 100;
const ENDPOINTS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_stays_and_null_removes() {
        let draft: ClusterDraft = serde_json::from_str(
            r##"{"name": "prod", "endpoints": ["https://es:9200"], "username": "ada", "password": "x", "colour": "#ff0000"}"##,
        )
        .unwrap();
        let entry = draft.on(None).unwrap();
        assert!(entry.verify);
        assert_eq!(draft.secret().unwrap().unwrap().expose(), "x");
        let draft: ClusterDraft =
            serde_json::from_str(r#"{"username": null, "password": null, "read_only": true}"#).unwrap();
        let changed = draft.on(Some(entry.clone())).unwrap();
        assert_eq!((&*changed.name, &changed.colour), ("prod", &entry.colour));
        assert!(changed.read_only && changed.username.is_none());
        assert_eq!(draft.secret(), Some(None));
        assert_eq!(ClusterDraft::default().secret(), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        let refused = |json: &str| {
            serde_json::from_str::<ClusterDraft>(json)
                .unwrap()
                .on(None)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(r#"{"endpoints": ["http://a:1"]}"#).starts_with("name: "));
        assert!(refused(r#"{"name": "a"}"#).starts_with("endpoints: "));
        let with_password = refused(r#"{"name": "a", "endpoints": ["http://u:hunter2@a:1"]}"#);
        assert!(with_password.starts_with("endpoints: ") && !with_password.contains("hunter2"));
        assert!(
            refused(r#"{"name": "a", "endpoints": ["http://a:1"], "colour": "red"}"#).starts_with("colour: ")
        );
    }
}
