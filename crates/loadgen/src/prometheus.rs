//! Figures for Prometheus to scrape, on a port of their own while the load runs.

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wire::exposition::{Exposition, Metric};

use crate::progress::{Counts, Progress};

/// A port that answers every request with the figures.
#[derive(Debug, Clone)]
pub struct Prometheus {
    page: Arc<Mutex<String>>,
    address: SocketAddr,
}

// === impl Prometheus ===

impl Prometheus {
    /// Listens until the process ends.
    ///
    /// # Errors
    /// If the port can't be bound.
    pub fn listen(address: SocketAddr) -> io::Result<Prometheus> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        // Before the first second is over, all figures are zero.
        let page = Arc::new(Mutex::new(text(&Progress::default())));
        let shown = Arc::clone(&page);
        std::thread::Builder::new()
            .name("prometheus".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let page = shown.lock().clone();
                    // A scraper that goes away does not matter.
                    let _ = answer(stream, &page);
                }
            })?;
        Ok(Prometheus { page, address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the figures that are answered from now on.
    pub fn show(&self, now: &Progress) {
        *self.page.lock() = text(now);
    }
}

/// Reads the head of a request, whatever it asks for, and answers.
fn answer(mut stream: TcpStream, page: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut head, mut filled) = ([0; HEAD_BYTES_MAX], 0);
    while !head[..filled].ends_with(b"\r\n\r\n") && filled < head.len() {
        match stream.read(&mut head[filled..])? {
            0 => return Ok(()),
            got => filled += got,
        }
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}",
        page.len()
    )
}

fn text(now: &Progress) -> String {
    let mut page = String::new();
    let mut out = Exposition::new(&mut page);
    out.table("loadgen_", &OF_COUNTS, &[(String::new(), &now.total)]);
    if let Some(ms) = &now.latency_ms {
        let quantiles = [("0.5", ms.p50), ("0.9", ms.p90), ("0.99", ms.p99), ("1", ms.max)];
        let samples = quantiles.map(|(quantile, ms)| (format!("quantile=\"{quantile}\""), ms / 1e3));
        let (name, help) = ("loadgen_latency_seconds", "Latency in the last second.");
        out.metric(name, "gauge", help, samples);
    }
    page
}

const OF_COUNTS: [Metric<Counts>; 7] = [
    ("requests_total", "counter", "Requests answered.", |counts| {
        Some(counts.answers as f64)
    }),
    (
        "errors_total",
        "counter",
        "Requests without an answer.",
        |counts| Some(counts.errors as f64),
    ),
    (
        "invalid_total",
        "counter",
        "Answers that were not as they should be.",
        |counts| Some(counts.invalid as f64),
    ),
    (
        "documents_total",
        "counter",
        "Documents accepted, by their items.",
        |counts| Some(counts.documents as f64),
    ),
    (
        "failed_documents_total",
        "counter",
        "Documents that failed, by their items.",
        |counts| Some(counts.failed_documents as f64),
    ),
    ("sent_bytes_total", "counter", "Bytes of bodies sent.", |counts| {
        Some(counts.sent_bytes as f64)
    }),
    (
        "received_bytes_total",
        "counter",
        "Bytes of bodies received.",
        |counts| Some(counts.received_bytes as f64),
    ),
];

const PATIENCE: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_gets_the_figures_of_now() {
        let prometheus = Prometheus::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let counts = Counts {
            documents: 42,
            ..Counts::default()
        };
        prometheus.show(&Progress {
            at_s: 1.0,
            span_s: 1.0,
            last: counts,
            total: counts,
            latency_ms: None,
            trouble: None,
        });
        let mut stream = TcpStream::connect(prometheus.address()).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("\nloadgen_documents_total 42\n"),
            "{answer}"
        );
    }
}
