//! How far a consumer group is in a lane, as it is committed: an offset, and running totals in its metadata.

/// Where a consumer group is in a lane, and what became of all that lies before, whoever delivered it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Offset of the next message.
    pub offset: u64,
    /// Documents done since the group began in this lane.
    pub documents: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Of those documents, the ones that became dead letters.
    pub dead: u64,
    /// Of those documents, the ones that were passed over on purpose.
    pub skipped: u64,
    /// **Messages** that Kafka deleted before they were delivered; what they held nobody knows.
    pub lost_messages: u64,
}

impl Cursor {
    /// The metadata that goes with the offset.
    #[must_use]
    pub fn metadata(&self, lanes: u32) -> String {
        format!(
            "tidegate {VERSION} {lanes} {} {} {} {} {}",
            self.documents, self.bytes, self.dead, self.skipped, self.lost_messages
        )
    }

    /// A committed offset with its metadata, and the number of lanes that was valid then. Without metadata of
    /// ours (somebody has set the offset with Kafka's own tools) the totals begin anew.
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
            Some(&[VERSION, lanes, documents, bytes, dead, skipped, lost_messages]) => (
                Self {
                    offset,
                    documents,
                    bytes,
                    dead,
                    skipped,
                    lost_messages,
                },
                u32::try_from(lanes).ok(),
            ),
            _ => (anew, None),
        }
    }
}

const VERSION: u64 = 1;

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
        };
        let text = cursor.metadata(16);
        assert_eq!(Cursor::read(70, &text), (cursor, Some(16)));
        let anew = Cursor {
            offset: 5,
            ..Cursor::default()
        };
        for metadata in ["", "something else", "tidegate 2 16 1 1 1 1 1", "tidegate 1 16 x"] {
            assert_eq!(Cursor::read(5, metadata), (anew, None), "{metadata}");
        }
    }
}
