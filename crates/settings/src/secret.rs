//! Text that never prints.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A password, key or token. `Debug`, `Display` and serialisation show a mask of fixed length; only
/// [`Secret::expose`] gives the text, so every use of it can be found by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// The text that is printed in place of a secret. It has a fixed length, so that it doesn't reveal the
/// secret's length either.
pub const MASK: &str = "********";

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl fmt ===

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}

// === impl serde ===

impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(MASK)
    }
}

impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(from)?.into_boxed_str()))
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "password" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new("hunter2");
        let everything = format!(
            "{secret} {secret:?} {:#?} {}",
            Some(&secret),
            serde_json::to_string(&secret).unwrap()
        );
        assert!(!everything.contains("hunter2"), "{everything}");
        assert_eq!(secret.expose(), "hunter2");
    }
}
