//! Reads replies as a whole.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;

/// The replies of one connection, read into a reused buffer.
#[derive(Default)]
pub(super) struct Replies {
    buffer: Vec<u8>,
    filled: usize,
}

/// A whole reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The status.
    pub status: u16,
    head: &'a str,
    /// The body, without the marks between its chunks.
    pub body: &'a [u8],
}

// === impl Reply ===

impl<'a> Reply<'a> {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        header(self.head, name)
    }

    /// Returns the body as JSON.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(self.body)
            .with_context(|| format!("status {}: {:.300}", self.status, self.text()))
    }

    /// Returns the body as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }

    /// Returns whether the server closes the connection after this reply.
    pub(super) fn is_last(&self) -> bool {
        self.header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

// === impl Replies ===

impl Replies {
    /// Returns the next reply.
    pub(super) fn read(&mut self, socket: &mut (impl Read + ?Sized)) -> Result<Reply<'_>> {
        self.filled = 0;
        let head_end = loop {
            self.fill(socket, 64 << 10)?;
            if let Some(end) = memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end]).context("a head that is no text")?;
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("a reply without a status: {head}"))?;
        let body = if let Some(length) = header(head, "content-length") {
            let end = head_end + length.parse::<usize>().context("content-length")?;
            while self.filled < end {
                self.fill(socket, end - self.filled)?;
            }
            ensure!(self.filled == end, "bytes after the reply");
            head_end..end
        } else if header(head, "transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.read_chunks(socket, head_end)?
        } else {
            bail!("a reply without a length: {head}");
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?;
        let body = &self.buffer[body];
        Ok(Reply { status, head, body })
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
        let got = socket
            .read(&mut self.buffer[self.filled..])
            .with_context(|| format!("{} bytes of it have come", self.filled))?;
        ensure!(got > 0, "closed in the middle of a reply");
        self.filled += got;
        Ok(())
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split('\n').find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_with_a_length_and_in_chunks() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let mut replies = Replies::default();
        let reply = replies.read(&mut &text[..]).unwrap();
        assert_eq!(
            (reply.status, reply.body, reply.is_last()),
            (200, &b"{}"[..], false)
        );
        let text = b"HTTP/1.1 429 X\r\ntransfer-encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let reply = replies.read(&mut &text[..]).unwrap();
        assert_eq!(
            (reply.status, reply.body, reply.is_last()),
            (429, &b"abcde"[..], true)
        );
        assert_eq!(reply.header("CONNECTION"), Some("close"));
    }

    #[test]
    fn half_a_reply_is_none() {
        for text in [
            &b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{}"[..],
            b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            b"HTTP/1.1 200 X\r\ncontent-le",
            b"HTTP/1.1 200 X\r\n\r\n",
        ] {
            assert!(Replies::default().read(&mut &text[..]).is_err());
        }
    }
}
