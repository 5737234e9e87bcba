//! The memory for header lines while a head is parsed.

use std::mem::MaybeUninit;

/// Room for as many lines as a head can have: on the stack when they are few.
pub(super) struct Slots<'a> {
    on_stack: [MaybeUninit<httparse::Header<'a>>; STACK_LINES],
    on_heap: Vec<MaybeUninit<httparse::Header<'a>>>,
    count: usize,
}

// === impl Slots ===

impl<'a> Slots<'a> {
    /// Makes room for at most `count_max` of the lines of `head`.
    pub(super) fn new(head: &'a [u8], count_max: usize) -> Self {
        let mut on_heap = Vec::new();
        if count_max > STACK_LINES {
            // Line breaks are worth counting only where there may be many.
            let lines = memchr::memchr_iter(b'\n', head).count().min(count_max);
            if lines > STACK_LINES {
                on_heap.resize_with(lines, MaybeUninit::uninit);
            }
        }
        Slots {
            on_stack: [const { MaybeUninit::uninit() }; STACK_LINES],
            on_heap,
            count: count_max,
        }
    }

    pub(super) fn get(&mut self) -> &mut [MaybeUninit<httparse::Header<'a>>] {
        match self.on_heap.is_empty() {
            true => &mut self.on_stack[..self.count.min(STACK_LINES)],
            false => &mut self.on_heap,
        }
    }
}

/// The lines that have room on the stack: 32 bytes each, not initialised.
const STACK_LINES: usize = 64;
