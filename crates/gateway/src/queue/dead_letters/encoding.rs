//! Encodes a letter as a record of the store. A record's parameters are bounded; the words of clients and
//! nodes are not. So text that only tells people why is cut to bounds that allow for its escaping in JSON,
//! and a cause that is still too long (its request's path and content type may fill a record's parameters by
//! themselves) goes into a group of its own. So no cause and no operation makes a record that the store would
//! refuse because of its contents.

use log::{Browsed, Log, PARAMS_MAX, PAYLOAD_MAX, Record};

use super::letter::Cause;

/// Returns the record of a letter with these lines, and with the lines that it had before it was edited.
pub(super) fn record(log: &Log, kind: u8, cause: &Cause, lines: &[u8], original: Option<&[u8]>) -> Record {
    let mut params = encoded(cause);
    let mut apart = None;
    if params.len() > PARAMS_MAX {
        let room = PAYLOAD_MAX - original.map_or(0, <[u8]>::len).min(PAYLOAD_MAX);
        let whole = std::mem::replace(&mut params, encoded(&cause.in_short()));
        // Without room for the whole cause, the record says less, but has the operation.
        apart = (whole.len() <= room.saturating_sub(lines.len())).then_some(whole);
        if apart.is_none() {
            let short = Cause {
                apart: false,
                ..cause.in_short()
            };
            params = encoded(&short);
        }
    }
    let mut record = log.record(kind, &params);
    for group in [Some(lines), original, apart.as_deref()].into_iter().flatten() {
        record.group(0, 1, |out| out.extend_from_slice(group));
    }
    record
}

/// The contents of a letter's record.
pub(super) struct Read {
    pub(super) cause: Cause,
    /// The letter's lines; `None` if they are damaged.
    pub(super) lines: Option<Vec<u8>>,
    /// The letter's lines before an edit, if there was one.
    pub(super) original: Option<Vec<u8>>,
}

/// Reads a letter's record; `None` if this version does not know it.
pub(super) fn read(record: &mut Browsed) -> Option<Read> {
    let mut cause: Cause = serde_json::from_slice(&record.params).ok()?;
    let mut groups: Vec<_> = record.groups.drain(..).map(|group| group.bytes).collect();
    if cause.apart {
        let whole = groups.pop().flatten();
        match whole.and_then(|whole| serde_json::from_slice::<Cause>(&whole).ok()) {
            Some(whole) => cause = whole,
            // The target of the operation is damaged, so the operation counts as damaged too.
            None => groups.clear(),
        }
    }
    let mut groups = groups.into_iter();
    Some(Read {
        cause,
        lines: groups.next().flatten(),
        original: groups.next().flatten(),
    })
}

fn encoded(cause: &Cause) -> Vec<u8> {
    serde_json::to_vec(cause).unwrap_or_default()
}

impl Cause {
    /// Cuts the texts that a node may word as it likes.
    pub(super) fn cut(&mut self) {
        cut(&mut self.reason, REASON_BYTES_MAX);
        cut(&mut self.kind, KIND_BYTES_MAX);
    }

    /// Returns the part of the cause that the accounts need, and no text that somebody else has written: it
    /// fits into any record.
    fn in_short(&self) -> Cause {
        Cause {
            group: self.group.clone(),
            status: self.status,
            attempts: self.attempts,
            accepted_ms: self.accepted_ms,
            position: self.position,
            lane: self.lane,
            place: self.place,
            parked: self.parked,
            rewritten: self.rewritten.clone(),
            apart: true,
            ..Cause::default()
        }
    }
}

/// Cuts a text so that JSON needs at most this many bytes for it.
fn cut(text: &mut String, most: usize) {
    let mut bytes = 0;
    let over = text.char_indices().find(|(_, char)| {
        bytes += match char {
            '"' | '\\' => 2,
            control if control.is_control() => 6,
            other => other.len_utf8(),
        };
        bytes > most
    });
    if let Some((at, _)) = over {
        text.truncate(at);
    }
}

/// Longer reasons are cut.
const REASON_BYTES_MAX: usize = 8 << 10;
/// Longer types of errors are cut.
const KIND_BYTES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use log::{Options, RealDisk};

    use super::*;

    #[test]
    fn no_text_of_a_client_or_a_node_makes_a_record_that_the_store_refuses() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            lanes: 1,
            free_bytes_min: 0,
            ..Options::default()
        };
        let log = Log::open(folder.path(), options, RealDisk::default()).unwrap();
        let lines = b"{\"delete\":{\"_id\":\"1\"}}\n";
        let mut targets = Vec::new();
        for text in ["\0", "\"", "\u{85}", "ä", "a"] {
            for bytes in [
                0,
                100,
                1_000,
                6_000,
                16_000,
                PARAMS_MAX - 300,
                PARAMS_MAX,
                4 * PARAMS_MAX,
            ] {
                let long = text.repeat(bytes / text.len());
                let mut cause = Cause {
                    group: "c".to_owned(),
                    kind: long.clone(),
                    reason: long.clone(),
                    target: long.clone(),
                    content_type: long.clone(),
                    ..Cause::default()
                };
                cause.cut();
                let put = log.append_blocking(record(&log, 1, &cause, lines, None));
                assert!(put.is_ok(), "{bytes} bytes of {text:?}: {put:?}");
                targets.push(long);
            }
        }
        let mut browse = log.browse(0);
        for target in targets {
            let letter = read(&mut browse.read().unwrap().unwrap()).unwrap();
            assert!(letter.cause.target == target, "it is needed to send it again");
            assert_eq!(letter.lines.as_deref(), Some(&lines[..]));
        }
    }

    #[test]
    fn texts_are_cut_by_what_json_makes_of_them_and_between_characters() {
        for text in ["\0", "\"", "\\", "\n", "\u{7f}", "\u{85}", "ä", "😀", "a"] {
            let mut long = text.repeat(20_000);
            cut(&mut long, REASON_BYTES_MAX);
            let json = serde_json::to_string(&long).unwrap().len() - 2;
            assert!(json <= REASON_BYTES_MAX, "{text:?}: {json}");
            assert!(!long.is_empty() && text.repeat(20_000).starts_with(&long));
            let mut short = text.repeat(10);
            cut(&mut short, REASON_BYTES_MAX);
            assert_eq!(short, text.repeat(10));
        }
    }
}
