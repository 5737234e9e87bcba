//! The places at which one item of a compact reply ends and the next begins.

use std::ops::ControlFlow;

use memchr::memmem;

/// The text between two items of a compact reply.
const BOUNDARY: &[u8] = b"}},{\"";

/// Calls `see` with each place at which a boundary begins, in order, until it breaks off.
#[inline]
pub(crate) fn each(text: &[u8], mut see: impl FnMut(usize) -> ControlFlow<()>) -> ControlFlow<()> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { wide::each(text, see) };
    }
    each_from(text, 0, &mut see)
}

/// Like [`each`], from a place of the text on. This finds one boundary after another, and begins anew at
/// each: items are so short that this costs as much as to find them.
fn each_from(text: &[u8], from: usize, see: &mut impl FnMut(usize) -> ControlFlow<()>) -> ControlFlow<()> {
    memmem::find_iter(&text[from..], BOUNDARY).try_for_each(|place| see(from + place))
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8,
        _mm256_set1_epi8,
    };
    use std::ops::ControlFlow;

    use super::{BOUNDARY, each_from};

    /// The places that are looked at together.
    const PLACES: usize = 32;
    /// Bytes of the boundary that are compared at all places at once.
    const COMPARED: [usize; 3] = [0, 2, 3];

    #[target_feature(enable = "avx2")]
    pub(super) fn each(text: &[u8], mut see: impl FnMut(usize) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut from = 0;
        while let Some(stretch) = text.get(from..from + PLACES + BOUNDARY.len()) {
            let alike = COMPARED.map(|at| equal(&stretch[at..], BOUNDARY[at]));
            let all = _mm256_and_si256(_mm256_and_si256(alike[0], alike[1]), alike[2]);
            let mut places = _mm256_movemask_epi8(all) as u32;
            while places != 0 {
                let place = places.trailing_zeros() as usize;
                places &= places - 1;
                if stretch[place..].starts_with(BOUNDARY) {
                    see(from + place)?;
                }
            }
            from += PLACES;
        }
        each_from(text, from, &mut see)
    }

    /// Compares the first [`PLACES`] bytes with one byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn equal(bytes: &[u8], byte: u8) -> __m256i {
        let bytes: &[u8; PLACES] = bytes.first_chunk().expect("a stretch is longer than the places");
        // SAFETY: the load needs no alignment, and the bytes are as many as it reads.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
        _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(byte as i8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Vec<usize> {
        let mut places = vec![];
        let seen = each(text, |place| {
            places.push(place);
            ControlFlow::Continue(())
        });
        assert!(seen.is_continue());
        places
    }

    #[test]
    fn boundaries_are_found_wherever_they_stand_and_nothing_like_them_is() {
        for length in 0..150 {
            for place in 0..length {
                let mut text = vec![b'}'; length];
                let end = length.min(place + BOUNDARY.len());
                text[place..end].copy_from_slice(&BOUNDARY[..end - place]);
                let whole = end == place + BOUNDARY.len();
                assert_eq!(found(&text), if whole { vec![place] } else { vec![] });
                for changed in place..end {
                    let mut text = text.clone();
                    text[changed] = b'x';
                    assert!(found(&text).is_empty(), "{length}, {place}, {changed}");
                }
            }
        }
        let text = BOUNDARY.repeat(50);
        assert_eq!(
            found(&text),
            (0..50).map(|nth| nth * BOUNDARY.len()).collect::<Vec<_>>()
        );
        let mut left = 3;
        let seen = each(&text, |_| {
            left -= 1;
            if left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(seen.is_break() && left == 0);
    }
}
