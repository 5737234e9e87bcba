//! Compresses answers for clients that accept it, as the servers do (Netty's `HttpContentCompressor`, level
//! 3). Nodes send their answers uncompressed to the gateway, since it reads and merges the items.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use wire::{Buffer, CHUNK_BYTES, Chunk, Outgoing, Pool};

/// The coding of a compressed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

/// The default of the servers' `http.compression_level`.
const LEVEL: u32 = 3;

/// The ratio at which bulk answers are typically compressed; few compress better.
const RATIO_TYPICAL: usize = 8;

// === impl Coding ===

impl Coding {
    /// Returns the coding that a server would choose, of those that all servers know
    /// (`HttpContentCompressor.determineEncoding`): names are found within the words of the list, in lower
    /// case, and gzip wins among equals.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let (mut gzip, mut deflate) = (0.0, 0.0);
        for value in headers.get_all(ACCEPT_ENCODING) {
            for word in value.to_str().unwrap_or_default().split(',') {
                let quality = word.split_once("q=").map_or(1.0, |(_, quality)| {
                    quality.trim().parse::<f32>().unwrap_or_default()
                });
                if word.contains("gzip") {
                    gzip = quality.max(gzip);
                } else if word.contains("deflate") {
                    deflate = quality.max(deflate);
                }
            }
        }
        match (gzip, deflate) {
            (gzip, deflate) if gzip > 0.0 && gzip >= deflate => Some(Coding::Gzip),
            (_, deflate) if deflate > 0.0 => Some(Coding::Deflate),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }
}

/// Compresses a complete answer chunk by chunk. Each chunk is freed once it is compressed, and other tasks
/// get a turn in between.
pub(crate) async fn answer(answer: Response<Outgoing>, coding: Coding, pool: &Pool) -> Response<Outgoing> {
    let (mut head, body) = answer.into_parts();
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&head.status);
    let chunks: Vec<Chunk> = match body {
        Outgoing::Full(chunk) if !bodiless && !head.headers.contains_key(CONTENT_ENCODING) => vec![chunk],
        Outgoing::Chunks(chunks) if !bodiless && !head.headers.contains_key(CONTENT_ENCODING) => {
            chunks.into()
        }
        body => return Response::from_parts(head, body),
    };
    let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let packed = Packed(pool.take(length / RATIO_TYPICAL));
    let level = Compression::new(LEVEL);
    let packed = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(packed, level);
            write(&mut encoder, chunks).await;
            encoder.finish()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(packed, level);
            write(&mut encoder, chunks).await;
            encoder.finish()
        }
    };
    let Packed(packed) = packed.expect(MEMORY);
    let coding = HeaderValue::from_static(coding.as_str());
    head.headers.insert(CONTENT_ENCODING, coding);
    Response::from_parts(head, packed.into())
}

async fn write(encoder: &mut impl Write, chunks: Vec<Chunk>) {
    for chunk in chunks {
        for piece in chunk.chunks(CHUNK_BYTES) {
            encoder.write_all(piece).expect(MEMORY);
            tokio::task::yield_now().await;
        }
    }
}

/// Pooled memory that implements `Write`.
struct Packed(Buffer);

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const MEMORY: &str = "memory takes every write";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_what_servers_choose() {
        for (accepts, expected) in [
            (&["gzip"][..], Some(Coding::Gzip)),
            (&["gzip, deflate"], Some(Coding::Gzip)),
            (&["deflate", "gzip"], Some(Coding::Gzip)),
            (&["br, zstd, deflate;q=0.9, gzip;q=0.5"], Some(Coding::Deflate)),
            (&["gzip;q=0, deflate"], Some(Coding::Deflate)),
            (&["identity, gzip;q=0.1"], Some(Coding::Gzip)),
            (&["GZIP"], None),
            (&["gzip;q=none"], None),
            (&["identity"], None),
            (&["br"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in accepts {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(Coding::accepted(&headers), expected, "{accepts:?}");
        }
    }
}
