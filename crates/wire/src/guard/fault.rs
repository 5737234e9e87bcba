//! Panics that tests plant. Builds with debug assertions contain them, and so do optimised builds with the
//! feature `planted`, which only `./dev test` asks for. No release contains them. Panics unwind and are
//! caught in the same way in all of these builds, which `guard` asserts when it is compiled.

/// Marks a place at which a test may make the gateway panic. `TIDEGATE_TEST_PANIC` names such places, each
/// with bytes that must be in `content` for the panic to happen, and how often it happens: `batch=poison` or
/// `probe=*3,plan=bad*1`.
#[cfg(any(debug_assertions, feature = "planted"))]
pub fn fault(place: &str, content: &[u8]) {
    for planted in planted() {
        let holds = || {
            planted.needle.is_empty()
                || content
                    .windows(planted.needle.len())
                    .any(|window| window == planted.needle.as_bytes())
        };
        if planted.place == place && holds() && planted.happens() {
            panic!("planted at {place}");
        }
    }
}

/// The same function in a release: it does nothing.
#[cfg(not(any(debug_assertions, feature = "planted")))]
#[inline(always)]
pub fn fault(_: &str, _: &[u8]) {}

#[cfg(any(debug_assertions, feature = "planted"))]
struct Planted {
    place: String,
    needle: String,
    left: std::sync::atomic::AtomicU64,
}

#[cfg(any(debug_assertions, feature = "planted"))]
impl Planted {
    fn happens(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let less = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Relaxed, Relaxed, less).is_ok()
    }
}

#[cfg(any(debug_assertions, feature = "planted"))]
fn planted() -> &'static [Planted] {
    static PLANTED: std::sync::OnceLock<Vec<Planted>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| {
        let all = std::env::var("TIDEGATE_TEST_PANIC").unwrap_or_default();
        let each = all.split(',').filter_map(|one| one.split_once('='));
        let each = each.map(|(place, needle)| {
            let (needle, times) = needle.split_once('*').unwrap_or((needle, ""));
            Planted {
                place: place.to_owned(),
                needle: needle.to_owned(),
                left: times.parse().unwrap_or(u64::MAX).into(),
            }
        });
        each.collect()
    })
}
