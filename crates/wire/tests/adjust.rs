//! Changing a running server: other limits, other TLS, another address, and no client is turned away.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::{Echo, echo_server};
use wire::{Bound, Limits, Server, Worker};

fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).expect("connects")
}

fn try_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}

/// Sends a request with a body of `body_bytes` bytes and returns the answer's head, and the part of its body
/// that came along.
fn ask(socket: &mut TcpStream, path: &str, body_bytes: usize) -> std::io::Result<String> {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {body_bytes}\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(&vec![b'x'; body_bytes])?;
    let mut answer = vec![0; 4096];
    let count = socket.read(&mut answer)?;
    answer.truncate(count);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends requests on new connections until the answer has `status`: workers are told of a change a moment
/// later.
fn wait_until(server: &Server, body_bytes: usize, status: &str) {
    let began = Instant::now();
    while !ask(&mut connect(server.local_addr()), "/ignore", body_bytes)
        .is_ok_and(|answer| answer.contains(status))
    {
        assert!(began.elapsed() < Duration::from_secs(10), "no {status}");
    }
}

fn limits(body_bytes_max: u64) -> Limits {
    Limits {
        body_bytes_max,
        ..Limits::default()
    }
}

#[test]
fn other_limits_hold_from_the_next_request_on_connections_that_are_open() {
    let (_workers, server) = echo_server(limits(100));
    let mut socket = connect(server.local_addr());
    assert!(
        ask(&mut socket, "/ignore", 100)
            .expect("answers")
            .contains(" 200 ")
    );
    server.adjust(&limits(1000), None);
    wait_until(&server, 1000, " 200 ");
    assert!(
        ask(&mut socket, "/ignore", 1000)
            .expect("answers")
            .contains(" 200 ")
    );
    server.adjust(&limits(10), None);
    wait_until(&server, 11, " 413 ");
    assert!(
        ask(&mut socket, "/ignore", 11)
            .expect("answers")
            .contains(" 413 ")
    );
}

#[test]
fn the_bound_on_connections_moves_without_cutting_any() {
    let (_workers, server) = echo_server(Limits::default());
    let mut open: Vec<TcpStream> = (0..3).map(|_| connect(server.local_addr())).collect();
    for socket in &mut open {
        assert!(ask(socket, "/ignore", 1).expect("answers").contains(" 200 "));
    }
    let fewer = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    server.adjust(&fewer, None);
    for socket in &mut open {
        assert!(ask(socket, "/ignore", 1).expect("answers").contains(" 200 "));
    }
    // One more connection takes the place of one that waits.
    let mut one_more = connect(server.local_addr());
    assert!(
        ask(&mut one_more, "/ignore", 1)
            .expect("answers")
            .contains(" 200 ")
    );
    let is_open =
        |socket: &mut TcpStream| ask(socket, "/ignore", 1).is_ok_and(|answer| answer.contains(" 200 "));
    assert_eq!(
        open.iter_mut()
            .filter_map(|socket| is_open(socket).then_some(()))
            .count(),
        2
    );
    assert_eq!((server.counts().made_room, server.counts().turned_away), (1, 0));
}

#[test]
fn renewed_connections_finish_their_request_and_then_close_while_new_ones_are_served() {
    let (_workers, server) = echo_server(Limits::default());
    let (mut idle, mut busy) = (connect(server.local_addr()), connect(server.local_addr()));
    assert!(ask(&mut idle, "/ignore", 1).expect("answers").contains(" 200 "));
    let answer = std::thread::spawn(move || {
        let answer = ask(&mut busy, "/slow", 1);
        (answer, busy.read(&mut [0]))
    });
    std::thread::sleep(Duration::from_millis(100));
    server.renew();
    assert_eq!(idle.read(&mut [0]).expect("an orderly end"), 0);
    let mut new = connect(server.local_addr());
    assert!(ask(&mut new, "/ignore", 1).expect("answers").contains(" 200 "));
    let (answer, end) = answer.join().expect("it asks");
    let answer = answer.expect("its request was in flight").to_lowercase();
    assert!(
        answer.contains(" 200 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(end.expect("an orderly end"), 0);
    assert!(ask(&mut new, "/ignore", 1).expect("answers").contains(" 200 "));
}

#[test]
fn a_listener_on_every_address_takes_over_from_one_on_loopback_and_back_without_a_gap() {
    let (workers, mut server) = echo_server(Limits::default());
    let port = server.local_addr().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = {
        let (over, asked) = (Arc::clone(&over), Arc::clone(&asked));
        move || {
            while !over.load(Ordering::Relaxed) {
                // A handshake that is under way when the old socket closes is reset: that cannot be
                // prevented, but the next attempt finds a listener.
                let attempt = |_| try_connect(address).and_then(|mut socket| ask(&mut socket, "/ignore", 1));
                let answered = (0..2)
                    .map(attempt)
                    .any(|answer| answer.is_ok_and(|answer| answer.contains(" 200 ")));
                assert!(answered);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let clients: Vec<_> = (0..2).map(|_| std::thread::spawn(client.clone())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for turn in 0..20 {
        let here = if turn % 2 == 0 {
            [0, 0, 0, 0]
        } else {
            [127, 0, 0, 1]
        };
        let here = SocketAddr::from((here, port));
        assert!(Bound::new(here, false).is_err(), "the kernel keeps the two apart");
        server.share_port(true).expect("sets");
        let bound = Bound::new(here, true).expect("it may share");
        bound.share_port(false).expect("sets");
        let make = |_: &Worker| Rc::new(Echo);
        let next = Server::serve(&workers, bound, None, Limits::default(), make).expect("serves");
        let report = runtime.block_on(std::mem::replace(&mut server, next).drain(Duration::from_secs(20)));
        assert_eq!(report.cut, 0);
        std::thread::sleep(Duration::from_millis(10));
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no client met a gap");
    }
    assert!(asked.load(Ordering::Relaxed) > 100);
}
