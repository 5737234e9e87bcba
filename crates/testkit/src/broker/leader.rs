//! Asks brokers which of them leads a partition: one request of Kafka's protocol (`Metadata`, version 1).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Returns the id of the broker that leads a partition, according to the broker at this address; `None` if
/// the partition has no leader now.
pub(super) fn ask(address: &str, topic: &str, partition: i32) -> Result<Option<usize>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut request = Vec::new();
    for number in [METADATA, VERSION] {
        request.extend(number.to_be_bytes());
    }
    request.extend(1_i32.to_be_bytes());
    text(&mut request, "testkit");
    request.extend(1_i32.to_be_bytes());
    text(&mut request, topic);
    stream.write_all(&i32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length))?;
    if length > ANSWER_BYTES_MAX {
        bail!("an answer of {length} bytes");
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Answer(&answer).leader(partition)
}

fn text(request: &mut Vec<u8>, text: &str) {
    request.extend((text.len() as u16).to_be_bytes());
    request.extend(text.as_bytes());
}

/// The rest of an answer.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn leader(mut self, wanted: i32) -> Result<Option<usize>> {
        self.number()?;
        for _ in 0..self.number()? {
            self.number()?;
            self.skip_text()?;
            self.number()?;
            self.skip_text()?;
        }
        self.number()?;
        for _ in 0..self.number()? {
            self.take::<2>()?;
            self.skip_text()?;
            self.take::<1>()?;
            for _ in 0..self.number()? {
                self.take::<2>()?;
                let (partition, leader) = (self.number()?, self.number()?);
                for _ in ["replicas", "in sync"] {
                    for _ in 0..self.number()? {
                        self.number()?;
                    }
                }
                if partition == wanted {
                    return Ok(usize::try_from(leader).ok());
                }
            }
        }
        Ok(None)
    }

    fn number(&mut self) -> Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn skip_text(&mut self) -> Result<()> {
        // The length of a text that is absent is -1.
        let length = i16::from_be_bytes(self.take()?).max(0) as usize;
        self.0 = self.0.get(length..).context("the answer is cut")?;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().context("the answer is cut")?;
        self.0 = rest;
        Ok(*taken)
    }
}

const METADATA: i16 = 3;
const VERSION: i16 = 1;
const TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 1 << 20;
