//! TLS failures in words for the person who has to repair them.

use std::io;

use rustls::pki_types::pem;
use rustls::{AlertDescription, CertificateError, Error, InconsistentKeys, InvalidMessage};

/// A certificate's RSA key is too short.
#[derive(Debug, thiserror::Error)]
#[error("the certificate's RSA key has {0} bits, and 2048 is the least that is safe: make a longer key")]
pub(super) struct ShortKey(pub(super) usize);

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
        Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the two sides have no cipher, or no kind of signature, in common: does the other one allow old ones \
             alone, such as DHE or SHA-1?"
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
        CertificateError::BadSignature => {
            "a signature does not fit its key, or an authority's RSA key has fewer than 2048 bits, which is not safe"
        }
        CertificateError::Revoked => "the certificate has been revoked",
        CertificateError::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id,
            ..
        } if is_sha1(signature_algorithm_id) => {
            "the certificate is signed with SHA-1, which is not safe: have it signed anew, with SHA-256"
        }
        CertificateError::Other(other) if other.0.is::<ShortKey>() => return other.to_string(),
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

/// Whether this algorithm (DER, without its outer tag) is `sha1WithRSAEncryption` (RFC 3279, 2.2.1) or
/// `ecdsa-with-SHA1` (2.2.3).
fn is_sha1(algorithm: &[u8]) -> bool {
    let both: [&[u8]; 2] = [
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05",
        b"\x2a\x86\x48\xce\x3d\x04\x01",
    ];
    let begins_with = |id: &&[u8]| algorithm.get(2..).is_some_and(|rest| rest.starts_with(id));
    both.iter().any(begins_with)
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
                Error::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmContext {
                    signature_algorithm_id: b"\x06\x07\x2a\x86\x48\xce\x3d\x04\x01".to_vec(),
                    supported_algorithms: Vec::new(),
                }),
                "SHA-1",
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
