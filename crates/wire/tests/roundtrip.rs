//! Our client with our server, on real sockets.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use http::{HeaderMap, Method};
use support::{ask, echo_server, with_client};
use wire::{Chunk, Client, ClientConfig, Deadlines, Fate, Origin, Outgoing, RequestHead, SendErrorKind};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn bodies_of_every_size_come_back_unchanged_over_one_connection() {
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        for length in [0, 1, 1000, 60_000, 131_072, 131_073, 300_000, 3_400_000] {
            let (status, body) = ask(&client, &origin, "/collect", pattern(length).into())
                .await
                .expect("answers");
            assert_eq!((status, body.len()), (200, length));
            assert_eq!(body, pattern(length), "length {length}");
        }
    });
    assert_eq!(server.counts().accepted, 1);
}

#[test]
fn a_body_that_was_looked_at_is_read_whole_all_the_same() {
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        for length in [0, 1, 1000, 3_400_000] {
            for limit in [4_000_000, length.max(1) - 1] {
                let (method, headers) = (Method::POST, HeaderMap::new());
                let head = RequestHead {
                    method: &method,
                    target: "/collect",
                    headers: &headers,
                };
                let deadlines = Deadlines::within(Duration::from_secs(10));
                let reply = client.send(&origin, head, pattern(length).into(), deadlines);
                let mut body = reply.await.expect("answers").into_body();
                let begins = body.peek().await.expect("is there").to_vec();
                assert_eq!(begins, pattern(length)[..begins.len()]);
                assert_eq!(begins.is_empty(), length == 0);
                assert_eq!(body.peek().await.expect("is there").len(), begins.len());
                match body.collect(limit).await {
                    Ok(whole) => assert!(*whole == *pattern(length) && length <= limit),
                    Err(error) => {
                        assert!(length > limit, "{error}");
                        assert!(matches!(error.kind, SendErrorKind::TooLarge { .. }), "{error}");
                    }
                }
            }
        }
    });
    assert!(server.counts().accepted <= 5, "connections are used again");
}

#[test]
fn streamed_and_chunked_bodies_pass_through() {
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        for path in ["/collect", "/forward"] {
            let twenty = || {
                let mut left = 20;
                move || {
                    left -= 1;
                    (left >= 0).then(|| Chunk::from(pattern(50_000)))
                }
            };
            let known = Outgoing::gather(20 * 50_000, twenty());
            assert_eq!(
                ask(&client, &origin, path, known).await.expect("answers").1.len(),
                1_000_000
            );
            struct Pull<F>(F);
            impl<F: FnMut() -> Option<Chunk>> wire::Source for Pull<F> {
                fn poll_next(
                    &mut self,
                    _: &mut std::task::Context<'_>,
                ) -> std::task::Poll<Option<Result<Chunk, wire::SourceError>>> {
                    std::task::Poll::Ready((self.0)().map(Ok))
                }
            }
            let body = ask(&client, &origin, path, Outgoing::stream(Pull(twenty()), None))
                .await
                .expect("answers")
                .1;
            assert_eq!(body, pattern(50_000).repeat(20), "{path}");
        }
    });
}

#[test]
fn small_chunks_are_passed_on_together() {
    use std::io::{Read, Write};
    let (_workers, server) = echo_server(Default::default());
    let mut socket = std::net::TcpStream::connect(server.local_addr()).expect("connects");
    let chunks = "1\r\nx\r\n".repeat(20_000);
    let request = format!(
        "POST /forward HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("writes");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("reads");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert_eq!(body.matches('x').count(), 20_000);
    let chunks = body.lines().filter(|line| line.starts_with('x')).count();
    assert!(chunks < 200, "{chunks} chunks for 20,000 bytes");
}

#[test]
fn a_refused_connection_has_sent_nothing() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("binds")
        .local_addr()
        .expect("address")
        .port();
    let origin = Origin::http("127.0.0.1", free);
    with_client(|client| async move {
        let error = ask(&client, &origin, "/", Outgoing::Empty)
            .await
            .expect_err("nobody listens");
        assert_eq!(error.fate, Fate::NothingSent);
        assert!(matches!(error.kind, SendErrorKind::Connect(_)), "{error}");
    });
}

#[test]
fn a_node_that_closes_without_an_answer_leaves_the_fate_unknown() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let origin = Origin::http("127.0.0.1", listener.local_addr().expect("address").port());
    let node = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("accepts");
        std::io::Read::read(&mut socket, &mut [0; 1000]).expect("reads");
    });
    with_client(|client| async move {
        let error = ask(&client, &origin, "/", "x".into())
            .await
            .expect_err("no answer");
        assert_eq!(error.fate, Fate::Unknown);
    });
    node.join().expect("ends");
}

#[test]
fn a_kept_connection_that_the_node_closed_is_replaced_unseen() {
    let (_workers, server) = echo_server(wire::Limits {
        keep_alive_timeout: Duration::from_millis(50),
        ..Default::default()
    });
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        for _ in 0..3 {
            assert_eq!(
                ask(&client, &origin, "/collect", "hello".into())
                    .await
                    .expect("answers")
                    .1,
                b"hello"
            );
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    });
    assert_eq!(server.counts().accepted, 3);
}

/// Elasticsearch and OpenSearch answer so to headers that are too long: the connection stays open, and
/// whatever else comes on it is ignored.
#[test]
fn a_connection_on_which_a_long_head_was_refused_is_not_used_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let origin = Origin::http("127.0.0.1", listener.local_addr().expect("address").port());
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || answer_until_400(socket));
        }
    });
    with_client(|client| async move {
        for (status, length) in [(400, 17_000), (200, 0), (400, 17_000), (200, 0)] {
            let path = format!("/{status}/{}", "x".repeat(length));
            let answer = ask(&client, &origin, &path, "{}".into()).await;
            assert_eq!(answer.expect("it is answered").0, status);
        }
    });
}

/// A server may be told to refuse heads that others would read (`http.max_header_size: 1kb`): then its answer
/// says what it has done, whatever the head's length is.
#[test]
fn a_connection_on_which_a_short_head_was_refused_as_too_long_is_not_used_again() {
    const TOO_LONG: &str =
        r#"{"error":{"root_cause":[{"type":"too_long_http_header_exception"}]},"status":400}"#;
    const OTHER: &str = r#"{"error":{"root_cause":[{"type":"parse_exception"}]},"status":400}"#;
    let refusals = [
        // Whether the connection is used again.
        (
            format!(
                "HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{TOO_LONG}",
                TOO_LONG.len()
            ),
            false,
        ),
        (
            format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{OTHER}", OTHER.len()),
            true,
        ),
        (
            format!(
                "HTTP/1.1 400 X\r\ntransfer-encoding: chunked\r\n\r\n24\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                &TOO_LONG[..0x24],
                TOO_LONG.len() - 0x24,
                &TOO_LONG[0x24..]
            ),
            false,
        ),
        (
            "HTTP/1.1 400 X\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nxx".to_owned(),
            false,
        ),
        ("HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n".to_owned(), false),
        ("HTTP/1.1 431 X\r\ncontent-length: 2\r\n\r\n{}".to_owned(), false),
        ("HTTP/1.1 414 X\r\ncontent-length: 2\r\n\r\n{}".to_owned(), false),
    ];
    for (refusal, is_kept) in refusals {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let origin = Origin::http("127.0.0.1", listener.local_addr().expect("address").port());
        let accepted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counted, answer) = (std::sync::Arc::clone(&accepted), refusal.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let answer = answer.clone();
                std::thread::spawn(move || answer_always(socket, &answer));
            }
        });
        with_client(|client| async move {
            for _ in 0..2 {
                let answer = ask(&client, &origin, "/", "{}".into()).await;
                assert!(answer.expect("it is answered").0 >= 400);
            }
        });
        let connections = accepted.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(connections, if is_kept { 1 } else { 2 }, "{refusal}");
    }
}

/// Gives requests, each of which has the body `{}`, the same answer.
fn answer_always(mut socket: std::net::TcpStream, answer: &str) {
    use std::io::{Read as _, Write as _};

    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        request.extend_from_slice(&buffer[..count]);
        if request.ends_with(b"{}") {
            socket.write_all(answer.as_bytes()).expect("answers");
            request.clear();
        }
    }
}

/// Answers requests with the status that their path begins with, and ignores what comes after a 400. Each
/// request has the body `{}`.
fn answer_until_400(mut socket: std::net::TcpStream) {
    use std::io::{Read as _, Write as _};

    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        request.extend_from_slice(&buffer[..count]);
        if request.ends_with(b"{}") && !request.starts_with(b"ignored") {
            let status = String::from_utf8_lossy(&request[6..9]).into_owned();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}");
            socket.write_all(answer.as_bytes()).expect("answers");
            request = if status == "400" {
                b"ignored".to_vec()
            } else {
                Vec::new()
            };
        }
    }
}

#[test]
fn the_overall_deadline_holds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let origin = Origin::http("127.0.0.1", listener.local_addr().expect("address").port());
    with_client(|client| async move {
        let headers = HeaderMap::new();
        let head = RequestHead {
            method: &Method::GET,
            target: "/",
            headers: &headers,
        };
        let begun = std::time::Instant::now();
        let deadlines = Deadlines::within(Duration::from_millis(100));
        let error = client
            .send(&origin, head, Outgoing::Empty, deadlines)
            .await
            .expect_err("silent node");
        assert!(matches!(error.kind, SendErrorKind::Deadline), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

/// What is written may be executed, though nobody waits for the answer.
#[test]
fn nothing_is_written_once_the_deadline_has_passed() {
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        let (status, _) = ask(&client, &origin, "/collect", "first".into())
            .await
            .expect("answers, and its connection is kept");
        assert_eq!(status, 200);
        let headers = HeaderMap::new();
        let head = RequestHead {
            method: &Method::POST,
            target: "/collect",
            headers: &headers,
        };
        let error = client
            .send(&origin, head, "late".into(), Deadlines::within(Duration::ZERO))
            .await
            .expect_err("it is too late");
        assert!(matches!(error.kind, SendErrorKind::Deadline), "{error}");
        assert_eq!(error.fate, Fate::NothingSent);
    });
}

/// A request that may be sent for a moment only waits for a connection for no longer, however much time its
/// answer has.
#[test]
fn nothing_waits_for_a_connection_once_it_may_not_be_sent_any_more() {
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    let one_connection = ClientConfig {
        connections_per_origin_max: 1,
        ..ClientConfig::default()
    };
    let use_it = |client: Client| async move {
        let headers = HeaderMap::new();
        let head = RequestHead {
            method: &Method::POST,
            target: "/collect",
            headers: &headers,
        };
        let slow = ask(&client, &origin, "/slow", "slow".into());
        let late = async {
            let begun = tokio::time::Instant::now();
            let deadlines = Deadlines {
                start_by: Some(begun + Duration::from_millis(20)),
                ..Deadlines::within(Duration::from_secs(10))
            };
            let sent = client.send(&origin, head, "late".into(), deadlines).await;
            (sent, begun.elapsed())
        };
        let (slow, (late, waited)) = tokio::join!(slow, late);
        assert_eq!(slow.expect("answers").1, b"slow");
        let error = late.expect_err("it is too late");
        assert!(matches!(error.kind, SendErrorKind::Busy), "{error}");
        assert_eq!(error.fate, Fate::NothingSent);
        assert!(waited < Duration::from_millis(200), "{waited:?}");
    };
    wire::run_local(192 << 20, |worker| {
        use_it(Client::new(one_connection, worker.pool().clone()))
    })
    .expect("runtime");
}

#[test]
fn drain_finishes_what_is_in_flight_and_closes_the_address() {
    let (_workers, server) = echo_server(Default::default());
    let address = server.local_addr();
    let origin = Origin::http("127.0.0.1", address.port());
    with_client(|client| async move {
        let slow = ask(&client, &origin, "/slow", "late".into());
        let drain = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.drain(Duration::from_secs(5)).await
        };
        let (answer, report) = tokio::join!(slow, drain);
        assert_eq!(answer.expect("finished").1, b"late");
        assert_eq!((report.open, report.cut), (1, 0));
        assert!(std::net::TcpStream::connect(address).is_err());
    });
}

#[test]
fn an_answer_that_only_its_end_ends_is_reset_where_a_drain_cuts_it() {
    let (_workers, server) = echo_server(Default::default());
    let mut socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket.write_all(b"GET /hang HTTP/1.0\r\n\r\n").expect("writes");
    let (mut begun, mut some) = (Vec::new(), [0; 512]);
    while !begun.ends_with(b"begun") {
        let count = socket.read(&mut some).expect("it begins");
        begun.extend_from_slice(&some[..count]);
    }
    with_client(|_| async move {
        let report = server.drain(Duration::from_millis(100)).await;
        assert_eq!((report.open, report.cut), (1, 1));
    });
    let ended = socket.read(&mut some);
    let ended = ended.expect_err("an orderly end would be taken for the answer's");
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn gzip_bodies_are_inflated_on_collect_and_bombs_refused() {
    use std::io::Write;
    let packed = |bytes: &[u8], level: flate2::Compression| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        encoder.write_all(bytes).expect("compresses");
        encoder.finish().expect("compresses")
    };
    let gzip = |bytes: &[u8]| packed(bytes, flate2::Compression::fast());
    let best = |bytes: &[u8]| packed(bytes, flate2::Compression::best());
    let (_workers, server) = echo_server(Default::default());
    let origin = Origin::http("127.0.0.1", server.local_addr().port());
    with_client(|client| async move {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", "gzip".parse().expect("value"));
        let head = RequestHead {
            method: &Method::POST,
            target: "/collect",
            headers: &headers,
        };
        for (body, status, length) in [
            (gzip(&pattern(2_000_000)), 200, 2_000_000),
            (gzip(b""), 200, 0),
            ([gzip(b"two "), gzip(b"members")].concat(), 200, 11),
            // An honest body may be packed to any size: only what it unpacks to counts.
            (best(&vec![0; 48 << 20]), 200, 48 << 20),
            (gzip(&vec![0; 100 << 20]), 413, usize::MAX),
            (gzip(&pattern(2_000_000))[..1000].to_vec(), 400, usize::MAX),
            (b"not gzip".to_vec(), 400, usize::MAX),
        ] {
            let deadlines = Deadlines::within(Duration::from_secs(20));
            let reply = client
                .send(&origin, head, body.into(), deadlines)
                .await
                .expect("answers");
            assert_eq!(reply.status().as_u16(), status);
            let body = reply.into_body().collect(64 << 20).await.expect("whole");
            assert!(length == usize::MAX || body.len() == length);
        }
    });
}
