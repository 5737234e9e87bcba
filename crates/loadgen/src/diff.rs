//! Finds out whether an index holds the same documents on two clusters, and what differs.
//!
//! Neither side is sorted, and neither is held in memory. In a first pass each side is read in its own order
//! and reduced to ranges: a digest of its id assigns each document to a range, and a range is a count and the
//! sum of its documents' digests. Equal ranges hold the same documents. In a second pass the documents of the
//! differing ranges are compared by their ids, as many ranges at a time as fit into memory. Each difference
//! is looked at once more by its id, so that documents that were only on their way are not reported.

mod candidates;
mod canonical;
mod error;
mod field;
mod judge;
mod number;
mod options;
mod outcome;
mod ranges;
mod side;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::HeaderValue;
use parking_lot::Mutex;
use wire::ClientTls;

use self::candidates::Candidates;
use self::canonical::Digester;
use self::error::Trouble;
use self::judge::{by_id, judge};
use self::ranges::{Differing, Ranges, bits_for};
use self::side::{Hit, OwnedHit, Side, Slice};
use crate::ask::Ask;
use crate::engine::Stop;
use crate::options::Options;
use crate::request::{Server, basic};

pub use self::error::DiffError;
pub use self::field::FieldDifference;
pub use self::options::{DiffOptions, DiffSide};
pub use self::outcome::{Difference, DifferenceCounts, DifferenceKind, DocumentDifference, SideOutcome};

/// Something that happens while two indices are compared.
#[derive(Debug)]
pub enum DiffEvent<'e> {
    /// Something worth a line.
    Note(&'e str),
    /// Numbers of documents of the left and the right side that have been read in this pass.
    Reading {
        /// 1: all documents of both sides; from 2 on: differing ranges.
        pass: u32,
        /// Documents read, left and right.
        read: [u64; 2],
        /// Documents that each side counts.
        of: [u64; 2],
    },
}

/// Compares an index on two clusters. `watch` is called now and then, on this thread.
///
/// # Errors
/// If the indices can't be compared. A difference is not an error.
pub fn diff(
    options: &DiffOptions,
    stop: &Stop,
    mut watch: impl FnMut(DiffEvent<'_>),
) -> Result<Difference, DiffError> {
    let work = Work::new(options, stop)?;
    let documents = work.count()?;
    let mut outcome = work.outcome(documents);
    if documents[0] != documents[1] {
        let [left, right] = documents;
        watch(DiffEvent::Note(&format!("{left} documents left, {right} right")));
    }
    if options.counts_only {
        outcome.same = documents[0] == documents[1];
        return Ok(outcome);
    }
    let bits = bits_for(documents[0].max(documents[1]), options.memory_bytes / 2);
    let slices = work.slices()?;
    let sides = work.ranges(bits, slices, |read| {
        watch(DiffEvent::Reading {
            pass: 1,
            read,
            of: documents,
        });
    })?;
    let mut open = sides[0].0.differing(&sides[1].0);
    // The comparison is of what was read, whatever was counted before.
    for (at, (ranges, without_source)) in sides.iter().enumerate() {
        let side = if at == 0 {
            &mut outcome.left
        } else {
            &mut outcome.right
        };
        (side.documents, side.without_source) = (ranges.documents(), *without_source);
    }
    drop(sides);
    outcome.ranges = 1 << bits;
    outcome.ranges_differing = open.len() as u64;
    let mut pass = 1;
    while !open.is_empty() && options.limit.is_none_or(|limit| outcome.documents.len() < limit) {
        pass += 1;
        let wanted = options.limit.map(|limit| limit - outcome.documents.len());
        let now = some_of(&mut open, options.memory_bytes / 2, wanted);
        let (ids, shed) = work.candidates(bits, slices, &now, |read| {
            watch(DiffEvent::Reading {
                pass,
                read,
                of: documents,
            });
        })?;
        open.extend(shed);
        let looked_at = work.look_again(&ids, wanted, &mut outcome)?;
        if looked_at < ids.len() {
            outcome.complete = false;
            break;
        }
    }
    outcome.complete = outcome.complete && open.is_empty();
    outcome.same = outcome.documents.is_empty() && open.is_empty();
    outcome.documents.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(outcome)
}

/// Takes as many ranges as there is memory for their documents, but not many more than the wanted number of
/// differences, since each range has at least one.
fn some_of(open: &mut Vec<Differing>, bytes_max: u64, wanted: Option<usize>) -> Vec<Differing> {
    let ranges_max = wanted.map_or(usize::MAX, |wanted| wanted.max(RANGES_MIN));
    let mut bytes = 0;
    let fits = |range: &&Differing| {
        bytes += range.documents * (candidates::ENTRY_BYTES + ID_BYTES_TYPICAL);
        bytes <= bytes_max
    };
    let some = open.iter().take(ranges_max).take_while(fits).count().max(1);
    open.drain(..some).collect()
}

/// Both sides, and the means to ask them.
struct Work<'w> {
    options: &'w DiffOptions,
    sides: [IndexSide<'w>; 2],
    tls: ClientTls,
    digester: Digester,
    stop: &'w Stop,
}

struct IndexSide<'w> {
    name: &'static str,
    index: &'w str,
    server: Server,
    account: Option<HeaderValue>,
}

// === impl Work ===

impl<'w> Work<'w> {
    fn new(options: &'w DiffOptions, stop: &'w Stop) -> Result<Self, DiffError> {
        let side = |name, side: &'w DiffSide| {
            let wrong = |why| DiffError::Url(side.url.clone(), why);
            let (server, _, in_url) = Server::of(&side.url).map_err(wrong)?;
            let given = side.account.as_ref();
            let given = given.map(|(user, password)| basic(format!("{user}:{password}").as_bytes()));
            Ok::<_, DiffError>(IndexSide {
                name,
                index: &side.index,
                server,
                account: given.or_else(|| in_url.map(|account| basic(account.as_bytes()))),
            })
        };
        let tls = Options {
            ca_file: options.ca_file.clone(),
            insecure: options.insecure,
            ..Options::default()
        };
        Ok(Self {
            options,
            sides: [side("left", &options.left)?, side("right", &options.right)?],
            tls: tls.tls()?,
            digester: Digester::new(),
            stop,
        })
    }

    fn outcome(&self, documents: [u64; 2]) -> Difference {
        let side = |at: usize| SideOutcome {
            url: self.sides[at].url(),
            index: self.sides[at].index.to_owned(),
            documents: documents[at],
            without_source: 0,
        };
        Difference {
            left: side(0),
            right: side(1),
            same: false,
            complete: !self.options.counts_only,
            found: DifferenceCounts::default(),
            settled: 0,
            ranges: 0,
            ranges_differing: 0,
            documents: Vec::new(),
        }
    }

    fn count(&self) -> Result<[u64; 2], DiffError> {
        let refresh = self.options.refresh;
        self.both(
            async |_, side| {
                if refresh {
                    side.refresh().await?;
                }
                side.count().await
            },
            |_| (),
        )
    }

    /// Returns how many slices of each side are read at the same time.
    fn slices(&self) -> Result<[u32; 2], DiffError> {
        let most = self.options.slices.max(1);
        self.both(async |_, side| Ok(side.shards().await.min(most)), |_| ())
    }

    /// Reads the ranges of both sides, and how many documents have no source.
    fn ranges(
        &self,
        bits: u32,
        slices: [u32; 2],
        watch: impl FnMut([u64; 2]),
    ) -> Result<[(Ranges, u64); 2], DiffError> {
        let sides = [0, 1].map(|_| Mutex::new((Ranges::new(bits), 0)));
        self.all(
            slices,
            async |at, slice, side| {
                side.read(slice, |hits| {
                    let digest = |hit: &Hit<'_>| {
                        let id = self.digester.id(&hit.id);
                        let digest = self.digester.document(id, hit.routing.as_deref(), hit.source());
                        Ok((id, digest.ok_or_else(|| no_json(&hit.id))?))
                    };
                    let digests: Vec<(u128, u128)> =
                        hits.iter().map(digest).collect::<Result<_, Trouble>>()?;
                    let mut side = sides[at].lock();
                    for (id, digest) in digests {
                        side.0.add(id, digest);
                    }
                    side.1 += hits.iter().filter(|hit| hit.source.is_none()).count() as u64;
                    Ok(())
                })
                .await
            },
            watch,
        )?;
        Ok(sides.map(|side| side.into_inner()))
    }

    /// Returns the ids in these ranges that are not alike, and the ranges for which there was no memory.
    fn candidates(
        &self,
        bits: u32,
        slices: [u32; 2],
        ranges: &[Differing],
        watch: impl FnMut([u64; 2]),
    ) -> Result<(Vec<String>, Vec<Differing>), DiffError> {
        let candidates = Mutex::new(Candidates::new(bits, ranges, self.options.memory_bytes / 2));
        self.all(
            slices,
            async |at, slice, side| {
                side.read(slice, |hits| {
                    let ids: Vec<u128> = hits.iter().map(|hit| self.digester.id(&hit.id)).collect();
                    let mut candidates = candidates.lock();
                    match candidates.see(&self.digester, at == 0, hits, &ids) {
                        Some(Ok(())) => Ok(()),
                        Some(Err(_)) => Err(Trouble::NoRoom),
                        None => Err(no_json("of one of them")),
                    }
                })
                .await
            },
            watch,
        )?;
        let candidates = candidates.into_inner();
        Ok(candidates.take())
    }

    /// Looks at documents once more, until the wanted number of them really differ. Returns how many were
    /// looked at.
    fn look_again(
        &self,
        ids: &[String],
        wanted: Option<usize>,
        outcome: &mut Difference,
    ) -> Result<usize, DiffError> {
        let end = wanted.map_or(usize::MAX, |wanted| outcome.documents.len() + wanted);
        let mut looked_at = 0;
        for some in ids.chunks(LOOKED_AT_TOGETHER) {
            let copies = self.both(async |_, side| side.fetch(some).await, |_| ())?;
            let [left, right] = copies.map(by_id);
            let none = Vec::new();
            for id in some {
                if outcome.documents.len() >= end {
                    return Ok(looked_at);
                }
                looked_at += 1;
                let of = |side: &HashMap<String, Vec<OwnedHit>>| side.get(id).unwrap_or(&none).clone();
                match judge(&self.digester, id, &of(&left), &of(&right)) {
                    Some(document) => {
                        outcome.found.add(document.what);
                        outcome.documents.push(document);
                    }
                    None => outcome.settled += 1,
                }
            }
        }
        Ok(looked_at)
    }

    /// Runs `work` for both sides at once.
    fn both<T: Send>(
        &self,
        work: impl AsyncFn(usize, &Side<'_>) -> Result<T, Trouble> + Sync,
        watch: impl FnMut([u64; 2]),
    ) -> Result<[T; 2], DiffError> {
        let mut done = self.all([1, 1], async |at, _, side| work(at, side).await, watch)?;
        match (done.pop(), done.pop()) {
            (Some(right), Some(left)) => Ok([left, right]),
            _ => Err(DiffError::Stopped),
        }
    }

    /// Runs `work` for this many slices of each side at once, each on a thread of its own. The results of the
    /// left side come first.
    fn all<T: Send>(
        &self,
        slices: [u32; 2],
        work: impl AsyncFn(usize, Slice, &Side<'_>) -> Result<T, Trouble> + Sync,
        mut watch: impl FnMut([u64; 2]),
    ) -> Result<Vec<T>, DiffError> {
        let read = [AtomicU64::new(0), AtomicU64::new(0)];
        let given_up = Stop::default();
        let one = |at: usize, slice: Slice| {
            let side = &self.sides[at];
            let answer = wire::run_local(ANSWERS_BYTES, async |worker| {
                let (server, account) = (&side.server, side.account.clone());
                let ask = Ask::new(&worker, server, self.tls.clone(), account, self.options.timeout);
                let page = self.options.page;
                let side = Side::new(ask, side.index, page, self.stop, &given_up, &read[at]);
                work(at, slice, &side).await
            });
            let answer = answer.map_err(Trouble::from).and_then(|answer| answer);
            if answer.is_err() {
                given_up.stop();
            }
            answer
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let one = &one;
            let parts = [0, 1].into_iter().flat_map(|at| {
                let of = slices[at];
                (0..of).map(move |number| (at, Slice { number, of }))
            });
            let threads: Vec<_> = parts
                .map(|(at, slice)| (at, scope.spawn(move || one(at, slice))))
                .collect();
            while threads.iter().any(|(_, thread)| !thread.is_finished()) {
                std::thread::sleep(LOOK_PAUSE);
                watch([0, 1].map(|at| read[at].load(Ordering::Relaxed)));
            }
            let ends = threads.into_iter().map(|(at, thread)| (at, thread.join()));
            ends.collect()
        });
        let wanted = answers.len();
        let mut done = Vec::with_capacity(wanted);
        let mut failed: Option<DiffError> = None;
        for (at, answer) in answers {
            let answer = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match answer {
                Ok(answer) => done.push(answer),
                // An error that only says that the work was stopped, because something else failed, has
                // nothing to add.
                Err(Trouble::Stopped) if !self.stop.is_asked() => {}
                Err(trouble) => failed = failed.or_else(|| Some(self.error(at, &trouble))),
            }
        }
        match failed {
            Some(error) => Err(error),
            None if done.len() == wanted => Ok(done),
            None => Err(DiffError::Stopped),
        }
    }

    fn error(&self, at: usize, trouble: &Trouble) -> DiffError {
        match trouble {
            Trouble::Stopped => DiffError::Stopped,
            Trouble::NoRoom => DiffError::Memory(self.options.memory_bytes),
            trouble => DiffError::Side {
                side: self.sides[at].name.to_owned(),
                why: trouble.to_string(),
            },
        }
    }
}

// === impl IndexSide ===

impl IndexSide<'_> {
    fn url(&self) -> String {
        let Server { tls, host, port } = &self.server;
        format!("{}://{host}:{port}", if *tls { "https" } else { "http" })
    }
}

fn no_json(of: &str) -> Trouble {
    Trouble::Answer("_source".to_owned(), format!("the source of {of} is not JSON"))
}

const ANSWERS_BYTES: usize = 1 << 30;
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Number of documents that are looked at again in one request.
const LOOKED_AT_TOGETHER: usize = 100;
/// Reading costs the same however few ranges are wanted, so at least this many are taken.
const RANGES_MIN: usize = 64;
const ID_BYTES_TYPICAL: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_as_far_as_memory_and_what_is_wanted_go() {
        let ranges = |count: u32| -> Vec<Differing> {
            (0..count)
                .map(|range| Differing { range, documents: 10 })
                .collect()
        };
        let each = 10 * (candidates::ENTRY_BYTES + ID_BYTES_TYPICAL);
        let mut open = ranges(1000);
        assert_eq!(some_of(&mut open, 5 * each, None).len(), 5);
        assert_eq!((open.len(), open[0].range), (995, 5));
        assert_eq!(some_of(&mut open, 1, None).len(), 1, "one in any case");
        assert_eq!(some_of(&mut open, u64::MAX, Some(1)).len(), RANGES_MIN);
        assert_eq!(some_of(&mut open, u64::MAX, Some(100)).len(), 100);
        assert_eq!(some_of(&mut open, u64::MAX, None).len(), 830);
        assert!(open.is_empty());
    }
}
