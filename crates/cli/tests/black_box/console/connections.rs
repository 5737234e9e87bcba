//! Connections that send nothing, and bodies of strangers.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use super::process::Console;

/// More connections than the console keeps.
const MANY: usize = 560;

#[test]
fn silent_connections_shut_nobody_out() {
    let console = Console::start(&[]).set_up();
    let open = || TcpStream::connect(console.address()).unwrap();
    // Streams are not cut off, however many others come.
    let mut turn = 0;
    let mut silent = Vec::new();
    let cookie = console.logged_in_as("ada", super::PASSWORD);
    cookie.events(3, |_| {
        let count = if turn == 0 { MANY } else { 1 };
        silent.extend((0..count).map(|_| open()));
        turn += 1;
    });
    for _ in 0..20 {
        assert_eq!(console.get("/api/registry").status, 200);
    }
    // The first of them have lost their places.
    let mut first = silent.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_or_default(), 0);
}
