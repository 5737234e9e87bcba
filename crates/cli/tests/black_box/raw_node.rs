//! A node that answers exactly what it is told to, byte by byte, right or wrong.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::gateway::Gateway;

/// A node whose answers to `/t` (and `/?…`) are raw bytes. It reports no topology, so a gateway before it
/// passes everything on.
pub(crate) struct RawNode {
    said: Arc<Mutex<Said>>,
    port: u16,
}

#[derive(Default)]
struct Said {
    answer: Vec<u8>,
    heads: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl RawNode {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let said = Arc::new(Mutex::new(Said::default()));
        let shared = Arc::clone(&said);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let said = Arc::clone(&shared);
                std::thread::spawn(move || serve(socket, &said));
            }
        });
        Self { said, port }
    }

    /// From now on the node answers requests to `/t` with these bytes, and then closes.
    pub(crate) fn answer(&self, bytes: impl Into<Vec<u8>>) {
        self.said.lock().answer = bytes.into();
    }

    /// Returns the heads of the requests to `/t` so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.said.lock().heads.clone()
    }

    /// Returns the bodies of the requests to `/t` that declared a length, in the order of the heads.
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.said.lock().bodies.clone()
    }

    /// Starts a gateway before this node. `forward` has more settings of its `elasticsearch` filter, `entry`
    /// of its entry.
    pub(crate) fn gateway(&self, entry: &str, forward: &str) -> Gateway {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tidegate.yml");
        let text = format!(
            "admin: {{binding: '127.0.0.1:0'}}
entry: [{{name: e, router: r, network: {{binding: '127.0.0.1:0'}}, {entry}}}]
router: [{{name: r, default_flow: f}}]
flow: [{{name: f, filter: [{{bulk_reshuffle: {{elasticsearch: c, mode: sync}}}}, {{elasticsearch: {{elasticsearch: c, {forward}}}}}]}}]
elasticsearch: [{{name: c, endpoint: 'http://127.0.0.1:{}'}}]
",
            self.port
        );
        std::fs::write(&file, text).unwrap();
        Gateway::start(&["--config", file.to_str().unwrap()])
    }
}

fn serve(mut socket: TcpStream, said: &Mutex<Said>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            let head = std::mem::replace(&mut bytes, body);
            break String::from_utf8_lossy(&head[..end]).into_owned();
        }
        match socket.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return,
        }
    };
    let asked = head
        .split(' ')
        .nth(1)
        .is_some_and(|path| path.trim_start_matches('/').starts_with(['t', '?']));
    let answer = match asked {
        true => {
            let length = head
                .to_lowercase()
                .split_once("content-length: ")
                .and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok());
            while bytes.len() < length.unwrap_or(0) {
                match socket.read(&mut piece) {
                    Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
                    _ => return,
                }
            }
            let mut said = said.lock();
            said.heads.push(head);
            said.bodies.push(bytes);
            said.answer.clone()
        }
        false => b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
    };
    let _ = socket.write_all(&answer);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    // Closing with unread bytes would reset the connection and take the answer with it.
    while socket.read(&mut piece).is_ok_and(|count| count > 0) {}
}
