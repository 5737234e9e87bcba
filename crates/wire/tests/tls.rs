//! TLS on both sides: which certificates are trusted, which are refused, and how sessions end.

#![allow(
    clippy::disallowed_methods,
    reason = "tests sleep, lock and look at clocks as they like"
)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use support::{ask, echo_server_with, with_client};
use wire::{
    Client, ClientConfig, ClientTls, ClientTlsConfig, Deadlines, Fate, Limits, Origin, Outgoing, RequestHead,
    Roots, SendError, SendErrorKind, Server, ServerConfig, ServerTls, ServerTlsConfig, Workers, run_local,
};

/// A self-signed certificate and its key, PEM.
struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn identity(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    change(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate");
    Identity {
        certificate: certificate.pem().into_bytes(),
        key: key.serialize_pem().into_bytes(),
    }
}

fn local() -> Identity {
    identity("127.0.0.1", |_| {})
}

fn server_tls(identity: &Identity, client_ca: Option<&Identity>) -> ServerTls {
    ServerTls::new(&ServerTlsConfig {
        certificate_pem: identity.certificate.clone(),
        key_pem: identity.key.clone(),
        client_ca_pem: client_ca.map(|ca| ca.certificate.clone()),
    })
    .expect("sound TLS settings")
}

fn client_tls(trusted: &Identity, own: Option<&Identity>) -> ClientTls {
    ClientTls::new(&ClientTlsConfig {
        roots: Roots::Pem(trusted.certificate.clone()),
        identity_pem: own.map(|own| (own.certificate.clone(), own.key.clone())),
        ..ClientTlsConfig::default()
    })
    .expect("sound TLS settings")
}

fn serve(tls: &ServerTls, limits: Limits) -> (Workers, Server) {
    let mut config = ServerConfig::on(([127, 0, 0, 1], 0).into());
    config.tls = Some(tls.clone());
    config.limits = limits;
    echo_server_with(config)
}

fn origin(server: &Server, tls: ClientTls) -> Origin {
    Origin::https("127.0.0.1", server.local_addr().port(), tls)
}

/// Sends one request on a connection of its own.
fn ask_once(origin: Origin) -> Result<Vec<u8>, SendError> {
    run_local(192 << 20, |worker| async move {
        let client = Client::new(ClientConfig::default(), worker.pool().clone());
        Ok(ask(&client, &origin, "/collect", "hello".into()).await?.1)
    })
    .expect("a runtime")
}

#[track_caller]
fn assert_refused(answer: Result<Vec<u8>, SendError>) {
    let error = answer.expect_err("nobody vouches for this");
    assert!(matches!(error.kind, SendErrorKind::Tls(_)), "{error}");
    assert_eq!(error.fate, Fate::NothingSent);
}

#[test]
fn bodies_of_every_size_come_back_through_tls() {
    let identity = local();
    let (_workers, server) = serve(&server_tls(&identity, None), Limits::default());
    let origin = origin(&server, client_tls(&identity, None));
    with_client(|client| async move {
        for length in [0, 1, 16_384, 16_385, 300_000, 3_400_000] {
            let sent: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251) as u8).collect();
            for path in ["/collect", "/forward"] {
                let (status, body) = ask(&client, &origin, path, sent.clone().into())
                    .await
                    .expect("answers");
                assert_eq!((status, body == sent), (200, true), "{path}, {length} bytes");
            }
        }
    });
}

#[test]
fn a_certificate_of_an_unknown_authority_for_another_name_or_out_of_date_is_refused() {
    let other_name = identity("node.example", |_| {});
    let expired = identity("127.0.0.1", |params| params.not_after = date_time_ymd(2001, 1, 1));
    let not_yet = identity("127.0.0.1", |params| {
        params.not_before = date_time_ymd(3001, 1, 1)
    });
    let sound = local();
    for (shown, trusted) in [
        (&sound, &local()),
        (&other_name, &other_name),
        (&expired, &expired),
        (&not_yet, &not_yet),
    ] {
        let (_workers, server) = serve(&server_tls(shown, None), Limits::default());
        assert_refused(ask_once(origin(&server, client_tls(trusted, None))));
        assert_eq!(server.counts().requests, 0);
    }
    let (_workers, server) = serve(&server_tls(&sound, None), Limits::default());
    let answer = ask_once(origin(&server, client_tls(&sound, None)));
    assert_eq!(answer.expect("a sound certificate is taken"), b"hello");
}

#[test]
fn a_client_must_show_a_certificate_of_the_authority_that_is_asked_for() {
    let (ours, theirs) = (local(), identity("client", |_| {}));
    let (_workers, server) = serve(&server_tls(&ours, Some(&theirs)), Limits::default());
    // In TLS 1.3 the client learns of the refusal only after its handshake.
    for own in [None, Some(&local())] {
        ask_once(origin(&server, client_tls(&ours, own))).expect_err("a stranger");
    }
    assert_eq!(server.counts().requests, 0);
    await_failed_handshakes(&server, 2);
    let answer = ask_once(origin(&server, client_tls(&ours, Some(&theirs))));
    assert_eq!(answer.expect("it is known"), b"hello");
}

#[test]
fn older_protocols_than_tls_1_2_are_refused() {
    let (_workers, server) = serve(&server_tls(&local(), None), Limits::default());
    for (version, name) in [([3, 0], "SSL 3"), ([3, 1], "TLS 1.0"), ([3, 2], "TLS 1.1")] {
        // A client hello that offers this version and TLS_RSA_WITH_AES_128_CBC_SHA.
        let mut hello = vec![version[0], version[1]];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0, 2, 0, 0x2f, 1, 0]);
        let mut record = vec![0x16, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
        record.extend_from_slice(&hello);
        let mut socket = connect(&server);
        socket.write_all(&record).expect("writes");
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        // The server sends a fatal alert, and nothing that a server would send to continue.
        assert_eq!(
            (answer.first(), answer.get(5)),
            (Some(&0x15), Some(&2)),
            "{name}: {answer:?}"
        );
    }
    await_failed_handshakes(&server, 3);
}

#[test]
fn a_new_certificate_is_for_new_connections_and_live_ones_go_on() {
    let (old, new) = (local(), local());
    let tls = server_tls(&old, None);
    let (_workers, server) = serve(&tls, Limits::default());
    let address = server.local_addr().port();
    with_client(|client| async move {
        let kept = Origin::https("127.0.0.1", address, client_tls(&old, None));
        ask(&client, &kept, "/collect", "before".into())
            .await
            .expect("the old certificate is shown");
        assert!(
            tls.reload(&new.certificate, &old.key).is_err(),
            "key and certificate do not fit"
        );
        assert!(tls.reload(b"nonsense", &new.key).is_err());
        let asked = ask(&client, &kept, "/slow", "during".into());
        let reload = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            tls.reload(&new.certificate, &new.key).expect("they fit");
        };
        assert_eq!(tokio::join!(asked, reload).0.expect("it goes on").1, b"during");
        ask(&client, &kept, "/collect", "after".into())
            .await
            .expect("a live connection goes on");
        assert_eq!(server.counts().accepted, 1);
        let (fresh_old, fresh_new) = (client_tls(&old, None), client_tls(&new, None));
        let answer = ask(
            &client,
            &Origin::https("127.0.0.1", address, fresh_old),
            "/",
            "x".into(),
        )
        .await;
        assert!(matches!(
            answer.expect_err("the old one is gone").kind,
            SendErrorKind::Tls(_)
        ));
        ask(
            &client,
            &Origin::https("127.0.0.1", address, fresh_new),
            "/",
            "x".into(),
        )
        .await
        .expect("the new certificate is shown");
    });
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let limits = Limits {
        head_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let (_workers, server) = serve(&server_tls(&local(), None), limits);
    let begun = Instant::now();
    let mut silent = connect(&server);
    let mut halfway = connect(&server);
    halfway.write_all(&[0x16, 3, 1, 2, 0, 1]).expect("writes");
    for socket in [&mut silent, &mut halfway] {
        assert!(matches!(socket.read(&mut [0; 10]), Ok(0) | Err(_)));
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    await_failed_handshakes(&server, 2);
}

#[test]
fn a_node_that_does_not_shake_hands_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("an address").port();
    let tls = client_tls(&local(), None);
    run_local(192 << 20, |worker| async move {
        let config = ClientConfig {
            connect_timeout: Duration::from_millis(200),
            ..ClientConfig::default()
        };
        let client = Client::new(config, worker.pool().clone());
        let error = ask(&client, &Origin::https("127.0.0.1", port, tls), "/", "x".into())
            .await
            .expect_err("it is silent");
        assert!(matches!(error.kind, SendErrorKind::ConnectTimeout), "{error}");
        assert_eq!(error.fate, Fate::NothingSent);
    })
    .expect("a runtime");
}

#[test]
fn whoever_is_silent_in_a_handshake_delays_no_drain() {
    let identity = local();
    let (_workers, server) = serve(&server_tls(&identity, None), Limits::default());
    let socket = TcpStream::connect(server.local_addr()).expect("connects");
    run_local(192 << 20, |_| async move {
        // It has been accepted by then.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let began = std::time::Instant::now();
        server.drain(Duration::from_secs(20)).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?}");
    })
    .expect("a runtime");
    drop(socket);
}

#[test]
fn a_request_that_tls_cuts_off_is_no_whole_request() {
    let identity = local();
    let (_workers, server) = serve(&server_tls(&identity, None), Limits::default());
    for (request, answered) in [
        (
            "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell",
            false,
        ),
        (
            "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            false,
        ),
        (
            "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
            true,
        ),
    ] {
        let (mut session, mut socket) = raw_session(&server, &identity);
        rustls::Stream::new(&mut session, &mut socket)
            .write_all(request.as_bytes())
            .expect("writes");
        // The end of the connection without the end of the TLS session.
        socket.shutdown(Shutdown::Write).expect("shuts");
        let mut answer = Vec::new();
        let _ = rustls::Stream::new(&mut session, &mut socket).read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(text.starts_with("HTTP/1.1 200 "), answered, "{request:?}: {text}");
    }
}

#[test]
fn a_reply_that_only_the_connections_end_would_end_needs_the_sessions_end() {
    let identity = local();
    for (says_goodbye, whole) in [(true, true), (false, false)] {
        let port = node_that_answers(&identity, b"HTTP/1.1 200 OK\r\n\r\nhello", says_goodbye);
        let tls = client_tls(&identity, None);
        with_client(|client| async move {
            let headers = http::HeaderMap::new();
            let head = RequestHead {
                method: &Method::GET,
                target: "/",
                headers: &headers,
            };
            let origin = Origin::https("127.0.0.1", port, tls);
            let deadlines = Deadlines::within(Duration::from_secs(20));
            let reply = client.send(&origin, head, Outgoing::Empty, deadlines).await;
            let body = reply.expect("a head").into_body().collect(1000).await;
            match whole {
                true => assert_eq!(&body.expect("whole")[..], b"hello"),
                false => assert!(
                    matches!(
                        body,
                        Err(SendError {
                            kind: SendErrorKind::Closed,
                            ..
                        })
                    ),
                    "a cut reply passes for a whole one: {body:?}"
                ),
            }
        });
    }
}

/// Waits for a count of failed handshakes: a client may see its handshake fail before the server has counted
/// it.
#[track_caller]
fn await_failed_handshakes(server: &Server, count: u64) {
    let begun = Instant::now();
    while server.counts().handshakes_failed != count {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", server.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.local_addr()).expect("connects");
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("sets");
    socket
}

/// Starts a client's TLS session whose socket the test holds.
fn raw_session(server: &Server, trusted: &Identity) -> (rustls::ClientConnection, TcpStream) {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&trusted.certificate) {
        roots.add(certificate.expect("PEM")).expect("a root");
    }
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("an address");
    let session = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
    (session, connect(server))
}

/// Starts a node that gives one answer and closes, with or without ending the TLS session.
fn node_that_answers(identity: &Identity, answer: &'static [u8], says_goodbye: bool) -> u16 {
    let certificate = CertificateDer::from_pem_slice(&identity.certificate).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(&identity.key).expect("PEM");
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they fit");
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut session = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
        let (mut socket, _) = listener.accept().expect("accepts");
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        assert!(stream.read(&mut [0; 1000]).expect("reads") > 0);
        stream.write_all(answer).expect("writes");
        if says_goodbye {
            stream.conn.send_close_notify();
            stream.flush().expect("flushes");
        }
        socket.shutdown(Shutdown::Write).expect("shuts");
        let _ = socket.read(&mut [0; 1000]);
    });
    port
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
