//! Judges how a document differs, once both sides have shown it by its id.

use std::collections::HashMap;

use super::canonical::Digester;
use super::field::{self, FieldDifference};
use super::outcome::{DifferenceKind, DocumentDifference};
use super::side::OwnedHit;

/// Groups copies by their ids.
pub(super) fn by_id(copies: Vec<OwnedHit>) -> HashMap<String, Vec<OwnedHit>> {
    let mut by_id: HashMap<String, Vec<OwnedHit>> = HashMap::new();
    for copy in copies {
        by_id.entry(copy.id.clone()).or_default().push(copy);
    }
    by_id
}

/// Returns how a document with these copies differs; none if it does not.
pub(super) fn judge(
    digester: &Digester,
    id: &str,
    left: &[OwnedHit],
    right: &[OwnedHit],
) -> Option<DocumentDifference> {
    let document = |what, field| {
        let id = id.to_owned();
        Some(DocumentDifference { id, what, field })
    };
    match (left, right) {
        ([], []) => return None,
        (_, []) => return document(DifferenceKind::OnlyLeft, None),
        ([], _) => return document(DifferenceKind::OnlyRight, None),
        _ => {}
    }
    if left.len() != right.len() {
        let copies = |side: &[OwnedHit]| Some(format!("{} copies", side.len()));
        let field = FieldDifference {
            path: "_id".to_owned(),
            left: copies(left),
            right: copies(right),
        };
        return document(DifferenceKind::Different, Some(field));
    }
    let sorted = |side: &[OwnedHit]| {
        let digest = |copy: &OwnedHit| digester.document(0, copy.routing.as_deref(), copy.source.as_deref());
        let mut side: Vec<_> = side
            .iter()
            .map(|copy| (copy.routing.clone(), digest(copy), copy.clone()))
            .collect();
        side.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
        side
    };
    let (left, right) = (sorted(left), sorted(right));
    let pair = left.iter().zip(&right).find(|(left, right)| left.1 != right.1);
    let ((_, _, left), (_, _, right)) = pair?;
    if left.routing != right.routing {
        let field = FieldDifference {
            path: "_routing".to_owned(),
            left: left.routing.clone(),
            right: right.routing.clone(),
        };
        return document(DifferenceKind::Different, Some(field));
    }
    let field = match (&left.source, &right.source) {
        (Some(left), Some(right)) => field::first(digester, left, right),
        (left, right) => Some(FieldDifference {
            path: "_source".to_owned(),
            left: left.as_deref().map(field::beginning),
            right: right.as_deref().map(field::beginning),
        }),
    };
    document(DifferenceKind::Different, field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(routing: Option<&str>, source: &str) -> OwnedHit {
        OwnedHit {
            id: "1".to_owned(),
            routing: routing.map(str::to_owned),
            source: Some(source.to_owned()),
        }
    }

    #[test]
    fn copies_are_judged_by_number_routing_and_contents() {
        let digester = Digester::new();
        let said = |left: &[&OwnedHit], right: &[&OwnedHit]| {
            let owned = |side: &[&OwnedHit]| side.iter().copied().cloned().collect::<Vec<_>>();
            let found = judge(&digester, "1", &owned(left), &owned(right))?;
            Some((found.what, found.field.map(|field| field.path)))
        };
        let (one, same, other) = (
            copy(None, "{\"a\":1}"),
            copy(None, "{ \"a\":1.0}"),
            copy(None, "{\"a\":2}"),
        );
        let routed = copy(Some("r"), "{\"a\":1}");
        let path = |path: &str| Some(path.to_owned());
        assert_eq!(said(&[&one], &[&same]), None);
        assert_eq!(said(&[], &[]), None, "deleted on both sides meanwhile");
        assert_eq!(said(&[&one], &[]), Some((DifferenceKind::OnlyLeft, None)));
        assert_eq!(said(&[], &[&one]), Some((DifferenceKind::OnlyRight, None)));
        assert_eq!(
            said(&[&one], &[&other]),
            Some((DifferenceKind::Different, path("a")))
        );
        assert_eq!(
            said(&[&one], &[&routed]),
            Some((DifferenceKind::Different, path("_routing")))
        );
        let twice = [&one, &routed];
        assert_eq!(said(&twice, &[&routed, &same]), None, "in any order");
        assert_eq!(
            said(&twice, &[&routed]),
            Some((DifferenceKind::Different, path("_id")))
        );
    }
}
