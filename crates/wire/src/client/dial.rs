//! Connections for protocols other than HTTP/1.1.

use tokio::io::{AsyncRead, AsyncWrite};

use super::connections::connect;
use super::{Origin, SendErrorKind};
use crate::stream::Stream;

/// A connection that bytes are read from and written to.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Connects to an origin, for code that speaks its protocol itself. The origin's TLS says which one that is
/// ([`ClientTls::for_http2`](crate::ClientTls::for_http2)).
///
/// # Errors
/// When there is no connection, or TLS fails.
pub async fn dial(origin: &Origin) -> Result<Box<dyn Duplex>, SendErrorKind> {
    Ok(match connect(origin).await? {
        Stream::Plain(socket) => Box::new(socket),
        Stream::Client(tls) => tls,
        Stream::Server(_) => unreachable!("a client has connected"),
    })
}
