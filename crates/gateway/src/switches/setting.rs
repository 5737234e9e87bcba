//! The switches: the gateway's names, the names that users of the faster-bulk plug-in know, and the values
//! that are accepted.

use std::time::Duration;

use config::{BadUnit, parse_bytes, parse_time};
use serde_json::Value;

/// A switch that applies to a cluster as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Setting {
    /// Whether parts of different bulks travel together.
    Combine,
    /// The number of waiting bytes at which the waiting parts are sent.
    FlushThresholdSize,
    /// The longest time that a part waits.
    Interval,
    /// Whether documents with neither id nor routing are directed to one shard.
    DirectRouting,
}

/// The value of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchValue {
    /// On or off.
    On(bool),
    /// A size.
    Bytes(u64),
    /// A time.
    Time(Duration),
}

/// A change that is not valid; the string says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadSwitch(pub(crate) String);

/// Why a text is not a value of a switch. The message follows the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadValue {
    #[error("is neither `true` nor `false`")]
    Bool,
    #[error("is not a single value")]
    Several,
    #[error(transparent)]
    Unit(#[from] BadUnit),
}

/// The plug-in's name for the switch of an index.
pub(crate) const INDEX_KEY: &str = "index.direct_routing.enable";

// === impl Setting ===

impl Setting {
    /// All settings, in the order of their declaration.
    pub(crate) const ALL: [Setting; 4] = [
        Setting::Combine,
        Setting::FlushThresholdSize,
        Setting::Interval,
        Setting::DirectRouting,
    ];

    /// Returns the plug-in's name.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Setting::Combine => "apack.fasterbulk.combine.enabled",
            Setting::FlushThresholdSize => "apack.fasterbulk.combine.flush_threshold_size",
            Setting::Interval => "apack.fasterbulk.combine.interval",
            Setting::DirectRouting => "index.direct_routing.global.enable",
        }
    }

    /// Returns the gateway's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Setting::Combine => "combine.enabled",
            Setting::FlushThresholdSize => "combine.flush_threshold_size",
            Setting::Interval => "combine.interval",
            Setting::DirectRouting => "direct_routing.enabled",
        }
    }

    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.key() == key)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// Returns the meaning of a text as this switch's value.
    pub(crate) fn read(self, text: &str) -> Result<SwitchValue, BadValue> {
        Ok(match self {
            Setting::Combine | Setting::DirectRouting => SwitchValue::On(read_bool(text)?),
            Setting::FlushThresholdSize => SwitchValue::Bytes(parse_bytes(text)?),
            // As in the plug-in, a bare number is milliseconds.
            Setting::Interval if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                SwitchValue::Time(parse_time(&format!("{text}ms"))?)
            }
            Setting::Interval => SwitchValue::Time(parse_time(text)?),
        })
    }

    /// Returns the text of a JSON value, if the switch accepts it. `as_named` is the name that the client
    /// used.
    pub(crate) fn checked(self, value: &Value, as_named: &str) -> Result<Box<str>, BadSwitch> {
        let text = scalar(value, as_named)?;
        match self.read(&text) {
            Ok(_) => Ok(text.into()),
            Err(why) => Err(bad_value(&text, as_named, &why)),
        }
    }
}

/// Returns the value of an index's switch, given as JSON.
pub(crate) fn checked_bool(value: &Value, as_named: &str) -> Result<bool, BadSwitch> {
    let text = scalar(value, as_named)?;
    read_bool(&text).map_err(|why| bad_value(&text, as_named, &why))
}

/// Reads booleans as the servers do (`Booleans.parseBoolean`): only these two words are accepted.
fn read_bool(text: &str) -> Result<bool, BadValue> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(BadValue::Bool),
    }
}

fn scalar(value: &Value, as_named: &str) -> Result<String, BadSwitch> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err(bad_value(&value.to_string(), as_named, &BadValue::Several)),
    }
}

fn bad_value(text: &str, as_named: &str, why: &BadValue) -> BadSwitch {
    let text: String = text.chars().take(SHOWN_MAX).collect();
    BadSwitch(format!(
        "the value of [{as_named}] cannot be used: [{text}] {why}"
    ))
}

/// The number of characters of a wrong value that its refusal repeats.
const SHOWN_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_as_the_plug_in_writes_them_and_with_units() {
        assert_eq!(Setting::Combine.read("true"), Ok(SwitchValue::On(true)));
        assert_eq!(
            Setting::FlushThresholdSize.read("1mb"),
            Ok(SwitchValue::Bytes(1 << 20))
        );
        for (text, ms) in [("50", 50), ("50ms", 50), ("1s", 1000), ("0", 0)] {
            let time = SwitchValue::Time(Duration::from_millis(ms));
            assert_eq!(Setting::Interval.read(text), Ok(time), "{text}");
        }
        for (value, text) in [
            (json!("true"), "true"),
            (json!(true), "true"),
            (json!("false"), "false"),
        ] {
            assert_eq!(Setting::DirectRouting.checked(&value, "x").as_deref(), Ok(text));
        }
        assert_eq!(Setting::Interval.checked(&json!(50), "x").as_deref(), Ok("50"));
    }

    #[test]
    fn what_means_nothing_is_refused_by_the_name_that_was_used() {
        for (setting, value) in [
            (Setting::Combine, json!("maybe")),
            (Setting::Combine, json!("True")),
            (Setting::Combine, json!(1)),
            (Setting::Combine, json!(["true"])),
            (Setting::FlushThresholdSize, json!("-1")),
            (Setting::FlushThresholdSize, json!(-5)),
            (Setting::FlushThresholdSize, json!("")),
            (Setting::FlushThresholdSize, json!("1 potato")),
            (Setting::Interval, json!("-50")),
            (Setting::Interval, json!("50x")),
            (Setting::Interval, json!("99999999999999999999")),
            (Setting::DirectRouting, json!(null)),
        ] {
            let error = setting.checked(&value, setting.key()).unwrap_err();
            assert!(error.0.contains(setting.key()), "{error}");
        }
        assert!(checked_bool(&json!("yes"), INDEX_KEY).is_err());
    }

    #[test]
    fn each_switch_has_names_of_its_own() {
        for setting in Setting::ALL {
            assert_eq!(Setting::of_key(setting.key()), Some(setting));
            assert_eq!(Setting::of_name(setting.name()), Some(setting));
        }
    }
}
