//! Names of indices that take documents: a node that refuses a request is asked about these
//! ([`super::refused_whole`]).

use std::cell::RefCell;

/// Names of indices for which documents were lately delivered, the latest last.
#[derive(Default)]
pub(crate) struct TakenNames(RefCell<Vec<String>>);

// === impl TakenNames ===

impl TakenNames {
    pub(super) fn add(&self, name: String) {
        let mut names = self.0.borrow_mut();
        if names.last() == Some(&name) {
            return;
        }
        names.retain(|known| *known != name);
        names.push(name);
        if names.len() > KEPT {
            names.remove(0);
        }
    }

    pub(super) fn latest(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}

const KEPT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_latest_names_are_kept() {
        let names = TakenNames::default();
        for name in ["x", "b", "c", "b"] {
            names.add(name.to_owned());
        }
        assert_eq!(names.latest(), ["c", "b"]);
    }
}
