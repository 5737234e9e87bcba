//! A text of the file, and its place.

use settings::problem::Position;
use settings::yaml::{Node, Value};

/// A text of the file, with its place for messages about its contents.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) place: Position,
    pub(crate) path: String,
}

impl Text {
    pub(crate) fn of(node: &Node, path: &str) -> Option<Text> {
        match &node.value {
            Value::Scalar(scalar) if !node.is_null() => Some(Text {
                text: scalar.text.clone(),
                place: node.place,
                path: path.to_owned(),
            }),
            _ => None,
        }
    }
}
