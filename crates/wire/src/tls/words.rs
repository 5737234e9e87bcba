//! TLS failures in words for the person who has to repair them.

use std::io;

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage};

/// Returns why a handshake failed, from the point of view of this side.
pub(crate) fn of_handshake(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(error) => of(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the other side closed the connection during the handshake: does it speak TLS at this port?"
                .to_owned()
        }
        None => error.to_string(),
    }
}

/// Returns why a PEM text could not be read. The parser's own words quote the text, and so a private key that
/// has lost its line breaks.
pub(crate) fn of_pem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::NoItemsFound => {
            "no private key found; the file is to have a part that begins with `-----BEGIN PRIVATE KEY-----`"
        }
        pem::Error::MissingSectionEnd { .. } => {
            "no PEM: a part has a `-----BEGIN …-----` and no `-----END …-----` on a line of its own; have the line \
             breaks been lost?"
        }
        pem::Error::IllegalSectionStart { .. } => {
            "no PEM: a line begins with `-----BEGIN ` and does not end with `-----`; have the line breaks been lost?"
        }
        pem::Error::Base64Decode(_) => "no PEM: a part is not in base64",
        _ => "no PEM: it cannot be read",
    }
}

/// Returns rustls's message, in other words where its own are meant for programmers.
pub(crate) fn of(error: &Error) -> String {
    let told = match error {
        Error::InvalidCertificate(certificate) => return of_certificate(certificate),
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            "the private key does not belong to the certificate: they are of different pairs"
        }
        // A server that speaks HTTP in clear text sends bytes that are no TLS message of any kind.
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => "the other side does not speak TLS at this port: should the URL begin with http://?",
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the other side wants a client certificate, and got none"
        }
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => {
            "the other side does not trust the certificate that it was shown"
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "the other side speaks no version of TLS from 1.2 on"
        }
        other => return other.to_string(),
    };
    told.to_owned()
}

fn of_certificate(error: &CertificateError) -> String {
    let told = match error {
        CertificateError::UnknownIssuer => {
            "no authority that is trusted here has signed the certificate: name the one that did, as the CA to trust"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired (or this machine's clock is wrong)"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet (or this machine's clock is wrong)"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host name than the one that is called"
        }
        CertificateError::Revoked => "the certificate has been revoked",
        // webpki's errors for which rustls has no words of its own.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate is an authority's own (CA:TRUE), which no server may show: sign one for the server with it"
        }
        CertificateError::Other(other) if other.to_string().contains("UnsupportedCertVersion") => {
            "the certificate is of X.509's version 1, and version 3 is needed: sign it anew, with extensions"
        }
        other => return Error::InvalidCertificate(other.clone()).to_string(),
    };
    told.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_in_words_for_people() {
        for (error, told) in [
            (
                Error::InconsistentKeys(InconsistentKeys::KeyMismatch),
                "does not belong",
            ),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "as the CA to trust",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "http://",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "client certificate",
            ),
        ] {
            let words = of_handshake(&io::Error::new(io::ErrorKind::InvalidData, error));
            assert!(words.contains(told), "{words}");
        }
    }
}
