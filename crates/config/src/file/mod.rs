//! The types of the file itself: what may be written, with its documentation and its default beside it.
//!
//! These types are the single source for four things: the JSON Schema (`tidegate config schema`), the check
//! of a file (keys, types, nearest valid key), `docs/configuration.md`, and `tidegate config show|explain`. A
//! key that is added here is therefore documented, checked and shown; there is no second list.
//!
//! Three extensions of JSON Schema carry what the standard cannot express: `x-ignored` (the key is accepted
//! and has no effect, with the reason), `x-units` (the meaning of a bare number) and the formats `time-span`,
//! `time-or-seconds`, `byte-size`, `byte-size-or-unlimited`, `share` and `password`.

mod cluster;
mod entry;
mod flow;
mod kafka;
mod pipeline;
mod root;
mod router;
pub(super) mod scalar;
mod tracing;

pub use cluster::*;
pub use entry::*;
pub use flow::*;
pub use kafka::*;
pub use pipeline::*;
pub use root::*;
pub use router::*;
pub use scalar::{Bytes, BytesOrUnlimited, Ignored, OneOrMany, Share, Time, TimeOrSeconds};
pub use tracing::*;

/// A section of the file: fields with documentation and default. Unknown keys are errors.
macro_rules! section {
    ($(#[$outer:meta])* $name:ident {
        $($(#[$inner:meta])* $field:ident: $type:ty = $default:expr,)*
    }) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        $(#[$outer])*
        pub struct $name {
            $($(#[$inner])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
use section;
