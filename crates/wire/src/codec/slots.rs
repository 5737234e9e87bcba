//! The memory for header lines while a head is parsed.

use std::mem::MaybeUninit;

/// Room for as many lines as a head can have: on the stack when they are few.
pub(super) struct Slots<'a> {
    few: [MaybeUninit<httparse::Header<'a>>; FEW],
    many: Vec<MaybeUninit<httparse::Header<'a>>>,
    count: usize,
}

// === impl Slots ===

impl<'a> Slots<'a> {
    /// Makes room for at most `count_max` of the lines of `head`.
    pub(super) fn new(head: &'a [u8], count_max: usize) -> Self {
        let mut many = Vec::new();
        if count_max > FEW {
            // Line breaks are worth counting only where there may be many.
            let lines = memchr::memchr_iter(b'\n', head).count().min(count_max);
            if lines > FEW {
                many.resize_with(lines, MaybeUninit::uninit);
            }
        }
        Slots {
            few: [const { MaybeUninit::uninit() }; FEW],
            many,
            count: count_max,
        }
    }

    pub(super) fn get(&mut self) -> &mut [MaybeUninit<httparse::Header<'a>>] {
        match self.many.is_empty() {
            true => &mut self.few[..self.count.min(FEW)],
            false => &mut self.many,
        }
    }
}

/// 32 bytes each, not initialised.
const FEW: usize = 64;
