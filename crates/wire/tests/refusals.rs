//! Everything ambiguous, oversized or late is refused with its own status, and the connection closes.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use support::{echo_server, with_client};
use wire::{Limits, Origin, Server, ServerConfig};

/// Sends bytes and returns everything that comes back until the server closes.
fn exchange(server: &Server, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    socket.write_all(request).expect("writes");
    let mut answer = Vec::new();
    socket
        .read_to_end(&mut answer)
        .expect("the server answers and closes");
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn each_broken_head_is_refused_by_its_own_status_and_closes() {
    let (_workers, server) = echo_server(Limits::default());
    let many = "X-A: b\r\n".repeat(200);
    let long = "a".repeat(70_000);
    let cases = [
        ("GARBAGE\r\n\r\n", "400"),
        ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET / HTTP/1.2\r\nHost: x\r\n\r\n", "505"),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", "400"),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\na", "400"),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\na",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\na",
            "400",
        ),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\na", "400"),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na",
            "400",
        ),
        (
            "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\na",
            "417",
        ),
        ("CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: x:y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x:1:2\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x:123456\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: [x]:1\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "400"),
        ("GET http://a/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET http://x:81/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET http://x:443/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET http://x/ HTTP/1.1\r\nHost:\r\n\r\n", "400"),
        ("GET http://u@x/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("GET http://u:p@x/ HTTP/1.0\r\n\r\n", "400"),
        ("GET http://x@a?q HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        // A TLS hello on a port that speaks clear text never has a line's end: it is refused by its first
        // byte.
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x00\x03\x03", "400"),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n",
            "413",
        ),
        (&format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), "431"),
        (&format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long}\r\n\r\n"), "431"),
        (
            &format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", &long[..20_000]),
            "414",
        ),
    ];
    for (request, wanted) in cases {
        let answer = exchange(&server, request.as_bytes());
        let shown: String = request.chars().take(120).collect();
        assert_eq!(status(&answer), wanted, "{shown:?}: {answer}");
        assert!(
            answer.to_ascii_lowercase().contains("connection: close"),
            "{shown:?}: {answer}"
        );
    }
}

#[test]
fn hosts_as_clients_write_them_are_taken() {
    let (_workers, server) = echo_server(Limits::default());
    for host in [
        "",
        "x",
        "x:9200",
        "x:",
        "127.0.0.1:80",
        "[::1]",
        "[fe80::1%25eth0]:9200",
        "a_b.example",
    ] {
        let request = format!("GET /ignore HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&exchange(&server, request.as_bytes())), "200", "{host:?}");
    }
    // In absolute form, the target names the same host.
    for (target, host) in [
        ("http://x/ignore", "x"),
        ("http://X:9200/ignore", "x:9200"),
        ("http://x:80/ignore", "x"),
        ("http://x/ignore", "x:"),
        ("https://x/ignore", "x:443"),
        ("http://[::1]:9200/ignore?q", "[::1]:9200"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(
            status(&exchange(&server, request.as_bytes())),
            "200",
            "{target} {host}"
        );
    }
    let old = "GET http://x/ignore HTTP/1.0\r\n\r\n";
    assert_eq!(status(&exchange(&server, old.as_bytes())), "200");
}

#[test]
fn as_many_headers_as_configured_are_taken_and_one_more_is_refused() {
    let limits = Limits {
        header_count_max: 1000,
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    for (count, wanted) in [(998, "200"), (999, "431")] {
        let many = "X-A: b\r\n".repeat(count);
        let request = format!("GET /ignore HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{many}\r\n");
        assert_eq!(status(&exchange(&server, request.as_bytes())), wanted, "{count}");
    }
}

#[test]
fn an_upgrade_is_ignored_and_what_follows_is_read_as_http_1() {
    let (_workers, server) = echo_server(Limits::default());
    let upgrade = "POST /collect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                   HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\nokPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let answer = exchange(&server, upgrade.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("okHTTP/1.1 505 "), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("upgrade"), "{answer}");
}

#[test]
fn a_connection_over_the_most_takes_the_place_of_one_that_has_asked_nothing() {
    let limits = Limits {
        connections_max: 2,
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    let mut silent: Vec<_> = (0..2)
        .map(|_| TcpStream::connect(server.local_addr()).expect("connects"))
        .collect();
    while server.counts().connections < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = exchange(&server, b"GET /ignore HTTP/1.0\r\n\r\n");
    assert_eq!(status(&answer), "200", "{answer}");
    silent[0]
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    assert!(
        matches!(silent[0].read(&mut [0; 1]), Ok(0) | Err(_)),
        "the oldest"
    );
    assert_eq!((server.counts().made_room, server.counts().turned_away), (1, 0));
    drop(silent);
    while server.counts().connections > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = exchange(&server, b"GET /ignore HTTP/1.0\r\n\r\n");
    assert_eq!(status(&answer), "200", "{answer}");
}

#[test]
fn each_broken_chunk_is_refused() {
    let (_workers, server) = echo_server(Limits::default());
    for body in [
        "zz\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
    ] {
        let request =
            format!("POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let answer = exchange(&server, request.as_bytes());
        assert_eq!(status(&answer), "400", "{body:?}: {answer}");
    }
}

/// As clients do that send a whole request before they read.
#[test]
fn a_refusal_reaches_a_client_that_sends_a_large_body_to_its_end() {
    let (_workers, server) = echo_server(Limits {
        body_bytes_max: 1 << 20,
        ..Limits::default()
    });
    let body = 64 << 20;
    let mut request = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {body}\r\n\r\n").into_bytes();
    request.resize(request.len() + body, b'a');
    assert_eq!(status(&exchange(&server, &request)), "413");
}

#[test]
fn a_request_hidden_behind_an_ambiguous_one_is_never_seen() {
    let (_workers, server) = echo_server(Limits::default());
    let hidden = "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
                  GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = exchange(&server, hidden.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[test]
fn a_slow_head_and_a_stalled_body_end_in_time() {
    let limits = Limits {
        head_timeout: Duration::from_millis(300),
        body_idle_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    let begun = Instant::now();
    let answer = exchange(&server, b"POST /collect HTTP/1.1\r\nHost: x\r\nConte");
    assert_eq!(status(&answer), "408", "{answer}");
    let answer = exchange(
        &server,
        b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
    );
    assert_eq!(status(&answer), "408", "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_body_that_trickles_under_the_least_rate_is_refused() {
    let limits = Limits {
        body_idle_timeout: Duration::from_millis(400),
        body_rate_min: 100_000,
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    socket
        .write_all(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        .expect("writes");
    let begun = Instant::now();
    // One byte every tenth of a second is never idle for long, and never fast enough.
    while socket.write_all(b"x").is_ok() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "the server still listens to the trickle"
    );
}

#[test]
fn a_good_beginning_does_not_excuse_a_body_that_trickles() {
    let limits = Limits {
        body_idle_timeout: Duration::from_millis(400),
        body_rate_min: 10_000,
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .write_all(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
        .expect("writes");
    // These bytes are enough for 100 s at the least rate.
    socket.write_all(&[b'x'; 1_000_000]).expect("writes");
    let begun = Instant::now();
    while socket.write_all(b"x").is_ok() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "the server still listens to the trickle"
    );
}

#[test]
fn a_client_that_takes_its_answer_too_slowly_is_cut() {
    let limits = Limits {
        write_timeout: Duration::from_millis(400),
        body_rate_min: 10_000_000,
        ..Limits::default()
    };
    let (_workers, server) = echo_server(limits);
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("writes");
    let begun = Instant::now();
    let mut piece = vec![0; 100_000];
    // At 1 MB/s the client never stops reading, and reads at a tenth of the least rate.
    while server.counts().connections > 0 && begun.elapsed() < Duration::from_secs(10) {
        let _ = socket.read(&mut piece);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(server.counts().connections, 0, "the slow client is still served");
}

/// Has a server hold an echo of 20 MiB of the 24 that bodies may take, for a client that takes `bytes` bytes
/// of it at a time, every 100 ms. Returns the answers to another client's bodies of 10 MiB, the last of which
/// is sent after ten seconds, and whether the first client's answer was cut.
fn others_beside_an_answer_that_is_read(bytes: usize) -> (Vec<u16>, bool) {
    let config = ServerConfig::on(([127, 0, 0, 1], 0).into());
    let (_workers, server) = support::echo_server_within(config, 32 << 20);
    let address = server.local_addr();
    let mut slow = TcpStream::connect(address).expect("connects");
    let head = format!(
        "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        20 << 20
    );
    slow.write_all(head.as_bytes()).expect("writes");
    slow.write_all(&vec![b'x'; 20 << 20]).expect("writes");
    slow.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    slow.read_exact(&mut [0; 12]).expect("the answer begins");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut piece, mut read) = (vec![0; bytes], 0);
            while !stop.load(Ordering::Relaxed) {
                read += slow.read(&mut piece).unwrap_or_default();
                std::thread::sleep(Duration::from_millis(100));
            }
            piece.resize(1 << 20, 0);
            while read < 20 << 20 {
                match slow.read(&mut piece) {
                    Ok(0) | Err(_) => return true,
                    Ok(more) => read += more,
                }
            }
            false
        });
        let mut statuses = Vec::new();
        with_client(async |client| {
            let origin = Origin::http("127.0.0.1", address.port());
            for _ in 0..3 {
                let body = vec![b'y'; 10 << 20];
                let answer = support::ask(&client, &origin, "/collect", body.into()).await;
                statuses.push(answer.expect("is answered").0);
            }
        });
        stop.store(true, Ordering::Relaxed);
        (statuses, reader.join().expect("reads"))
    })
}

#[test]
fn an_answer_that_is_read_slowly_makes_room_for_a_body_that_waits() {
    let (others, was_cut) = others_beside_an_answer_that_is_read(400);
    assert_eq!((others[2], was_cut), (200, true), "{others:?}");
}

#[test]
fn an_answer_that_is_read_at_a_fair_rate_is_not_cut_for_others() {
    // More than the least rate that is demanded, though the systems' buffers take all of it in bursts.
    let (others, was_cut) = others_beside_an_answer_that_is_read(24 << 10);
    assert_eq!((others, was_cut), (vec![429; 3], false));
}

#[test]
fn expect_continue_is_answered_when_the_body_is_wanted() {
    let (_workers, server) = echo_server(Limits::default());
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    socket
        .write_all(b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        .expect("writes");
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).expect("reads");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"ok").expect("writes");
    socket.shutdown(std::net::Shutdown::Write).expect("shuts");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("reads");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"),
        "{answer}"
    );
}

#[test]
fn slow_heads_hold_little_memory_and_large_ones_no_more_than_the_budget() {
    let mut config = wire::ServerConfig::on(([127, 0, 0, 1], 0).into());
    config.limits = Limits::default();
    let (workers, server) = support::echo_server_within(config, 8 << 20);
    let begin = |bytes: usize| {
        let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
        let _ = write!(socket, "GET / HTTP/1.1\r\nHost: x\r\nA: {}", "b".repeat(bytes));
        socket
    };
    let small: Vec<_> = (0..300).map(|_| begin(10)).collect();
    let settled = |sockets: u64| {
        let begun = Instant::now();
        while server.counts().accepted < sockets && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        // Idle buffers are charged as well, for some seconds.
        workers.budget().used()
    };
    let each = settled(300) / 300;
    assert!(each <= 8 << 10, "{each} bytes a slow head");
    let large: Vec<_> = (0..300).map(|_| begin(60_000)).collect();
    let used = settled(600);
    assert!(used < 12 << 20, "{used} bytes for slow heads of 60 kB");
    assert!(server.counts().refused > 100, "{:?}", server.counts());
    let answer = exchange(
        &server,
        b"GET /ignore HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(status(&answer), "200", "{answer}");
    drop((small, large));
}

#[test]
fn a_few_bytes_hold_no_read_buffer_while_an_answer_or_the_end_is_waited_for() {
    let refused = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\nx";
    let with_body = "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    let pipelined = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\nG";
    for request in [refused, with_body, pipelined] {
        let mut config = wire::ServerConfig::on(([127, 0, 0, 1], 0).into());
        config.limits = Limits::default();
        let (workers, server) = support::echo_server_within(config, 8 << 20);
        let begin = |_| {
            let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
            socket.write_all(request.as_bytes()).expect("writes");
            if request == refused {
                // From its end on, the server waits for a moment that the client closes.
                socket.read_to_end(&mut Vec::new()).expect("reads");
            }
            socket
        };
        let sockets: Vec<_> = (0..300).map(begin).collect();
        let used = || workers.budget().used();
        let begun = Instant::now();
        let settled = || request == refused || server.counts().in_flight == 300 && used() <= 4 << 20;
        while !settled() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(used() <= 4 << 20, "{} bytes for {request:?}", used());
        assert!(settled(), "{:?}", server.counts());
        drop(sockets);
    }
}
