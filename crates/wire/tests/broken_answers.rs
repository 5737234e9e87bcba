//! An answer whose body breaks off is never taken for a whole one.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::echo_server;
use wire::{Limits, Server};

fn ask(server: &Server, request: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    socket.write_all(request.as_bytes()).expect("writes");
    socket
}

#[test]
fn before_its_first_byte_it_is_replaced_and_the_connection_stays() {
    let (_workers, server) = echo_server(Limits::default());
    let two =
        "GET /break HTTP/1.1\r\nHost: x\r\n\r\nGET /ignore HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut answer = String::new();
    ask(&server, two).read_to_string(&mut answer).expect("reads");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(
        answer.contains("HTTP/1.1 200 ") && answer.ends_with("ignored"),
        "{answer}"
    );
}

#[test]
fn after_its_first_byte_a_chunked_one_lacks_its_last_chunk() {
    let (_workers, server) = echo_server(Limits::default());
    let mut answer = String::new();
    ask(&server, "GET /break-late HTTP/1.1\r\nHost: x\r\n\r\n")
        .read_to_string(&mut answer)
        .expect("reads");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{:.100}", answer);
    assert!(answer.len() > 300_000 && !answer.ends_with("0\r\n\r\n"));
}

#[test]
fn one_that_only_the_connections_end_would_end_is_reset() {
    let (_workers, server) = echo_server(Limits::default());
    let mut socket = ask(&server, "GET /break-late HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    let error = socket
        .read_to_end(&mut answer)
        .expect_err("an orderly end would say that this was all");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
