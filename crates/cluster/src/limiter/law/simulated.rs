//! A node and a load in simulated time, to see in milliseconds what a law does in minutes.

use std::time::{Duration, Instant};

use super::Law;

/// A node that works on `workers` requests at once, lets `queue` more wait, and refuses the rest.
pub(super) struct Node {
    pub(super) workers: usize,
    pub(super) queue: usize,
    /// The time that one request takes, in seconds, and by how much that varies.
    pub(super) takes: f64,
    pub(super) varies: f64,
    /// How much longer a request takes for each other one that is worked on, as a share.
    pub(super) shares: f64,
}

/// The results of a run.
#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) worked: usize,
    pub(super) refused: usize,
    /// The mean of the requests under way.
    pub(super) under_way: f64,
}

/// An endless supply of requests under a law.
pub(super) struct Load {
    pub(super) law: Law,
    start: Instant,
    now: f64,
    /// The requests under way: when each was sent, and when it is done if it is being worked on.
    open: Vec<(f64, Option<f64>)>,
    random: fastrand::Rng,
}

impl Load {
    pub(super) fn new(seed: u64) -> Self {
        let start = Instant::now();
        Self {
            law: Law::new(start),
            start,
            now: 0.0,
            open: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    /// Runs for `seconds` seconds, with at most `wanted` requests at once.
    pub(super) fn run(&mut self, node: &Node, seconds: f64, wanted: usize) -> RunResult {
        let ends = self.now + seconds;
        let mut seen = RunResult {
            worked: 0,
            refused: 0,
            under_way: 0.0,
        };
        let mut area = 0.0;
        while self.now < ends {
            let working = self.open.iter().filter(|(_, done)| done.is_some()).count();
            let mut free = node.workers.saturating_sub(working);
            let times: Vec<f64> = (0..self.open.len()).map(|_| self.takes(node)).collect();
            for ((_, done), takes) in self.open.iter_mut().zip(times) {
                if done.is_none() && free > 0 {
                    *done = Some(self.now + takes);
                    free -= 1;
                }
            }
            while self.open.len() < self.law.limit().min(wanted) {
                if self.open.len() >= node.workers + node.queue {
                    let now = self.at(self.now);
                    self.law.refused(now, now);
                    seen.refused += 1;
                    // A refused sender tries again later.
                    break;
                }
                let done = (free > 0).then(|| self.now + self.takes(node));
                free = free.saturating_sub(1);
                self.open.push((self.now, done));
                if self.open.len() >= self.law.limit() {
                    self.law.is_full();
                }
            }
            let next = self.open.iter().enumerate();
            let next = next.filter_map(|(at, (_, done))| Some((at, (*done)?)));
            let (at, done) = next
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .expect("something is worked on");
            area += self.open.len() as f64 * (done - self.now);
            self.now = done;
            let (sent, _) = self.open.remove(at);
            seen.worked += 1;
            let (sent, now) = (self.at(sent), self.at(self.now));
            self.law.worked(sent, now, 1 << 20);
        }
        seen.under_way = area / seconds;
        seen
    }

    fn takes(&mut self, node: &Node) -> f64 {
        let working = self.open.iter().filter(|(_, done)| done.is_some()).count() as f64;
        let takes = node.takes * (1.0 + node.shares * working);
        takes * (1.0 + node.varies * (2.0 * self.random.f64() - 1.0))
    }
}
