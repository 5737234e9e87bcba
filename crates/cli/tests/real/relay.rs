//! An address that leads to whichever server it is told to, as a cluster's address does for its clients.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;

/// Copies bytes between its clients and a server; a change of server cuts all connections.
pub(crate) struct Relay {
    address: String,
    state: Arc<Mutex<Forwarding>>,
}

struct Forwarding {
    target: String,
    open: Vec<TcpStream>,
}

impl Relay {
    pub(crate) fn to(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(Mutex::new(Forwarding {
            target: target.to_owned(),
            open: Vec::new(),
        }));
        let shared = state.clone();
        // The thread ends with the test program.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = shared.lock();
                let Ok(server) = TcpStream::connect(&state.target) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    if let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone())
                    {
                        state.open.push(kept);
                        std::thread::spawn(move || copy(from, to));
                    }
                }
            }
        });
        Ok(Self { address, state })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn now_to(&self, target: &str) {
        let mut state = self.state.lock();
        state.target = target.to_owned();
        for connection in state.open.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
