//! Idle connections are cheap. This test has a process of its own, since it measures memory and would measure
//! other tests too.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::echo_server;
use wire::Limits;

#[test]
fn thousands_of_idle_connections_hold_no_buffers() {
    let count = connections_max().min(10_000);
    assert!(count > 100, "the limit was raised");
    let (workers, server) = echo_server(Limits::default());
    let before = resident_kib();
    let mut sockets = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
        if sockets.len() % 10 == 0 {
            // Some connections have been used before they became idle.
            socket
                .write_all(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
                .expect("writes");
            let mut answer = [0; 512];
            assert!(socket.read(&mut answer).expect("reads") > 0);
        }
        sockets.push(socket);
    }
    let begun = Instant::now();
    while server.counts().connections < count as u64 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", server.counts());
        std::thread::sleep(Duration::from_millis(20));
    }
    let each_bytes = resident_kib().saturating_sub(before) * 1024 / count;
    assert!(
        workers.budget().used() < 4 << 20,
        "{} bytes of buffers",
        workers.budget().used()
    );
    assert!(each_bytes < 8 << 10, "{each_bytes} bytes a connection");
}

/// Returns how many connections this process may have with itself: two descriptors for each, and some for the
/// rest.
fn connections_max() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let few = Rlimit {
        current: Some(200),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).expect("less is always allowed");
    (wire::raise_descriptor_limit().min(25_000) as usize - 200) / 2
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number")
}
