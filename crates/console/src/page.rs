//! The page: files that are part of the binary, compressed when it was built, with their digest as `ETag`.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::read::GzDecoder;

use crate::api::Refusal;

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// A file of the page.
struct File {
    packed: &'static [u8],
    /// The file unpacked, once a client has asked for it that takes no gzip.
    plain: OnceLock<Bytes>,
    kind: &'static str,
    etag: String,
    /// The file's name contains a digest, so the file never changes.
    is_forever: bool,
}

/// Serves a file, or answers that there is none.
pub(crate) async fn serve(request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Refusal::method().into_response();
    }
    let name = match request.uri().path().trim_start_matches('/') {
        "" => "index.html",
        name => name,
    };
    match files().get(name) {
        Some(file) => file.answer(request.headers()),
        None => Refusal::not_found("there is no such page").into_response(),
    }
}

fn files() -> &'static HashMap<&'static str, File> {
    static MADE: OnceLock<HashMap<&'static str, File>> = OnceLock::new();
    MADE.get_or_init(|| {
        FILES
            .iter()
            .map(|(name, bytes)| (*name, File::new(name, bytes)))
            .collect()
    })
}

impl File {
    fn new(name: &str, packed: &'static [u8]) -> Self {
        let etag = URL_SAFE_NO_PAD.encode(&digest(&SHA256, packed).as_ref()[..12]);
        Self {
            packed,
            plain: OnceLock::new(),
            kind: kind_of(name),
            etag: format!("\"{etag}\""),
            is_forever: name.starts_with("assets/"),
        }
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let cache = if self.is_forever {
            "public, max-age=31536000, immutable"
        } else {
            "no-store"
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(ETAG, etag);
        }
        let text = |name| {
            asked
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        if text(IF_NONE_MATCH)
            .split(',')
            .any(|known| known.trim().trim_start_matches("W/") == self.etag)
        {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let takes_gzip = text(ACCEPT_ENCODING)
            .split(',')
            .any(|coding| coding.trim() == "gzip");
        if takes_gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return (headers, Bytes::from_static(self.packed)).into_response();
        }
        match self.plain() {
            Some(plain) => (headers, plain).into_response(),
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// Returns the file unpacked; `None` is impossible, since the build packed it.
    fn plain(&self) -> Option<Bytes> {
        if let Some(plain) = self.plain.get() {
            return Some(plain.clone());
        }
        let mut plain = Vec::new();
        GzDecoder::new(self.packed).read_to_end(&mut plain).ok()?;
        Some(self.plain.get_or_init(|| plain.into()).clone())
    }
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("png") => "image/png",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_there_and_all_that_it_names_as_well() {
        let index = files()["index.html"].plain().unwrap();
        let text = std::str::from_utf8(&index).unwrap();
        let named: Vec<&str> = text
            .split('"')
            .filter(|part| part.contains("assets/"))
            .map(|part| part.trim_start_matches("./"))
            .collect();
        assert!(!named.is_empty());
        for name in named {
            assert!(files().contains_key(name), "{name}");
        }
    }

    #[test]
    fn each_file_is_what_was_built_packed_or_not() {
        let dist = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist"));
        let (mut packed, mut plain) = (0, 0);
        for (name, file) in files() {
            let built = std::fs::read(dist.join(name)).unwrap();
            assert_eq!(file.plain().unwrap(), built, "{name}");
            packed += file.packed.len();
            plain += built.len();
        }
        assert!(packed * 2 < plain, "{packed} of {plain} bytes");
    }
}
