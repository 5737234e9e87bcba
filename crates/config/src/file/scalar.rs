//! Values with a unit, and two helpers for shapes that YAML files like to have.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time, always with its unit: `500ms`, `60s`, `1m30s`, `2h`, `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A span of time. A bare number means seconds, as users of the gateway know these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOrSeconds(pub Duration);

/// A number of bytes: `512`, `64kb`, `1mb`, `2gb` (multiples of 1,024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A number of bytes, or `-1` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesOrUnlimited(pub Option<u64>);

/// A share of a whole, from 0 to 1: `0.01` or `1%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

/// One value or a list of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct OneOrMany<T>(pub Vec<T>);

/// A key without effect, whatever its value. The key's schema gives the reason (`x-ignored`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored;

/// What is wrong with a value that has a unit. The message follows the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUnit {
    /// A number without the unit that is required.
    #[error("is not a span of time: it needs a unit, as in `{0}s` or `{0}ms`")]
    TimeWithoutUnit(String),
    /// Not a span of time.
    #[error("is not a span of time, as in `500ms`, `60s`, `1m30s`, `2h`")]
    Time,
    /// A span of time that is longer than anything needs.
    #[error("is longer than a year")]
    LongerThanAYear,
    /// Not a share.
    #[error("is not a share from 0 to 1, as in `0.01` or `1%`")]
    Share,
    /// Not a number of bytes.
    #[error("is not a number of bytes, as in `512`, `64kb`, `1mb`, `2gb`")]
    Bytes,
    /// Not a number of bytes, where `-1` is allowed as well.
    #[error("is not a number of bytes, as in `512`, `64kb`, `1mb`, `2gb` (or -1: no limit)")]
    BytesOrUnlimited,
}

/// Parses a span of time with units.
///
/// # Errors
/// Returns what is wrong with the text.
pub fn parse_time(text: &str) -> Result<Duration, BadUnit> {
    let wrong = || match !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        true => BadUnit::TimeWithoutUnit(text.to_owned()),
        false => BadUnit::Time,
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let number = &rest[..digits];
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let nanos: u64 = match &rest[..letters] {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = match number.parse::<u64>() {
            Ok(whole) => Duration::from_nanos(whole.checked_mul(nanos).ok_or_else(wrong)?),
            Err(_) => {
                let number: f64 = number.parse().map_err(|_| wrong())?;
                Duration::try_from_secs_f64(number * nanos as f64 / 1e9).map_err(|_| wrong())?
            }
        };
        sum = sum.checked_add(part).ok_or_else(wrong)?;
    }
    if sum > YEAR {
        Err(BadUnit::LongerThanAYear)
    } else {
        Ok(sum)
    }
}

/// Parses a span of time in which a bare number means seconds.
pub(crate) fn parse_time_or_seconds(text: &str) -> Result<Duration, BadUnit> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return parse_time(&format!("{text}s"));
    }
    parse_time(text)
}

/// Parses a number of bytes.
///
/// # Errors
/// [`BadUnit::Bytes`].
pub fn parse_bytes(text: &str) -> Result<u64, BadUnit> {
    let wrong = || BadUnit::Bytes;
    let text = text.trim().to_ascii_lowercase();
    let letters = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(letters);
    let factor: u64 = match unit.trim_start() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let part: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = part * factor as f64;
    if bytes.is_finite() && bytes < 1e15 {
        Ok(bytes as u64)
    } else {
        Err(wrong())
    }
}

/// Parses a number of bytes, or `-1`.
pub(crate) fn parse_bytes_or_unlimited(text: &str) -> Result<Option<u64>, BadUnit> {
    if text.trim() == "-1" {
        return Ok(None);
    }
    parse_bytes(text).map(Some).map_err(|_| BadUnit::BytesOrUnlimited)
}

/// Parses a share of a whole.
///
/// # Errors
/// [`BadUnit::Share`].
pub(crate) fn parse_share(text: &str) -> Result<f64, BadUnit> {
    let text = text.trim();
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain).ok_or(BadUnit::Share)?;
    let share = number / whole;
    (share <= 1.0).then_some(share).ok_or(BadUnit::Share)
}

/// Returns a span of time in the form of the file.
pub fn show_time(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        _ if time.is_zero() => "0s".to_owned(),
        _ if !time.subsec_nanos().is_multiple_of(1_000_000) => format!("{}us", time.as_micros()),
        _ if !millis.is_multiple_of(1_000) => format!("{millis}ms"),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ => format!("{}s", millis / 1_000),
    }
}

/// Returns a number of bytes in the form of the file.
pub fn show_bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "gb"), (20, "mb"), (10, "kb")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// The YAML types that a value with a unit may have.
#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(serde_json::Number),
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match TextOrNumber::deserialize(from)? {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    })
}

/// Implements serde and the schema for a value that is written as text with a unit.
macro_rules! with_unit {
    ($name:ident, $parse:path, $show:expr, $schema:tt) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $parse(&text(from)?)
                    .map(Self)
                    .map_err(serde::de::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(&$show(self.0))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

with_unit!(Time, parse_time, show_time, { "type": "string", "format": "time-span" });
with_unit!(TimeOrSeconds, parse_time_or_seconds, show_time, {
    "type": ["string", "integer"], "format": "time-or-seconds"
});
with_unit!(Bytes, parse_bytes, show_bytes, { "type": ["string", "integer"], "format": "byte-size" });
with_unit!(Share, parse_share, |share: f64| share.to_string(), {
    "type": ["string", "number"], "format": "share"
});
with_unit!(
    BytesOrUnlimited,
    parse_bytes_or_unlimited,
    |bytes: Option<u64>| bytes.map_or("-1".to_owned(), show_bytes),
    { "type": ["string", "integer"], "format": "byte-size-or-unlimited" }
);

// === impl OneOrMany ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<T> {
            Many(Vec<T>),
            One(T),
        }
        Ok(match Either::deserialize(from)? {
            Either::Many(many) => Self(many),
            Either::One(one) => Self(vec![one]),
        })
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

// === impl Ignored ===

impl Serialize for Ignored {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(from)?;
        Ok(Self)
    }
}

impl JsonSchema for Ignored {
    fn schema_name() -> Cow<'static, str> {
        "Ignored".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "deprecated": true })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spans_of_time_need_a_unit_and_may_be_joined() {
        assert_eq!(parse_time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_time("0s"), Ok(Duration::ZERO));
        assert!(
            parse_time("60")
                .unwrap_err()
                .to_string()
                .contains("`60s` or `60ms`")
        );
        for wrong in ["", "s", "1x", "1s1", "-1s", "1..2s", "99999d", "1e400s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_time_or_seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time_or_seconds("30ms"), Ok(Duration::from_millis(30)));
    }

    #[test]
    fn sizes_are_multiples_of_1024() {
        assert_eq!(parse_bytes("1mb"), Ok(1 << 20));
        assert_eq!(parse_bytes("64 KB"), Ok(64 << 10));
        assert_eq!(parse_bytes("1.5kb"), Ok(1_536));
        assert_eq!(parse_bytes_or_unlimited("-1"), Ok(None));
        for wrong in [
            "",
            "mb",
            "1 potato",
            "-5",
            "99999999999999999999",
            "18446744073709551615kb",
        ] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_numbers_up_to_one_or_percentages() {
        assert_eq!(parse_share("0.01"), Ok(0.01));
        assert_eq!(parse_share("1%"), Ok(0.01));
        assert_eq!(parse_share("100%"), Ok(1.0));
        assert_eq!(parse_share("0"), Ok(0.0));
        for wrong in ["", "%", "1.1", "101%", "-1", "1e-2", "nan", "a tenth"] {
            assert_eq!(parse_share(wrong), Err(BadUnit::Share), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_as_the_same_value(millis in 0u64..30_000_000_000, bytes: u64) {
            let time = Duration::from_millis(millis);
            prop_assert_eq!(parse_time(&show_time(time)), Ok(time));
            prop_assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
    }
}
