//! Connections that are opened and kept, and messages that break rules.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;

use super::{NDJSON, Scene};

fn begin_bulk(mut socket: TcpStream, declared: usize, sent: usize) -> Result<TcpStream> {
    let head = format!("POST /_bulk HTTP/1.1\r\nHost: x\r\n{NDJSON}Content-Length: {declared}\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(&vec![b' '; sent])?;
    Ok(socket)
}

pub(super) fn declared_bodies(scene: &mut Scene<'_>) -> Result<()> {
    let mut sockets = Vec::new();
    for declared in [
        100_000_000,
        8_000_000,
        8_000_000,
        4_000_000,
        2_000_000,
        1_000_000,
        500_000,
        250_000,
    ] {
        let to = scene.entry();
        sockets.push(begin_bulk(
            scene.connect(to)?,
            declared,
            scene.rng.usize(..50_000),
        )?);
    }
    scene.hold(sockets, &[b' '; 40], Duration::from_millis(20));
    Ok(())
}

pub(super) fn many_bodies(scene: &mut Scene<'_>) -> Result<()> {
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let to = scene.entry();
        sockets.push(begin_bulk(scene.connect(to)?, 8_000_000, 100_000)?);
    }
    scene.hold(sockets, &[b' '; 2_000], Duration::from_millis(10));
    Ok(())
}

pub(super) fn trickled_heads(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.entry();
    trickle_heads(scene, to, 100)
}

pub(super) fn trickled_admin(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.gateway.admin();
    trickle_heads(scene, to, 60)
}

fn trickle_heads(scene: &mut Scene<'_>, to: SocketAddr, count: usize) -> Result<()> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = scene.connect(to)?;
        socket.write_all(b"GET /health HTTP/1.1\r\nX-Slow: ")?;
        sockets.push(socket);
    }
    scene.hold(sockets, b"s", Duration::from_millis(50));
    Ok(())
}

pub(super) fn broken_http(scene: &mut Scene<'_>) -> Result<()> {
    let to = scene.entry();
    let mut socket = scene.connect(to)?;
    let broken: [&[u8]; 4] = [
        b"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /_bulk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
    ];
    if let Some(broken) = scene.rng.choice(broken) {
        socket.write_all(broken)?;
    }
    let _ = socket.read(&mut [0; 512]);
    Ok(())
}
