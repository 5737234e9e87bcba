//! The fast reader of action lines, which takes only lines that it fully understands.
//!
//! The reader knows one shape: `{"op":{"key":value,…}}` with the keys `_index`, `_id`, `routing`, `pipeline`
//! and `_type` (of the value `_doc` only), each at most once, whose values are null or non-empty strings of
//! plain ASCII without escapes; there may be spaces between tokens. Shippers and client libraries write this
//! shape. For any other line the reader returns `None`, and [`crate::slow`] decides.

use crate::action::{Action, Form, ID_BYTES_MAX, IdGap, Op, TypeAt};

/// Reads the action line that begins at `at`; returns it with the place after its newline.
#[inline]
pub(crate) fn action(body: &[u8], at: usize) -> Option<(Action<'_>, usize)> {
    let line = body.get(at..)?;
    let (op, mut p) = head(line)?;
    let mut action = without_keys(op, p);
    let mut seen = 0_u8;
    p = spaces(line, p);
    if *line.get(p)? == b'}' {
        action.id_gap.form = Form::Only;
        p += 1;
    } else {
        let mut before = p;
        loop {
            let from = p;
            let (key, after_key) = key(line, p)?;
            if seen & key != 0 {
                return None;
            }
            seen |= key;
            p = spaces(line, expect(line, spaces(line, after_key), b':')?);
            let value = string_or_null(line, p)?;
            if value.is_none() && key == ID {
                action.id_gap = IdGap {
                    at: p as u32,
                    cut: NULL.len() as u32,
                    form: Form::Value,
                };
            }
            p += value.map_or(NULL.len(), |value| value.len() + 2);
            match key {
                INDEX => action.index = value,
                ID => action.id = value,
                ROUTING => action.routing = value,
                TYPE if value == Some(b"_doc") => action.typed = true,
                TYPE => return None,
                _ => action.pipeline = value,
            }
            let end = p;
            p = spaces(line, p);
            let last = match *line.get(p)? {
                b',' => false,
                b'}' => true,
                _ => return None,
            };
            if !last {
                p = spaces(line, p + 1);
            }
            if key == TYPE {
                action.type_at = Some(type_at(from, before, end, p, seen == TYPE, last));
            }
            before = end;
            if last {
                break;
            }
        }
        action.routing_null = seen & ROUTING != 0 && action.routing.is_none();
        p += 1;
    }
    p = expect(line, spaces(line, p), b'}')?;
    if *line.get(p)? == b'\r' {
        p += 1;
    }
    p = expect(line, p, b'\n')?;
    if action.id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
        return None;
    }
    Some((action, at + p))
}

/// Returns an action whose object, which begins at `at`, has no keys.
#[inline(always)]
fn without_keys<'b>(op: Op, at: usize) -> Action<'b> {
    Action {
        op,
        index: None,
        id: None,
        routing: None,
        routing_null: false,
        pipeline: None,
        typed: false,
        type_at: None,
        require_alias: None,
        require_data_stream: None,
        id_gap: IdGap {
            at: at as u32,
            cut: 0,
            form: Form::First,
        },
        compare_and_set: false,
        versioned: false,
    }
}

/// Reads the value at `at`, without its quotes; the inner option is `None` for null.
#[inline(always)]
fn string_or_null(line: &[u8], at: usize) -> Option<Option<&[u8]>> {
    if *line.get(at)? == b'"' {
        return plain_string(line, at + 1).map(Some);
    }
    line[at..].starts_with(NULL).then_some(None)
}

/// Returns the place of a type that stands at `from..end`; the key before it ends at `before`, the next key
/// begins at `next`.
fn type_at(from: usize, before: usize, end: usize, next: usize, first: bool, last: bool) -> TypeAt {
    let (start, end) = match (first, last) {
        (false, _) => (before, end),
        (true, true) => (from, end),
        (true, false) => (from, next),
    };
    TypeAt {
        start: start as u32,
        end: end as u32,
        alone: first && last,
    }
}

const NULL: &[u8] = b"null";

const INDEX: u8 = 1;
const ID: u8 = 2;
const ROUTING: u8 = 4;
const PIPELINE: u8 = 8;
const TYPE: u8 = 16;

/// Reads `{"op":{`; returns the operation and the place after it.
#[inline]
fn head(line: &[u8]) -> Option<(Op, usize)> {
    let p = expect(line, spaces(line, expect(line, 0, b'{')?), b'"')?;
    let (op, length) = match line.get(p..p + 7)? {
        [b'i', b'n', b'd', b'e', b'x', b'"', _] => (Op::Index, 6),
        b"create\"" => (Op::Create, 7),
        b"update\"" => (Op::Update, 7),
        b"delete\"" => (Op::Delete, 7),
        _ => return None,
    };
    let p = expect(line, spaces(line, p + length), b':')?;
    let p = expect(line, spaces(line, p), b'{')?;
    Some((op, p))
}

/// Reads one of the five keys; returns it with the place after its closing quote.
#[inline]
fn key(line: &[u8], p: usize) -> Option<(u8, usize)> {
    let rest = line.get(p..)?;
    if rest.starts_with(b"\"_id\"") {
        Some((ID, p + 5))
    } else if rest.starts_with(b"\"_index\"") {
        Some((INDEX, p + 8))
    } else if rest.starts_with(b"\"routing\"") {
        Some((ROUTING, p + 9))
    } else if rest.starts_with(b"\"pipeline\"") {
        Some((PIPELINE, p + 10))
    } else if rest.starts_with(b"\"_type\"") {
        Some((TYPE, p + 7))
    } else {
        None
    }
}

#[inline]
fn spaces(line: &[u8], mut p: usize) -> usize {
    while line.get(p) == Some(&b' ') {
        p += 1;
    }
    p
}

#[inline]
fn expect(line: &[u8], p: usize, byte: u8) -> Option<usize> {
    if *line.get(p)? == byte { Some(p + 1) } else { None }
}

/// Reads the string that begins at `p`, after its opening quote: not empty, ASCII, no escapes, no control
/// characters.
#[inline(always)]
pub(crate) fn plain_string(line: &[u8], p: usize) -> Option<&[u8]> {
    let rest = line.get(p..)?;
    let mut at = 0;
    #[cfg(target_arch = "x86_64")]
    while let Some(chunk) = rest.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        // SAFETY: every x86-64 processor has SSE2.
        let stops = unsafe { sixteen_stops(chunk) };
        if stops != 0 {
            return finish(rest, at + stops.trailing_zeros() as usize);
        }
        at += 16;
    }
    // Eight bytes per step. The lowest flagged byte is exact; above it a borrow may flag more.
    while let Some(word) = rest.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let stops = stops(u64::from_le_bytes(*word));
        if stops != 0 {
            return finish(rest, at + (stops.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let length = rest[at..]
        .iter()
        .position(|b| !matches!(b, b' '..=b'~') || matches!(b, b'"' | b'\\'))?;
    finish(rest, at + length)
}

/// Returns whether a text stands in JSON as it is: ASCII without control characters, quotes and backslashes.
#[inline]
pub(crate) fn is_plain(text: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(last) = text.last_chunk::<16>() {
        let mut chunks = text.as_chunks::<16>().0.iter().chain([last]);
        // SAFETY: every x86-64 processor has SSE2.
        return chunks.all(|chunk| unsafe { sixteen_stops(chunk) } == 0);
    }
    let (words, rest) = text.as_chunks::<8>();
    words.iter().all(|word| stops(u64::from_le_bytes(*word)) == 0)
        && rest
            .iter()
            .all(|b| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\'))
}

#[inline]
fn finish(rest: &[u8], length: usize) -> Option<&[u8]> {
    if length > 0 && rest[length] == b'"' {
        Some(&rest[..length])
    } else {
        None
    }
}

/// Returns a bit for every byte that ends a plain string, as [`stops`] sees them.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sixteen_stops(bytes: &[u8; 16]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    };
    // SAFETY: the load needs no alignment, and reads these sixteen bytes.
    let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    let is = |byte: u8| _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8));
    // As signed numbers, bytes beyond ASCII are below the space too.
    let control = _mm_cmplt_epi8(bytes, _mm_set1_epi8(b' ' as i8));
    let ends = _mm_or_si128(_mm_or_si128(is(b'"'), is(b'\\')), _mm_or_si128(is(0x7f), control));
    _mm_movemask_epi8(ends) as u32
}

/// Returns the high bit of every byte that ends a plain string: quote, backslash, control, not ASCII.
#[inline]
fn stops(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let zero = |x: u64| x.wrapping_sub(ONES) & !x;
    let quote = zero(word ^ (ONES * b'"' as u64));
    let backslash = zero(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = zero(word ^ (ONES * 0x7f));
    (quote | backslash | control | delete | word) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Action<'_>> {
        let (action, end) = action(line.as_bytes(), 0)?;
        assert_eq!(end, line.find('\n').expect("a line") + 1);
        Some(action)
    }

    #[test]
    fn takes_what_shippers_write() {
        let action = read("{\"index\":{\"_index\":\"logs\",\"_id\":\"a1\"}}\n{}\n").expect("plain");
        assert_eq!(
            (action.op, action.index, action.id),
            (Op::Index, Some(&b"logs"[..]), Some(&b"a1"[..]))
        );
        let action = read("{ \"create\" : { \"_id\" : null , \"routing\" : \"a long routing value\" } }\r\n")
            .expect("spaces");
        assert_eq!(
            action.id_gap,
            IdGap {
                at: 23,
                cut: 4,
                form: Form::Value
            }
        );
        assert_eq!(action.routing, Some(&b"a long routing value"[..]));
        assert_eq!(read("{\"delete\":{}}\n").expect("empty").id_gap.form, Form::Only);
    }

    #[test]
    fn leaves_to_the_slow_path_what_needs_thought() {
        for line in [
            "{\"index\":{\"_id\":\"a\\u0031\"}}\n",
            "{\"index\":{\"_id\":\"é\"}}\n",
            "{\"index\":{\"_id\":\"\"}}\n",
            "{\"index\":{\"_id\":1}}\n",
            "{\"index\":{\"_id\":\"a\",\"_id\":\"b\"}}\n",
            "{\"index\":{\"_id\":\"a\"},\"x\":1}\n",
            "{\"index\":{\"_id\":\"a\",}}\n",
            "{\"index\":{,\"_id\":\"a\"}}\n",
            "{\"index\":{\"_id\":\"a\"}} x\n",
            "{\"index\":{\"_id\":\"a\"}}",
            "{\"index\":{\"version\":1}}\n",
            "{\"get\":{}}\n",
            "{\"index\":[]}\n",
            "\n",
            "",
        ] {
            assert_eq!(action(line.as_bytes(), 0), None, "{line}");
        }
    }

    #[test]
    fn finds_the_end_of_a_string_at_every_length_and_for_every_byte() {
        for length in 1..40 {
            let text = "x".repeat(length) + "\"" + &"y".repeat(20);
            assert_eq!(plain_string(text.as_bytes(), 0).map(<[u8]>::len), Some(length));
        }
        for byte in 0..=255_u8 {
            for place in 0..10 {
                let mut text = *b"abcdefghijkl\"abcdefgh";
                text[place] = byte;
                let expected = match byte {
                    b'"' if place > 0 => Some(place),
                    b'"' | b'\\' | 0..=0x1f | 0x7f.. => None,
                    _ => Some(12),
                };
                assert_eq!(
                    plain_string(&text, 0).map(<[u8]>::len),
                    expected,
                    "{byte} at {place}"
                );
                let thrice = [&text[12 - place..12], &text[..12], &text[..12]].concat();
                assert_eq!(is_plain(&thrice), expected == Some(12), "{byte} at {place}");
                assert_eq!(is_plain(&text[..12]), expected == Some(12), "{byte} at {place}");
                assert_eq!(is_plain(&text[..10]), expected == Some(12), "{byte} at {place}");
            }
        }
    }
}
