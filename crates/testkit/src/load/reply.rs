//! Reads replies as a whole, and checks their contents.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;

/// The replies of one connection, read into a reused buffer.
#[derive(Default)]
pub(super) struct Replies {
    buffer: Vec<u8>,
    filled: usize,
}

// === impl Replies ===

impl Replies {
    /// Returns the body of the next reply, which must be a 200.
    pub(super) fn read(&mut self, socket: &mut (impl Read + ?Sized)) -> Result<&[u8]> {
        self.filled = 0;
        let head_end = loop {
            self.fill(socket, 64 << 10)?;
            if let Some(end) = memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let body = if let Some(length) = header(&head, "content-length") {
            let end = head_end + length.parse::<usize>().context("content-length")?;
            while self.filled < end {
                self.fill(socket, end - self.filled)?;
            }
            ensure!(self.filled == end, "bytes after the reply");
            head_end..end
        } else if header(&head, "transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.read_chunks(socket, head_end)?
        } else {
            bail!("a reply without a length: {head}");
        };
        let body = &self.buffer[body];
        let status = head.split(' ').nth(1).unwrap_or_default();
        ensure!(status == "200", "status {status}: {}", beginning(body));
        Ok(body)
    }

    fn read_chunks(
        &mut self,
        socket: &mut (impl Read + ?Sized),
        start: usize,
    ) -> Result<std::ops::Range<usize>> {
        let (mut at, mut end) = (start, start);
        loop {
            let line_end = loop {
                match memmem::find(&self.buffer[at..self.filled], b"\r\n") {
                    Some(found) => break at + found,
                    None => self.fill(socket, 4 << 10)?,
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[at..line_end])?.trim(), 16)
                .context("chunk size")?;
            at = line_end + 2;
            while self.filled < at + size + 2 {
                self.fill(socket, at + size + 2 - self.filled)?;
            }
            self.buffer.copy_within(at..at + size, end);
            end += size;
            at += size + 2;
            if size == 0 {
                return Ok(start..end);
            }
        }
    }

    fn fill(&mut self, socket: &mut (impl Read + ?Sized), room: usize) -> Result<()> {
        if self.buffer.len() < self.filled + room {
            self.buffer.resize(self.filled + room, 0);
        }
        let got = socket.read(&mut self.buffer[self.filled..])?;
        ensure!(got > 0, "closed in the middle of a reply");
        self.filled += got;
        Ok(())
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

/// No errors, and as many items as documents.
pub(super) fn check(body: &[u8], docs: u64) -> Result<()> {
    let opening = &body[..body.len().min(64)];
    ensure!(
        memmem::find(opening, b"\"errors\":false").is_some(),
        "errors: {}",
        beginning(body)
    );
    ensure!(
        body.ends_with(b"]}"),
        "no end: {}",
        String::from_utf8_lossy(&body[body.len().saturating_sub(80)..])
    );
    let items = memmem::find_iter(body, b"\"status\":20").count() as u64;
    ensure!(items == docs, "{items} items for {docs} documents");
    Ok(())
}

/// Checks that the ids of the items are those of the request, in its order. If the request has no ids, the
/// items may have any.
pub(super) fn check_ids(body: &[u8], request: &[u8], places: &[usize]) -> Result<()> {
    let mut got = id_places(body);
    for (at, wanted) in places.iter().enumerate() {
        let wanted = id_at(request, *wanted);
        let got = got.next().map_or(&b""[..], |place| id_at(body, place));
        let show = String::from_utf8_lossy;
        ensure!(
            got == wanted,
            "item {at} is of {}, not {}",
            show(got),
            show(wanted)
        );
    }
    Ok(())
}

/// Returns where the values of `"_id": "…"` begin, however the colon is spaced. None of the generated sources
/// has such a key.
pub(super) fn id_places(text: &[u8]) -> impl Iterator<Item = usize> {
    const KEY: &[u8] = b"\"_id\"";
    memmem::find_iter(text, KEY).filter_map(|at| {
        let mut value = at + KEY.len();
        while matches!(text.get(value), Some(b' ' | b':')) {
            value += 1;
        }
        (text.get(value) == Some(&b'"')).then_some(value + 1)
    })
}

fn id_at(text: &[u8], place: usize) -> &[u8] {
    let value = &text[place..];
    &value[..memchr::memchr(b'"', value).unwrap_or(value.len())]
}

fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_with_a_length_and_in_chunks() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(Replies::default().read(&mut &text[..]).unwrap(), b"{}");
        let text = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(Replies::default().read(&mut &text[..]).unwrap(), b"abcde");
    }

    #[test]
    fn wrong_replies_are_told_apart() {
        assert!(
            Replies::default()
                .read(&mut &b"HTTP/1.1 429 X\r\ncontent-length: 0\r\n\r\n"[..])
                .is_err()
        );
        assert!(
            Replies::default()
                .read(&mut &b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{}"[..])
                .is_err()
        );
        check(
            br#"{"took":1,"errors":false,"items":[{"index":{"_id":"a","status":201}}]}"#,
            1,
        )
        .unwrap();
        check(
            br#"{"took":1,"errors":false,"items":[{"index":{"_id":"a","status":201}}]}"#,
            2,
        )
        .unwrap_err();
        check(
            br#"{"took":1,"errors":true,"items":[{"index":{"_id":"a","status":201}}]}"#,
            1,
        )
        .unwrap_err();
        let (request, other) = (br#"{"_id" : "a"}{"_id": "b"}"#, br#"{"_id":"b"}{"_id":"a"}"#);
        let places: Vec<_> = id_places(request).collect();
        check_ids(request, request, &places).unwrap();
        check_ids(other, request, &places).unwrap_err();
    }
}
