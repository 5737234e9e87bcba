//! The present time, in the formats that load files ask for.

use std::io::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Layout;

/// A format of the present time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moment {
    /// `2026-11-21 10:03:04.123456789 +0100 CET`, in the system's time zone.
    Local,
    /// `2026-11-21 09:03:04.123456789 +0000 UTC`.
    Utc,
    /// `2026-11-21T09:03:04.123`.
    UtcLite,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// Microseconds since 1970.
    UnixMicro,
    /// Nanoseconds since 1970.
    UnixNano,
    /// In a layout, in the system's time zone.
    Formatted(Layout),
}

// === impl Moment ===

impl Moment {
    /// Returns the format that a variable's type names.
    pub(crate) fn of_type(name: &str) -> Option<Moment> {
        Some(match name {
            "now_local" => Moment::Local,
            "now_utc" => Moment::Utc,
            "now_utc_lite" => Moment::UtcLite,
            "now_unix" => Moment::Unix,
            "now_unix_in_ms" => Moment::UnixMs,
            "now_unix_in_micro" => Moment::UnixMicro,
            "now_unix_in_nano" => Moment::UnixNano,
            _ => return None,
        })
    }

    /// Appends `now` in this format.
    pub(crate) fn write(&self, now: Timestamp, out: &mut Vec<u8>) {
        let written = match self {
            Moment::Local => {
                let now = now.to_zoned(local_zone());
                write!(out, "{}", now.strftime("%Y-%m-%d %H:%M:%S%.f %z %Z"))
            }
            Moment::Utc => write!(out, "{}", now.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC")),
            Moment::UtcLite => write!(out, "{}", now.strftime("%Y-%m-%dT%H:%M:%S%.3f")),
            Moment::Formatted(layout) => {
                layout.write(&now.to_zoned(local_zone()), out);
                Ok(())
            }
            Moment::Unix => write!(out, "{}", now.as_second()),
            Moment::UnixMs => write!(out, "{}", now.as_millisecond()),
            Moment::UnixMicro => write!(out, "{}", now.as_microsecond()),
            Moment::UnixNano => write!(out, "{}", now.as_nanosecond()),
        };
        written.expect("a vector takes every write, and these formats are right");
    }
}

/// Returns the system's time zone, which is looked up once.
fn local_zone() -> TimeZone {
    thread_local! {
        static ZONE: TimeZone = TimeZone::system();
    }
    ZONE.with(TimeZone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_a_moment() {
        let now: Timestamp = "2026-11-21T09:03:04.123456Z".parse().unwrap();
        let text = |moment: Moment| {
            let mut out = Vec::new();
            moment.write(now, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(Moment::Utc), "2026-11-21 09:03:04.123456 +0000 UTC");
        assert_eq!(text(Moment::UtcLite), "2026-11-21T09:03:04.123");
        assert_eq!(text(Moment::Unix), "1795251784");
        assert_eq!(text(Moment::UnixMs), "1795251784123");
        assert_eq!(text(Moment::UnixMicro), "1795251784123456");
        assert_eq!(text(Moment::UnixNano), "1795251784123456000");
        let local = text(Moment::Local);
        assert!(
            local.starts_with("2026-11-2") && local.split(' ').count() == 4,
            "{local}"
        );
    }
}
