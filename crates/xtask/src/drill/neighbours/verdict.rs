//! What must hold for good clients. Pure, so that tests can plant what has to be found.

use std::time::Duration;

use super::good::Told;

/// What good clients waited, alone and beside hostile ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

/// What was seen of the gateway and the cluster.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) resident_bytes_max: u64,
    /// Looks at the gateway's admin port that were answered, and those that were not.
    pub(super) looks: u64,
    pub(super) looks_failed: Vec<String>,
    /// Documents that were to be in the cluster and are not, or are otherwise.
    pub(super) missing: Vec<String>,
}

// === impl Waits ===

impl Waits {
    pub(super) fn add(&mut self, beside: bool, took: Duration) {
        match beside {
            true => self.beside.push(took),
            false => self.alone.push(took),
        }
    }

    pub(super) fn and(mut self, other: &Waits) -> Self {
        self.alone.extend(&other.alone);
        self.beside.extend(&other.beside);
        self
    }

    pub(super) fn count(&self) -> usize {
        self.alone.len() + self.beside.len()
    }

    pub(super) fn shown(&self) -> String {
        let both = [percentile_99(&self.alone), percentile_99(&self.beside)];
        let [alone, beside] = both.map(|wait| wait.unwrap_or_default().as_secs_f64() * 1e3);
        format!("99 % were answered within {alone:.1} ms alone and {beside:.1} ms beside them")
    }

    /// What is wrong with them, if anything is. Waits of less than `free` are never wrong.
    pub(super) fn flaw(&self, free: Duration) -> Option<String> {
        let (Some(alone), Some(beside)) = (percentile_99(&self.alone), percentile_99(&self.beside)) else {
            return Some("too few requests of good clients to tell".to_owned());
        };
        (beside > (alone * 2).max(free)).then(|| format!("good clients wait too long: {}", self.shown()))
    }
}

// === impl Seen ===

impl Seen {
    /// Nothing could be seen.
    pub(super) fn broken(what: &str) -> Self {
        Self {
            looks_failed: vec![what.to_owned()],
            ..Self::default()
        }
    }
}

/// Everything that is not as it has to be, but for the waits, which take many runs.
pub(super) fn flaws(told: &[Told], seen: &Seen) -> Vec<String> {
    let mut flaws = Vec::new();
    let wronged = told.iter().flat_map(|one| &one.wronged);
    flaws.extend(wronged.map(|what| format!("a good client got {what}")));
    if told.iter().all(|one| one.written.is_empty()) {
        flaws.push("no good client wrote anything".to_owned());
    }
    flaws.extend(seen.missing.iter().map(|what| format!("not delivered: {what}")));
    let late = told.iter().map(|one| one.lag_max).filter(|lag| *lag > LAG_MAX);
    flaws.extend(late.map(|lag| format!("a good client's document took {lag:?} to the cluster")));
    if seen.resident_bytes_max > RESIDENT_BYTES_MAX {
        flaws.push(format!("the gateway took {} MiB", seen.resident_bytes_max >> 20));
    }
    flaws.extend(
        seen.looks_failed
            .iter()
            .map(|what| format!("the admin port did not answer: {what}")),
    );
    if seen.looks == 0 {
        flaws.push("nobody could look at the gateway".to_owned());
    }
    flaws
}

/// `None` of too few.
fn percentile_99(waits: &[Duration]) -> Option<Duration> {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    (sorted.len() >= 20).then(|| sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)])
}

const LAG_MAX: Duration = Duration::from_secs(5);
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Duration = Duration::from_millis(50);

    fn told() -> Vec<Told> {
        vec![Told {
            index: "good",
            written: vec![("g1".to_owned(), 1)],
            ..Told::default()
        }]
    }

    fn seen() -> Seen {
        Seen {
            looks: 3,
            ..Seen::default()
        }
    }

    #[test]
    fn each_planted_flaw_is_found_and_nothing_else() {
        assert_eq!(flaws(&told(), &seen()), Vec::<String>::new());
        let mut refused = told();
        refused[0].wronged.push("429".to_owned());
        assert_eq!(flaws(&refused, &seen()).len(), 1);
        assert_eq!(flaws(&[], &seen()).len(), 1, "nothing written");
        let mut late = told();
        late[0].lag_max = Duration::from_secs(6);
        assert_eq!(flaws(&late, &seen()).len(), 1);
        let plants: [fn(&mut Seen); 4] = [
            |seen| seen.missing.push("g1".to_owned()),
            |seen| seen.resident_bytes_max = 300 << 20,
            |seen| seen.looks_failed.push("refused".to_owned()),
            |seen| seen.looks = 0,
        ];
        for (number, plant) in plants.into_iter().enumerate() {
            let mut seen = seen();
            plant(&mut seen);
            assert_eq!(flaws(&told(), &seen).len(), 1, "{number}");
        }
    }

    #[test]
    fn waits_that_more_than_double_are_a_flaw_and_so_are_too_few() {
        let waits = |alone_ms: u64, beside_ms: u64| {
            let mut waits = Waits::default();
            for number in 0..100 {
                let slow = number >= 98;
                waits.add(false, Duration::from_millis(if slow { alone_ms } else { 1 }));
                waits.add(true, Duration::from_millis(if slow { beside_ms } else { 1 }));
            }
            waits
        };
        assert_eq!(waits(60, 110).flaw(FREE), None);
        assert!(waits(60, 130).flaw(FREE).is_some());
        assert_eq!(waits(1, 40).flaw(FREE), None, "as quick as anybody can tell");
        assert!(Waits::default().flaw(FREE).is_some());
    }
}
