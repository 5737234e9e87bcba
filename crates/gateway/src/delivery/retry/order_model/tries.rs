//! Tries of keys, in steps.

use std::time::Duration;

use super::*;

impl Model {
    /// Picks the next operations of a key whose turn it is.
    pub(super) fn try_key(&mut self, key: ParkKey) {
        let ahead = self.state.ahead_of(&key, self.generation).into_iter();
        let ahead = ahead.map(|ahead| {
            let led = self.led_since(&ahead.alias, ahead.request.1);
            (ahead, led)
        });
        let (ahead, known) = (ahead.collect::<Vec<_>>(), self.known.clone());
        self.state
            .join_by(&key, |name| resolve(&known, name).map(str::to_owned), &ahead);
        self.follow(Some(&key));
        let most = 1 + self.below(4);
        let mut picked = self.state.pick(&key, most, 1000, |_| false).picked;
        if picked.is_empty() {
            return self.state.wait_behind(&key, "", Duration::ZERO);
        }
        let number =
            (key == ParkKey::Documents).then(|| self.state.begin_try(picked.iter().map(Picked::operations)));
        for one in picked.iter_mut().filter(|one| one.is_part) {
            let entry = self.disk[&one.at].0.clone();
            one.order = self
                .state
                .part(one.order, &entry, one.ops.as_deref().unwrap_or_default());
        }
        number.into_iter().for_each(|number| self.state.sends_try(number));
        let of = picked.iter().enumerate().flat_map(|(piece, one)| {
            let all = 0..self.disk[&one.at].1.len() as u32;
            let ops = one.ops.clone().unwrap_or_else(|| all.collect());
            ops.into_iter().map(move |op| (piece, op))
        });
        let of = of.collect();
        self.tries.push(Try {
            key,
            number,
            topology: known,
            picked,
            of,
            sent: None,
            moved: Vec::new(),
            kept: Vec::new(),
        });
    }

    pub(super) fn write_of(&self, one: &Try, operation: usize) -> usize {
        let (piece, op) = one.of[operation];
        self.disk[&one.picked[piece].at].1[op as usize]
    }

    pub(super) fn step_try(&mut self, at: usize) {
        let mut one = self.tries.swap_remove(at);
        if one.sent.is_some() {
            return self.finish_try(one);
        }
        let kept: Vec<usize> = (0..one.of.len()).filter(|_| self.one_in(12)).collect();
        let place = |operation: usize| {
            let at = one.picked[one.of[operation].0].at;
            (self.writes[self.write_of(&one, operation)].position, 0, at)
        };
        let mut operations: Vec<usize> = (0..one.of.len()).collect();
        operations.sort_by_key(|operation| place(*operation));
        let operations = operations.into_iter().map(|operation| {
            let picked = &one.picked[one.of[operation].0];
            let is_behind = picked.is_behind_others(place(operation));
            let write = self.write_of(&one, operation);
            (operation, self.document(write, &one.topology), is_behind)
        });
        let held = |operation: usize| {
            let write = self.write_of(&one, operation);
            let by = match one.key {
                ParkKey::Documents => None,
                _ => self.holder(write, self.writes[write].lane, &one.topology, Some(&one.key)),
            };
            match by {
                None if kept.contains(&operation) => Held::Stays,
                by => Held::By(by),
            }
        };
        let steps = DueSteps::of(&one.key, operations, held, |_| true, usize::MAX);
        (one.sent, one.moved) = (Some(steps.send), steps.elsewhere);
        one.kept = kept;
        self.tries.push(one);
    }

    /// Ends a try but for what a node keeps of it.
    fn end_try(&mut self, one: &Try, flight: Option<Arc<Flight>>, (writes, executed): (Vec<usize>, usize)) {
        match flight.filter(|_| !writes.is_empty()) {
            Some(flight) => {
                let number = Some(self.state.leave_try(one.number, &flight));
                self.kept.push(Kept {
                    flight,
                    writes,
                    topology: one.topology.clone(),
                    executed,
                    number,
                });
            }
            None => {
                let number = one.number.into_iter();
                number.for_each(|number| self.state.end_try(number));
            }
        }
    }

    pub(super) fn finish_try(&mut self, mut one: Try) {
        let given_up = self.state.is_given_up(&one.key);
        let mut tried: Vec<Tried> = one.picked.iter().map(|_| Tried::default()).collect();
        let flight: Option<Arc<Flight>> = (!given_up && self.one_in(4)).then(Arc::default);
        let (mut goes_on, executed) = (Vec::new(), self.executed.len());
        for operation in one.sent.take().unwrap_or_default() {
            let (piece, op) = one.of[operation];
            let write = self.write_of(&one, operation);
            let picked = &one.picked[piece];
            let landed = picked.flight.as_ref();
            if landed.is_some_and(|flight| flight.has_done(self.flight_op(write))) {
                tried[piece].gone.push(op);
                continue;
            }
            if let Some(flight) = flight.as_ref().filter(|_| self.one_in(2)) {
                let (_, ops) = tried[piece]
                    .goes_on
                    .get_or_insert_with(|| (Arc::clone(flight), Vec::new()));
                ops.push(op);
                tried[piece].attempted = true;
                self.writes[write].alone = true;
                goes_on.push(write);
                continue;
            }
            self.writes[write].doubt |= picked.doubt;
            let gone = given_up || self.execute(write, &one.topology);
            tried[piece].attempted = true;
            if gone && self.restarts && !given_up && self.one_in(6) {
                tried[piece].doubt = true;
            } else if gone {
                tried[piece].gone.push(op);
            } else if one.key != ParkKey::Documents && self.one_in(12) {
                self.writes[write].alone = true;
                one.moved.push((operation, ParkKey::Documents));
            } else if self.one_in(2) {
                tried[piece].failed.push(op);
            }
        }
        for operation in std::mem::take(&mut one.kept) {
            let (piece, op) = one.of[operation];
            let is_alone = one.key == ParkKey::Documents;
            tried[piece].kept.extend(is_alone.then_some(op));
        }
        for (operation, to) in std::mem::take(&mut one.moved) {
            let (piece, op) = one.of[operation];
            tried[piece].moved.entry(to).or_default().push(op);
        }
        for (picked, tried) in one.picked.iter().zip(tried) {
            let (entry, writes, left) = self.disk.get_mut(&picked.at).unwrap();
            left.retain(|op| !tried.gone.contains(op));
            if tried.doubt {
                let of_piece = picked
                    .ops
                    .clone()
                    .unwrap_or_else(|| (0..writes.len() as u32).collect());
                of_piece
                    .iter()
                    .for_each(|op| self.writes[writes[*op as usize]].doubt = true);
            }
            let entry = entry.clone();
            self.state
                .tried(&one.key, picked.order, &entry, tried, |_| Duration::ZERO);
        }
        self.disk.retain(|_, (.., left)| !left.is_empty());
        self.end_try(&one, flight, (goes_on, executed));
        match self.one_in(2) {
            true => self.state.rest(&one.key, true, None, |_| Duration::ZERO),
            false => self.try_key(one.key),
        }
    }
}
