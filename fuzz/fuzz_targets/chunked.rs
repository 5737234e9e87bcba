//! Hostile chunked bodies, in pieces of any size: what the decoder gives is what reading line by line gives,
//! and it never reads past the body's end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::codec::ChunkDecoder;

fuzz_target!(|input: &[u8]| {
    let [piece, body @ ..] = input else { return };
    let decoded = decode(body, usize::from(*piece).max(1));
    assert_eq!(decoded, decode(body, body.len().max(1)), "pieces matter");
    match by_lines(body) {
        Read::Whole { data, end } => assert_eq!(decoded, Ok((data, Some(end)))),
        Read::Broken => assert!(decoded.is_err(), "what is broken was taken: {decoded:?}"),
        // A line that is not complete yet may be broken already; it is never the end.
        Read::Begun { data } => {
            if let Ok((decoded, end)) = decoded {
                assert_eq!((decoded, end), (data, None));
            }
        }
        Read::OverLimits => {}
    }
});

/// The data, and where the body ended.
fn decode(body: &[u8], piece: usize) -> Result<(Vec<u8>, Option<usize>), ()> {
    let (mut decoder, mut data, mut at) = (ChunkDecoder::default(), Vec::new(), 0);
    while at < body.len() {
        let input = &body[at..(at + piece).min(body.len())];
        let step = decoder.step(input).map_err(drop)?;
        data.extend_from_slice(&input[step.skip..step.skip + step.data]);
        at += step.skip + step.data;
        if step.ended {
            return Ok((data, Some(at)));
        }
    }
    Ok((data, None))
}

enum Read {
    Whole { data: Vec<u8>, end: usize },
    Begun { data: Vec<u8> },
    Broken,
    /// Long extensions and trailers are refused somewhere; where does not matter here.
    OverLimits,
}

/// RFC 9112, section 7.1, by the book.
fn by_lines(body: &[u8]) -> Read {
    let (mut data, mut at, mut extensions, mut trailers) = (Vec::new(), 0, 0, 0);
    loop {
        let Some(line) = line(&body[at..]) else { return Read::Begun { data } };
        at += line.len() + 2;
        let (size, extension) = match line.iter().position(|byte| *byte == b';') {
            Some(end) => (&line[..end], &line[end + 1..]),
            None => (line, &line[line.len()..]),
        };
        extensions += extension.len();
        let Some(size) = hexadecimal(size) else { return Read::Broken };
        if !extension.iter().all(is_text) {
            return Read::Broken;
        }
        if extensions > 4096 {
            return Read::OverLimits;
        }
        if size == 0 {
            break;
        }
        let rest = &body[at..];
        if size > rest.len() as u64 {
            data.extend_from_slice(rest);
            return Read::Begun { data };
        }
        let size = size as usize;
        data.extend_from_slice(&rest[..size]);
        match &rest[size..] {
            [b'\r', b'\n', ..] => at += size + 2,
            [] | [b'\r'] => return Read::Begun { data },
            _ => return Read::Broken,
        }
    }
    let trailers_at = at;
    loop {
        let Some(line) = line(&body[at..]) else { return Read::Begun { data } };
        at += line.len() + 2;
        trailers += 1;
        if trailers > 64 || at - trailers_at > 8192 {
            return Read::OverLimits;
        }
        if line.is_empty() {
            return Read::Whole { data, end: at };
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Read::Broken };
        if colon == 0 || !line[..colon].iter().all(is_token) || !line[colon + 1..].iter().all(is_text) {
            return Read::Broken;
        }
    }
}

/// Up to the first carriage return and line feed.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some(&bytes[..end])
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let fits = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    fits.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

fn is_text(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}
