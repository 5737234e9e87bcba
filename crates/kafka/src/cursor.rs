//! The progress of a consumer group in a lane, as it is committed: an offset, and running totals in its
//! metadata.

/// The place of a consumer group in a lane, and the outcome of everything before it, whichever gateway
/// delivered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The offset of the next message.
    pub offset: u64,
    /// The number of documents done since the group began in this lane.
    pub documents: u64,
    /// The bytes of those documents.
    pub bytes: u64,
    /// How many of those documents became dead letters.
    pub dead: u64,
    /// How many of those documents were skipped on purpose.
    pub skipped: u64,
    /// How many of those documents are parked.
    pub parked: u64,
    /// How many of those documents were parked and became dead letters; none of them is counted in `dead`.
    pub parked_dead: u64,
    /// The number of **messages** that Kafka deleted before they were delivered. Their content is unknown.
    pub lost_messages: u64,
}

impl Cursor {
    /// Returns the metadata of the offset.
    ///
    /// Once something was parked, the metadata is written in such a way that a gateway of a version that does
    /// not know parking refuses the group, because the number of partitions seems to differ: it would deliver
    /// past what is parked. There is then no room for the bytes, which nothing reads.
    #[must_use]
    pub fn metadata(&self, lanes: u32) -> String {
        let (lanes, bytes) = match (self.parked, self.parked_dead) {
            (0, 0) => (lanes, self.bytes),
            (parked, dead) => {
                let half = |documents: u64| documents.min(u32::MAX.into());
                (lanes | PARKED, half(dead) << 32 | half(parked))
            }
        };
        format!(
            "tidegate {VERSION} {lanes} {} {bytes} {} {} {}",
            self.documents, self.dead, self.skipped, self.lost_messages
        )
    }

    /// Reads a committed offset with its metadata. Returns the cursor and the number of lanes at the time of
    /// the commit. Without metadata of a gateway (when the offset was set with Kafka's own tools) the totals
    /// begin anew.
    #[must_use]
    pub fn read(offset: u64, metadata: &str) -> (Self, Option<u32>) {
        let anew = Self {
            offset,
            ..Self::default()
        };
        let Some(rest) = metadata.strip_prefix("tidegate ") else {
            return (anew, None);
        };
        let numbers: Option<Vec<u64>> = rest.split(' ').map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[VERSION, lanes, documents, bytes, dead, skipped, lost_messages]) => {
                let cursor = Self {
                    offset,
                    documents,
                    dead,
                    skipped,
                    lost_messages,
                    ..Self::default()
                };
                let lanes = u32::try_from(lanes).ok();
                match lanes.filter(|lanes| lanes & PARKED != 0) {
                    None => (Self { bytes, ..cursor }, lanes),
                    Some(lanes) => {
                        let cursor = Self {
                            parked: bytes & u64::from(u32::MAX),
                            parked_dead: bytes >> 32,
                            ..cursor
                        };
                        (cursor, Some(lanes & !PARKED))
                    }
                }
            }
            _ => (anew, None),
        }
    }
}

const VERSION: u64 = 1;
/// A flag in the number of lanes, set where something was parked.
const PARKED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_come_back_with_the_offset_and_begin_anew_where_somebody_else_has_set_it() {
        let cursor = Cursor {
            offset: 70,
            documents: 900,
            bytes: 12_345,
            dead: 3,
            skipped: 2,
            lost_messages: 1,
            ..Cursor::default()
        };
        let text = cursor.metadata(16);
        assert_eq!(Cursor::read(70, &text), (cursor, Some(16)));
        assert_eq!(text, "tidegate 1 16 900 12345 3 2 1");
        let with_parked = Cursor {
            parked: 5,
            parked_dead: 7,
            bytes: 0,
            ..cursor
        };
        let text = with_parked.metadata(16);
        assert_eq!(Cursor::read(70, &text), (with_parked, Some(16)));
        let words = text.split(' ').count();
        let lanes = text.split(' ').nth(2).unwrap();
        assert_eq!((words, lanes), (8, "2147483664"), "an earlier version refuses it");
        let anew = Cursor {
            offset: 5,
            ..Cursor::default()
        };
        for metadata in ["", "something else", "tidegate 2 16 1 1 1 1 1", "tidegate 1 16 x"] {
            assert_eq!(Cursor::read(5, metadata), (anew, None), "{metadata}");
        }
    }
}
