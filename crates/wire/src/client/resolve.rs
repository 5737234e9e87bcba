//! A node's addresses. Names are looked up on a thread of their own, since the system's resolver blocks. If
//! the system has no thread left (a bound on their number), that is an error of this connection, whereas the
//! runtime's own lookup would panic.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::guard::{self, Work};

/// Connects to the first address of a host that answers.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return TcpStream::connect(SocketAddr::new(address, port)).await;
    }
    TcpStream::connect(&*addresses(host, port).await?).await
}

async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = oneshot::channel();
    let host = host.to_owned();
    let look_up = move || {
        let found = (&*host, port).to_socket_addrs().map(Iterator::collect);
        // The caller may have given up.
        let _ = tell.send(found);
    };
    guard::thread("resolve", Work::Other, look_up)?;
    let gone = || io::Error::other("looking up the name failed");
    told.await.map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_addresses_lead_to_the_same_place() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let stream = connect(host, port).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().port(), port);
        }
        assert!(connect("no.such.name.invalid", port).await.is_err());
    }
}
