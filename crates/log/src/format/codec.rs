//! Compression of a record's groups. Each group is compressed by itself, so that a lane's reader unpacks only
//! its own groups.

use std::cell::RefCell;
use std::io;

/// How groups are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// No compression: the least CPU.
    #[default]
    None,
    /// LZ4 block: fast, with a low compression ratio.
    Lz4,
    /// Zstandard at level 1: a high compression ratio.
    Zstd,
}

// === impl Codec ===

impl Codec {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::None, Self::Lz4, Self::Zstd]
            .into_iter()
            .find(|codec| codec.number() == number)
    }

    /// Compresses `raw` and appends the result to `out`.
    pub(crate) fn pack(self, raw: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::None => out.extend_from_slice(raw),
            Self::Lz4 => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                let packed = lz4_flex::block::compress_into(raw, &mut out[start..]);
                out.truncate(start + packed.expect("room for the worst case"));
            }
            Self::Zstd => {
                out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
                let packed = with_zstd(|zstd| zstd.compress_to_buffer(raw, &mut out[start..]));
                out.truncate(start + packed.expect("room for the worst case"));
            }
        }
    }

    /// Unpacks `stored`, which must give exactly `raw_bytes` bytes, and appends them to `out`. After an error
    /// `out` is as it was.
    pub(crate) fn unpack(self, stored: &[u8], raw_bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        let unpacked = match self {
            Self::None => {
                out.extend_from_slice(stored);
                Ok(stored.len())
            }
            Self::Lz4 => {
                out.resize(start + raw_bytes, 0);
                lz4_flex::block::decompress_into(stored, &mut out[start..]).map_err(io::Error::other)
            }
            Self::Zstd => {
                out.resize(start + raw_bytes, 0);
                UNPACKER.with_borrow_mut(|zstd| {
                    let zstd = match zstd {
                        Some(zstd) => zstd,
                        None => zstd.insert(zstd::bulk::Decompressor::new()?),
                    };
                    zstd.decompress_to_buffer(stored, &mut out[start..])
                })
            }
        };
        let checked = match unpacked {
            Ok(bytes) if bytes == raw_bytes => Ok(()),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(error),
        };
        if checked.is_err() {
            out.truncate(start);
        }
        checked
    }

    /// Like [`Codec::unpack`], for all of `stored`; bytes that are not packed are not copied.
    pub(crate) fn unpacked(self, stored: Vec<u8>, raw_bytes: usize) -> io::Result<Vec<u8>> {
        if self == Self::None && stored.len() == raw_bytes {
            return Ok(stored);
        }
        let mut raw = Vec::new();
        self.unpack(&stored, raw_bytes, &mut raw)?;
        Ok(raw)
    }
}

fn with_zstd<T>(pack: impl FnOnce(&mut zstd::bulk::Compressor<'static>) -> io::Result<T>) -> io::Result<T> {
    PACKER.with_borrow_mut(|zstd| match zstd {
        Some(zstd) => pack(zstd),
        None => pack(zstd.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL)?)),
    })
}

// A context costs some hundred KiB to set up, so each thread keeps its own.
thread_local! {
    static PACKER: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Higher levels cost several times as much for a tenth less output.
const ZSTD_LEVEL: i32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks_to_itself_and_a_wrong_length_is_refused() {
        let raw: Vec<u8> = (0..5000u32)
            .flat_map(|n| format!("{{\"n\":{n}}}\n").into_bytes())
            .collect();
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let (mut packed, mut out) = (b"before".to_vec(), b"kept".to_vec());
            codec.pack(&raw, &mut packed);
            assert_eq!(codec == Codec::None, packed.len() == 6 + raw.len());
            codec.unpack(&packed[6..], raw.len(), &mut out).unwrap();
            assert!(out.starts_with(b"kept") && out[4..] == raw);
            assert!(codec.unpack(&packed[6..], raw.len() - 1, &mut out).is_err());
            assert_eq!(out.len(), 4 + raw.len());
            let stored = packed.split_off(6);
            assert!(codec.unpacked(stored.clone(), raw.len() - 1).is_err());
            assert_eq!(codec.unpacked(stored, raw.len()).unwrap(), raw);
            assert_eq!(Codec::of(codec.number()), Some(codec));
        }
    }
}
