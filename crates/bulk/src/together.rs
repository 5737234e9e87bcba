//! Keeping documents together with others of their index that have no id. The server chooses the shards of
//! documents without an id, so any of the others may get into the same shard, and a shard executes the
//! operations of one request in the request's order. If they were sent apart, they would be numbered
//! (`_seq_no`) in whatever order the requests arrive, so all of them go in one part, to any node.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::plan::{ARENA, Part, Piece, STRETCH_DOCS};
use crate::walk::{ShardChoice, Walk};
use crate::whole::assert_moved;
use crate::{Ask, Destination, Pass, Plan, RouteTable, Scratch};

/// The kinds of documents that a body has for one index.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct DocumentKinds {
    /// Documents whose shard the server chooses.
    free: bool,
    /// Other documents, which are sent to the nodes of their shards.
    placed: bool,
}

/// Moves the documents of each index that has some with a known shard and some without into the part that any
/// node may take. Few bodies are mixed in this way, so this function reads the body a second time, which
/// spares the first reading from noting each document's index.
#[cold]
pub(crate) fn keep(
    plan: &mut Plan,
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    scratch: &mut Scratch,
) -> Result<(), Pass> {
    let mut never = async || {};
    let mut keeping = pin!(keep_in_turns(plan, body, ask, table, scratch, &mut never));
    match keeping.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(kept) => kept,
        Poll::Pending => unreachable!("there is nothing to wait for"),
    }
}

/// Like [`keep`], for bodies with many operations: between two stretches of operations it awaits `turn`.
#[cold]
pub(crate) async fn keep_in_turns(
    plan: &mut Plan,
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    scratch: &mut Scratch,
    turn: &mut impl AsyncFnMut(),
) -> Result<(), Pass> {
    let any = plan
        .parts
        .iter()
        .position(|part| part.destination == Destination::Any);
    let Some(any) = any.filter(|_| plan.parts.len() > 1) else {
        return Ok(());
    };
    let mut seen = vec![DocumentKinds::default(); table.indices() as usize];
    let see = |_: usize, _: usize, ordinal: u32, choice| {
        let seen = &mut seen[ordinal as usize];
        seen.free |= choice == ShardChoice::Free;
        seen.placed |= matches!(choice, ShardChoice::Shard(_));
    };
    each(body, ask, table, scratch, see, turn).await?;
    let mixed = DocumentKinds {
        free: true,
        placed: true,
    };
    if !seen.contains(&mixed) {
        return Ok(());
    }
    let mut moves = Moves::new(plan, any);
    let see = |doc: usize, end: usize, ordinal: u32, choice| {
        let moved =
            seen[ordinal as usize] == mixed && matches!(choice, ShardChoice::Free | ShardChoice::Shard(_));
        moves.take(doc, end, moved);
    };
    each(body, ask, table, scratch, see, turn).await?;
    moves.finish(scratch);
    Ok(())
}

/// Passes each operation's number, its end in the body, its index's number and its aim to `see`.
async fn each(
    body: &[u8],
    ask: &Ask<'_>,
    table: &RouteTable,
    scratch: &Scratch,
    mut see: impl FnMut(usize, usize, u32, ShardChoice),
    turn: &mut impl AsyncFnMut(),
) -> Result<(), Pass> {
    let mut walk = Walk::new(body, ask, table, scratch.fast)?;
    let mut number = 0;
    while let Some(doc) = walk.next()? {
        see(number, doc.end, doc.ordinal, doc.choice);
        number += 1;
        if number % STRETCH_DOCS as usize == 0 {
            turn().await;
        }
    }
    Ok(())
}

/// A plan whose documents are moved to other parts.
struct Moves<'p> {
    plan: &'p mut Plan,
    /// The part that any node may take.
    any: usize,
    /// The parts as they were, and how many pieces of each are used up.
    before: Vec<(Part, usize)>,
    /// The new number of each of these parts.
    numbers: Vec<Option<u16>>,
}

impl<'p> Moves<'p> {
    fn new(plan: &'p mut Plan, any: usize) -> Self {
        let before: Vec<_> = plan.parts.drain(..).map(|part| (part, 0)).collect();
        Self {
            plan,
            any,
            numbers: vec![None; before.len()],
            before,
        }
    }

    /// Takes the next operation, which ends at `end` of the body.
    fn take(&mut self, doc: usize, end: usize, moved: bool) {
        let from = usize::from(self.plan.order[doc]);
        let to = if moved { self.any } else { from };
        let parts = &mut self.plan.parts;
        let number = *self.numbers[to].get_or_insert_with(|| {
            let model = &self.before[to].0;
            parts.push(Part {
                destination: model.destination,
                shard: model.shard,
                index: model.index.clone(),
                lane: model.lane,
                ..Part::default()
            });
            (parts.len() - 1) as u16
        });
        self.plan.order[doc] = number;
        let part = &mut parts[usize::from(number)];
        part.docs += 1;
        let (before, at) = &mut self.before[from];
        // A piece that was spliced into an operation stands before the operation's last bytes, and neighbours
        // may be one piece.
        while let Some(piece) = before.pieces.get_mut(*at) {
            if piece.start & ARENA != 0 {
                part.pieces.push(*piece);
                *at += 1;
                continue;
            }
            let Piece { start, end: last } = *piece;
            if (last as usize) > end {
                part.push(start, end as u32);
                piece.start = end as u32;
                return;
            }
            part.push(start, last);
            *at += 1;
            if last as usize == end {
                return;
            }
        }
    }

    fn finish(self, scratch: &mut Scratch) {
        assert_moved(&self.before);
        for (part, _) in self.before {
            let mut pieces = part.pieces;
            pieces.clear();
            scratch.pieces.push(pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Dialect, Flavour, Formula, Gather, IdMint, IndexRoute, Level, NodeIx, NullId, Verdict, Version, Why,
        plan,
    };

    fn table(flavour: Flavour, version: Version) -> RouteTable {
        let index = |name: &str, shards: u16| {
            let primaries: Vec<_> = (0..shards).map(|shard| Some(NodeIx(shard % 3))).collect();
            IndexRoute::new(name, Formula::Modulo, primaries)
        };
        let strict = IndexRoute {
            routing_required: true,
            ..index("strict", 3)
        };
        let mut table = RouteTable::builder(Dialect::new(flavour, version), 3);
        for route in [index("one", 1), index("many", 6), index("other", 6), strict] {
            table.index(Arc::new(route));
        }
        table.build()
    }

    fn verdict(
        lines: &[(&str, &str)],
        level: Level,
        null_id: NullId,
        table: &RouteTable,
    ) -> (String, Verdict) {
        let mut body = String::new();
        for (n, (index, members)) in lines.iter().enumerate() {
            body.push_str(&format!(
                "{{\"index\":{{\"_index\":\"{index}\"{members}}}}}\n{{\"n\":{n}}}\n"
            ));
        }
        let ask = Ask {
            level,
            null_id,
            ..Ask::default()
        };
        let verdict = plan(
            body.as_bytes(),
            &ask,
            table,
            &mut IdMint::new(1),
            &mut Scratch::default(),
        );
        (body, verdict)
    }

    /// Returns the numbers of the documents of each part, in their order, and whether any node may take the
    /// part.
    fn split(lines: &[(&str, &str)], level: Level) -> Vec<(Vec<usize>, bool)> {
        let table = table(Flavour::OpenSearch, Version::new(3, 8, 0));
        let (body, Verdict::Plan(plan)) = verdict(lines, level, NullId::Keep, &table) else {
            panic!("a plan")
        };
        let part = |part: &Part| {
            let (mut gather, mut out) = (Gather::default(), Vec::new());
            while gather.next(&plan, part, body.as_bytes(), &mut out, 10) > 0 {}
            assert_eq!(out.len() as u64, part.bytes);
            let text = String::from_utf8(out).expect("UTF-8");
            let numbers: Vec<_> = text.lines().skip(1).step_by(2).collect();
            let number = |line: &&str| line[5..line.len() - 1].parse().expect("a number");
            let numbers: Vec<usize> = numbers.iter().map(number).collect();
            assert_eq!(numbers.len(), part.docs as usize);
            (numbers, part.destination == Destination::Any)
        };
        let parts: Vec<_> = plan.parts.iter().map(part).collect();
        for (number, (docs, _)) in parts.iter().enumerate() {
            assert!(docs.iter().all(|doc| plan.part_of(*doc as u32) == number));
        }
        parts
    }

    #[test]
    fn documents_without_id_stay_in_their_place_among_the_others_of_their_shard() {
        let (id, none) = (",\"_id\":\"a\"", "");
        let one = split(
            &[("one", id), ("one", none), ("one", id), ("one", none)],
            Level::Node,
        );
        assert_eq!(one, [(vec![0, 1, 2, 3], false)]);
        for level in [Level::Node, Level::Index, Level::Shard] {
            let many = split(
                &[("other", id), ("many", id), ("many", none), ("many", id)],
                level,
            );
            assert_eq!(many, [(vec![0], false), (vec![1, 2, 3], true)]);
            let apart = split(
                &[("other", id), ("many", none), ("other", id), ("many", none)],
                level,
            );
            assert_eq!(apart, [(vec![0, 2], false), (vec![1, 3], true)]);
        }
        let all = split(&[("many", none), ("many", id)], Level::Node);
        assert_eq!(all, [(vec![0, 1], true)]);
    }

    #[test]
    fn a_body_of_many_documents_is_kept_together_in_turns_and_alike() {
        let table = table(Flavour::OpenSearch, Version::new(3, 8, 0));
        let docs = 4 * STRETCH_DOCS as usize;
        let lines = |n| {
            let id = if n % 2 == 0 { ",\"_id\":\"a\"" } else { "" };
            let index = ["many", "other"][usize::from(n % 3 == 0 && n % 2 == 0)];
            format!("{{\"index\":{{\"_index\":\"{index}\"{id}}}}}\n{{\"n\":{n}}}\n")
        };
        let body: String = (0..docs).map(lines).collect();
        let ask = Ask::default();
        let (mut ids, mut scratch) = (IdMint::new(1), Scratch::default());
        let at_once = plan(body.as_bytes(), &ask, &table, &mut ids, &mut scratch);
        let (mut turns, mut scratch) = (0, Scratch::default());
        let sliced = {
            let turn = async || turns += 1;
            let planned = crate::plan_in_turns(body.as_bytes(), &ask, &table, &mut ids, &mut scratch, turn);
            match pin!(planned).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => panic!("a turn takes no time"),
            }
        };
        assert_eq!(format!("{at_once:?}"), format!("{sliced:?}"));
        assert!(matches!(sliced, Verdict::Plan(plan) if plan.parts.len() == 2));
        // The body is read three times.
        assert!(turns >= 11, "{turns}");
    }

    #[test]
    fn a_routing_that_is_missing_makes_the_request_pass_where_it_fails_the_whole() {
        let lines = [("one", ",\"_id\":\"a\""), ("strict", "")];
        let why = |flavour, major, null_id| {
            let table = table(flavour, Version::new(major, 10, 0));
            match verdict(&lines, Level::Node, null_id, &table).1 {
                Verdict::Pass(pass) => Some((pass.why, pass.line)),
                Verdict::Plan(_) => None,
            }
        };
        let required = Some((Why::RoutingRequired, Some(3)));
        assert_eq!(why(Flavour::OpenSearch, 3, NullId::Keep), required);
        assert_eq!(why(Flavour::OpenSearch, 1, NullId::Always), required);
        assert_eq!(why(Flavour::Elasticsearch, 7, NullId::Keep), required);
        // With an id the document is answered by itself.
        assert_eq!(why(Flavour::OpenSearch, 3, NullId::Mint), None);
        assert_eq!(why(Flavour::Elasticsearch, 9, NullId::Keep), None);
    }
}
