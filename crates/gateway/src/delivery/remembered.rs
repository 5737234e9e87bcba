//! Refused operations whose dead letters the disk does not take: their refusals are remembered, cut short, so
//! that no node is asked again while a lane waits for the disk.

use std::sync::Arc;

use crate::delivery::server_error::Error;

/// Cuts refusals short. Returns those that are remembered, and the operations whose refusals would take more
/// memory than a lane has for them.
pub(super) fn remembered(refused: Vec<(usize, Arc<Error>)>) -> (Vec<(usize, Arc<Error>)>, Vec<usize>) {
    let (mut kept, mut forgotten) = (Vec::<(usize, Arc<Error>)>::new(), Vec::new());
    let mut bytes = 0;
    for (operation, error) in refused {
        let short = Error::from(error.in_short());
        match kept.last() {
            // Refusals that say the same share their text.
            Some((_, last)) if **last == short => kept.push((operation, Arc::clone(last))),
            _ => {
                let more = size_of::<Error>() + short.kind.len() + short.reason.len();
                if bytes + more > BYTES_MAX {
                    forgotten.push(operation);
                } else {
                    bytes += more;
                    kept.push((operation, Arc::new(short)));
                }
            }
        }
    }
    (kept, forgotten)
}

/// The bytes of refusals that a lane remembers.
const BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(reason: String) -> Arc<Error> {
        Arc::new(Error {
            status: 400,
            kind: "mapper_parsing_exception".to_owned(),
            reason,
        })
    }

    #[test]
    fn refusals_are_remembered_as_far_as_there_is_memory_and_those_that_say_the_same_cost_nothing() {
        let same = (0..100_000).map(|n| (n, error("no number".to_owned())));
        let (kept, forgotten) = remembered(same.collect());
        assert_eq!((kept.len(), forgotten.len()), (100_000, 0));
        assert!(Arc::ptr_eq(&kept[0].1, &kept[99_999].1));
        let long = (0..1_000).map(|n| (n, error(format!("{n}{}", "x".repeat(100_000)))));
        let (kept, forgotten) = remembered(long.collect());
        assert!(
            kept.len() > 200 && kept.len() + forgotten.len() == 1_000,
            "{}",
            kept.len()
        );
        let bytes: usize = kept.iter().map(|(_, error)| error.reason.len()).sum();
        assert!(bytes <= BYTES_MAX);
        let (again, none) = remembered(kept.clone());
        assert_eq!((again, none), (kept, vec![]));
    }
}
