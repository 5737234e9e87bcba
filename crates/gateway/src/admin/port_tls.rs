//! The TLS of the admin port. A reload changes it on the open socket: new connections begin as it says, and
//! those that began otherwise end with the answer that they have under way.

use config::EntryTls;
use parking_lot::Mutex;
use tokio::sync::watch;
use wire::ServerTls;

use crate::front::{CertificateChange, TlsIdentity};
use crate::start_error::{StartError, TlsOwner};

/// How connections begin now.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) tls: Option<ServerTls>,
    /// Grows with each change of what is asked of clients. Another certificate is no such change.
    pub(super) generation: u64,
}

/// The certificate in use, and the terms that the listener follows.
#[derive(Debug)]
pub(crate) struct PortTls {
    identity: Mutex<Option<TlsIdentity>>,
    terms: watch::Sender<Terms>,
}

// === impl PortTls ===

impl PortTls {
    /// Reads the files of the settings, if there are settings.
    ///
    /// # Errors
    /// Returns what the operator has to correct.
    pub(crate) fn load(settings: Option<&EntryTls>) -> Result<Self, StartError> {
        let identity = Self::identity(settings)?;
        let terms = Terms {
            tls: identity.as_ref().map(|identity| identity.tls().clone()),
            generation: 0,
        };
        Ok(Self {
            identity: Mutex::new(identity),
            terms: watch::Sender::new(terms),
        })
    }

    /// Reads the files of new settings, for [`PortTls::put_in_force`].
    ///
    /// # Errors
    /// Returns what the operator has to correct.
    pub(crate) fn identity(settings: Option<&EntryTls>) -> Result<Option<TlsIdentity>, StartError> {
        settings
            .map(|settings| TlsIdentity::load(&TlsOwner::Admin, settings))
            .transpose()
    }

    /// Uses another certificate, or none, for connections from now on.
    pub(crate) fn put_in_force(&self, identity: Option<TlsIdentity>) {
        let mut now = self.identity.lock();
        *now = identity;
        self.renew(now.as_ref());
    }

    /// Loads certificate files that have changed. With `asked`, this includes those that are not reloaded by
    /// themselves.
    pub(crate) fn look(&self, asked: bool) {
        let mut now = self.identity.lock();
        let Some(identity) = now.as_mut().filter(|identity| asked || identity.hot_reload()) else {
            return;
        };
        match identity.look() {
            Ok(CertificateChange::Same) => {}
            Ok(change) => {
                if change == CertificateChange::Authorities {
                    self.renew(Some(identity));
                }
                tracing::info!("certificate of the admin port reloaded");
            }
            Err(error) if identity.is_news(error.to_string()) || asked => {
                tracing::error!(%error, "certificate of the admin port not reloaded");
            }
            Err(_) => {}
        }
    }

    /// Returns the certificate chain that is in use, as PEM.
    pub(super) fn certificate_pem(&self) -> Option<Vec<u8>> {
        let now = self.identity.lock();
        now.as_ref().map(|identity| identity.certificate_pem().to_vec())
    }

    pub(super) fn terms(&self) -> watch::Receiver<Terms> {
        self.terms.subscribe()
    }

    fn renew(&self, identity: Option<&TlsIdentity>) {
        self.terms.send_modify(|terms| {
            terms.tls = identity.map(|identity| identity.tls().clone());
            terms.generation += 1;
        });
    }
}
