//! Access-log documents as nginx writes them in JSON, made by a seeded generator: about 600 bytes each, no
//! two alike, and the same bytes for the same seed on every machine.
//!
//! The variety is that of a busy shop's site: a few clients send much and many send little, most requests are
//! successful reads of popular paths, crawlers and monitors come in between, and times are skewed with a long
//! tail. Documents are independent of one another except for the clock, which advances by some milliseconds
//! per line.
//!
//! ```
//! let mut lines = testkit::nginx::Nginx::new(7);
//! let mut source = Vec::new();
//! lines.write_source(&mut source);
//! assert!(source.starts_with(br#"{"@timestamp":"2026-"#) && source.ends_with(b"}"));
//! ```

mod bulk;
mod words;

pub use bulk::{Bulk, Documents, Ids, Operation, Style};

use std::io::Write as _;

use words::{AGENTS, CATEGORIES, HOSTS, METHODS, PATHS, REFERRERS, SEARCHES, STATUSES, UPSTREAMS, pick};

/// The sources shipped with the project: [`SAMPLE_DOCS`] lines made by `Nginx::new(SAMPLE_SEED)`.
pub const SAMPLE: &[u8] = include_bytes!("../samples/nginx.ndjson");

/// Number of lines of [`SAMPLE`].
pub const SAMPLE_DOCS: usize = 4_000;

/// The seed that [`SAMPLE`] was made with.
pub const SAMPLE_SEED: u64 = 1;

/// The sources of [`SAMPLE`], one JSON object each, without their newline.
pub fn sample() -> impl Iterator<Item = &'static [u8]> {
    SAMPLE
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// A generator of access-log lines; equal seeds give equal lines.
#[derive(Debug, Clone)]
pub struct Nginx {
    rng: fastrand::Rng,
    /// Milliseconds since 2026-03-01T00:00:00Z.
    clock_ms: u64,
}

impl Nginx {
    /// Starts at 2026-03-01T00:00:00Z with this seed.
    pub fn new(seed: u64) -> Nginx {
        Nginx {
            rng: fastrand::Rng::with_seed(seed),
            clock_ms: 0,
        }
    }

    /// Appends one source: a JSON object on one line, without a newline.
    pub fn write_source(&mut self, out: &mut Vec<u8>) {
        let rng = &mut self.rng;
        self.clock_ms += rng.u64(0..35);
        let status: u16 = pick(rng, STATUSES);
        let method = pick(rng, METHODS);
        let bot = rng.u8(0..100) < 9;
        let agent = if bot {
            words::BOTS[rng.usize(0..words::BOTS.len())]
        } else {
            pick(rng, AGENTS)
        };

        out.extend_from_slice(b"{\"@timestamp\":\"");
        write_time(out, self.clock_ms);
        push(
            out,
            format_args!("\",\"remote_addr\":\"{}\",\"remote_user\":\"", address(rng)),
        );
        if rng.u8(0..100) < 4 {
            push(out, format_args!("user{:04}", rng.u16(0..3000)));
        } else {
            out.push(b'-');
        }
        push(
            out,
            format_args!(
                "\",\"host\":\"{}\",\"method\":\"{method}\",\"uri\":\"",
                pick(rng, HOSTS)
            ),
        );
        let asset = write_path(rng, out);
        let bytes = body_bytes(rng, status, method, asset);
        push(
            out,
            format_args!(
                "\",\"protocol\":\"{}\",\"status\":{status},",
                if bot { "HTTP/1.1" } else { "HTTP/2.0" }
            ),
        );
        push(
            out,
            format_args!(
                "\"body_bytes_sent\":{bytes},\"bytes_sent\":{},",
                bytes + rng.u32(190..640)
            ),
        );
        push(
            out,
            format_args!("\"request_length\":{},\"referrer\":\"", rng.u32(180..2400)),
        );
        write_referrer(rng, out, bot);
        push(out, format_args!("\",\"user_agent\":\"{agent}\","));
        write_times(rng, out, status, asset);
        push(
            out,
            format_args!(
                "\"ssl_protocol\":\"{}\",",
                if rng.u8(0..100) < 88 { "TLSv1.3" } else { "TLSv1.2" }
            ),
        );
        push(out, format_args!("\"request_id\":\"{:032x}\"}}", rng.u128(..)));
    }

    /// Returns `docs` sources, one per line, each with its newline.
    pub fn ndjson(&mut self, docs: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(docs * 640);
        for _ in 0..docs {
            self.write_source(&mut out);
            out.push(b'\n');
        }
        out
    }
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

/// Writes a time `2026-03-DDTHH:MM:SS.mmmZ`, which returns to the 1st after 31 days.
fn write_time(out: &mut Vec<u8>, clock_ms: u64) {
    let (ms, s) = (clock_ms % 1000, clock_ms / 1000);
    let (day, hour, minute) = (1 + s / 86_400 % 31, s / 3600 % 24, s / 60 % 60);
    push(
        out,
        format_args!("2026-03-{day:02}T{hour:02}:{minute:02}:{:02}.{ms:03}Z", s % 60),
    );
}

/// Returns a client's address. One client in five is among a hundred heavy ones (offices, crawlers,
/// monitors); one in ten uses IPv6.
fn address(rng: &mut fastrand::Rng) -> String {
    if rng.u8(0..100) < 20 {
        let n = rng.u8(0..100);
        return format!("203.0.113.{n}");
    }
    if rng.u8(0..100) < 10 {
        return format!("2001:db8:{:x}:{:x}::{:x}", rng.u16(..), rng.u16(..), rng.u16(1..));
    }
    format!(
        "{}.{}.{}.{}",
        rng.u8(11..223),
        rng.u8(..),
        rng.u8(..),
        rng.u8(1..255)
    )
}

/// Writes the path and, sometimes, a query. Returns whether it is a static file.
fn write_path(rng: &mut fastrand::Rng, out: &mut Vec<u8>) -> bool {
    let path: &str = pick(rng, PATHS);
    match path {
        "product" => {
            let category = CATEGORIES[rng.usize(0..CATEGORIES.len())];
            push(
                out,
                format_args!(
                    "/shop/{category}/{}-{:05}.html",
                    category.trim_end_matches('s'),
                    rng.u32(0..40_000)
                ),
            );
        }
        "list" => {
            let category = CATEGORIES[rng.usize(0..CATEGORIES.len())];
            push(
                out,
                format_args!(
                    "/shop/{category}/?page={}&sort={}",
                    rng.u8(1..40),
                    ["price", "new", "top"][rng.usize(0..3)]
                ),
            );
        }
        "search" => {
            let term = SEARCHES[rng.usize(0..SEARCHES.len())];
            push(
                out,
                format_args!("/search?q={term}&from={}&size=24", rng.u16(0..20) * 24),
            );
        }
        "image" => push(
            out,
            format_args!("/media/{:02x}/{:016x}.webp", rng.u8(..), rng.u64(..)),
        ),
        "asset" => push(
            out,
            format_args!(
                "/static/app.{:08x}.{}",
                rng.u32(0..24),
                ["js", "css", "woff2"][rng.usize(0..3)]
            ),
        ),
        "api" => push(
            out,
            format_args!("/api/v2/orders/{}/items", rng.u32(100_000..999_999)),
        ),
        fixed => out.extend_from_slice(fixed.as_bytes()),
    }
    matches!(path, "image" | "asset")
}

fn write_referrer(rng: &mut fastrand::Rng, out: &mut Vec<u8>, bot: bool) {
    let referrer: &str = if bot { "-" } else { pick(rng, REFERRERS) };
    if referrer == "shop" {
        let category = CATEGORIES[rng.usize(0..CATEGORIES.len())];
        push(
            out,
            format_args!("https://www.example.com/shop/{category}/?page={}", rng.u8(1..40)),
        );
    } else {
        out.extend_from_slice(referrer.as_bytes());
    }
}

fn body_bytes(rng: &mut fastrand::Rng, status: u16, method: &str, asset: bool) -> u32 {
    match status {
        204 | 304 => 0,
        _ if method == "HEAD" => 0,
        301 | 302 => 169,
        200 | 206 if asset => rng.u32(2_000..480_000),
        200 | 201 | 206 => rng.u32(300..64_000),
        _ => rng.u32(150..1_200),
    }
}

/// Writes request and upstream times in seconds: products of uniform random numbers, so most are short and a
/// few are long.
fn write_times(rng: &mut fastrand::Rng, out: &mut Vec<u8>, status: u16, asset: bool) {
    let upstream = if status == 504 {
        60.0
    } else {
        0.002 + rng.f64() * rng.f64() * rng.f64() * 2.2
    };
    let request = upstream + rng.f64() * rng.f64() * 0.4;
    push(out, format_args!("\"request_time\":{request:.3},"));
    if asset {
        push(
            out,
            format_args!(
                "\"upstream_addr\":\"-\",\"upstream_status\":\"-\",\"upstream_response_time\":null,\"cache\":\"HIT\","
            ),
        );
    } else {
        let address = UPSTREAMS[rng.usize(0..UPSTREAMS.len())];
        let cache = if rng.u8(0..100) < 70 { "MISS" } else { "BYPASS" };
        push(
            out,
            format_args!("\"upstream_addr\":\"{address}\",\"upstream_status\":\"{status}\","),
        );
        push(
            out,
            format_args!("\"upstream_response_time\":{upstream:.3},\"cache\":\"{cache}\","),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::words::Weighted;
    use super::*;

    #[test]
    fn the_shipped_sample_is_what_its_seed_makes() {
        assert_eq!(SAMPLE, Nginx::new(SAMPLE_SEED).ndjson(SAMPLE_DOCS));
        assert_eq!(sample().count(), SAMPLE_DOCS);
    }

    #[test]
    fn every_line_is_a_json_object_of_about_600_bytes() {
        let text = Nginx::new(3).ndjson(2_000);
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let value: serde_json::Value = serde_json::from_slice(line).unwrap();
            assert!(
                value["status"].is_u64() && value["request_time"].is_f64(),
                "{value}"
            );
        }
        let mean = text.len() / 2_000;
        assert!((560..=640).contains(&mean), "mean line is {mean} bytes");
    }

    #[test]
    fn other_seeds_make_other_lines() {
        assert_ne!(Nginx::new(1).ndjson(3), Nginx::new(2).ndjson(3));
    }

    #[test]
    fn weights_are_shares_of_a_hundred() {
        fn total<T>(choices: &[Weighted<T>]) -> u32 {
            choices.iter().map(|choice| u32::from(choice.0)).sum()
        }
        assert_eq!(
            [
                total(STATUSES),
                total(METHODS),
                total(HOSTS),
                total(PATHS),
                total(REFERRERS),
                total(AGENTS)
            ],
            [100; 6]
        );
    }
}
