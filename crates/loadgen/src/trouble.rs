//! Why a request got no answer, in words that say what to do.

use wire::SendErrorKind;

/// In words; a certificate that is not trusted comes with the ways out.
pub(crate) fn in_words(kind: &SendErrorKind) -> String {
    match kind {
        SendErrorKind::Tls(error) if is_about_the_certificate(error) => format!(
            "the server's certificate is not trusted: {error}; name the authority that signed it with -ca FILE, \
             or check no certificates with -insecure"
        ),
        other => other.to_string(),
    }
}

fn is_about_the_certificate(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}
