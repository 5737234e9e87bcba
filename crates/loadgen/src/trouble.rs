//! Explains why a request got no answer, in words that say what to do.

use wire::SendErrorKind;

/// Describes an error in words; for a certificate that is not trusted, the words include the ways out.
pub(crate) fn in_words(kind: &SendErrorKind) -> String {
    match kind {
        SendErrorKind::Tls(error) if is_untrusted(error) => {
            "the server's certificate is not trusted: no authority that is trusted here has signed it; name the one \
             that did with --ca FILE, or check no certificates with --insecure"
                .to_owned()
        }
        other => other.to_string(),
    }
}

fn is_untrusted(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnknownIssuer
        ))
    )
}
