//! What clients get when replies are too large, broken, or not valid HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::gateway::Gateway;
use crate::raw_node::RawNode;

/// Asks for `/t` and returns everything that comes until the gateway closes.
fn ask(gateway: &Gateway, method: &str) -> String {
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request =
        format!("{method} /t HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn chunked(pieces: &[usize], end: &str) -> String {
    let mut reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for piece in pieces {
        reply += &format!("{piece:x}\r\n{}\r\n", "x".repeat(*piece));
    }
    reply + end
}

#[test]
fn max_response_size_holds_for_replies_that_do_not_tell_their_size() {
    let node = RawNode::start();
    let gateway = node.gateway("", "max_response_size: 1mb");
    let last = "0\r\n\r\n";

    node.answer(chunked(&[1 << 20], last));
    let whole = ask(&gateway, "GET");
    assert!(
        whole.starts_with("HTTP/1.1 200 ") && whole.ends_with(last),
        "{:.200}",
        whole
    );

    // The limit is passed at once: the head has not been sent, so the client is told what is wrong.
    node.answer("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n");
    let declared = ask(&gateway, "GET");
    assert!(declared.starts_with("HTTP/1.1 502 "), "{declared}");
    assert!(declared.contains("max_response_size"), "{declared}");

    // The limit is passed on the way: the connection is cut, and the last chunk is missing.
    node.answer(chunked(&[300_000; 10], last));
    let cut = ask(&gateway, "GET");
    assert!(cut.starts_with("HTTP/1.1 200 "), "{:.200}", cut);
    assert!(
        !cut.ends_with(last) && cut.len() <= (1 << 20) + 1000,
        "{} bytes",
        cut.len()
    );
    assert_eq!(gateway.counter("replies_broken"), 1);
    let log = gateway.logged("not passed on to its end");
    let line = log
        .lines()
        .find(|line| line.contains("not passed on to its end"))
        .unwrap();
    assert!(
        line.contains("\"request_id\":\"mine\"") && line.contains("max_response_size"),
        "{line}"
    );

    node.answer(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(2 << 20)));
    let until_close = ask(&gateway, "GET");
    assert!(!until_close.ends_with(last), "{} bytes", until_close.len());
}

#[test]
fn a_reply_that_breaks_off_before_any_of_it_was_passed_on_becomes_an_error_with_the_requests_id() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    node.answer(chunked(&[], "zz\r\n"));
    let answer = ask(&gateway, "GET");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("x-request-id: mine\r\n"), "{answer}");
    assert!(answer.contains("\"root_cause\""), "{answer}");
    assert_eq!(
        (
            gateway.counter("replies_broken"),
            gateway.counter("exchanges_failed")
        ),
        (1, 1)
    );
}

#[test]
fn replies_that_http_does_not_allow_become_502_and_those_without_a_body_have_none() {
    let node = RawNode::start();
    let gateway = node.gateway("", "");
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for reply in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab".to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nab".to_owned(),
        format!(
            "HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nab",
            "x".repeat(100_000)
        ),
    ] {
        node.answer(reply.clone());
        let answer = ask(&gateway, "GET");
        assert!(answer.starts_with("HTTP/1.1 502 "), "{reply:.80}: {answer:.300}");
    }
    for (method, status, declares) in [
        ("GET", "204 No Content", false),
        ("GET", "304 Not Modified", true),
        ("HEAD", "200 OK", true),
    ] {
        node.answer(format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\n{evil}"));
        let answer = ask(&gateway, method);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(
            answer.ends_with("\r\n\r\n") && !answer.contains("evil"),
            "{answer}"
        );
        assert_eq!(answer.contains("content-length: 4\r\n"), declares, "{answer}");
    }
    // As many warnings as a request over many old indices collects.
    node.answer(format!(
        "HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nab",
        "Warning: 299 - \"old\"\r\n".repeat(300)
    ));
    let answer = ask(&gateway, "GET");
    assert_eq!(answer.matches("warning: ").count(), 300, "{answer:.300}");
}
