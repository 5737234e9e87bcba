//! The program's allocator. Large blocks go straight to the system and back: mimalloc keeps what is freed for
//! a second or longer, so bounds on what is in use would not bound what the process has. Bodies, records and
//! batches are large, and those who make many of them keep some to use again.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

use mimalloc::MiMalloc;

/// mimalloc, beside large blocks.
pub(crate) struct Allocator;

/// A block of so many bytes is large. Below it, mapping and clearing pages costs more than it saves.
const LARGE: usize = 256 << 10;
/// Pages are this large at least, so mappings are aligned to it.
const ALIGN_MAX: usize = 4096;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= ALIGN_MAX
}

/// New memory, which is zero; null if the system has none.
fn map(size: usize) -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: memory of its own, which lies on nothing that is there.
    let mapped = unsafe {
        libc::mmap(
            null_mut(),
            size,
            access,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return null_mut();
    }
    mapped.cast()
}

// SAFETY: a block's size says which of the two it is from, and is the same for all calls that are about it.
// Either gives blocks that are as large as asked for, aligned to a page or as asked for, and nobody else's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller has promised.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller has promised.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: the caller has it from `map`, with this size, and uses it no more.
            let done = unsafe { libc::munmap(block.cast(), layout.size()) };
            debug_assert_eq!(done, 0, "a block that is mapped can be unmapped");
        } else {
            // SAFETY: as the caller has promised.
            unsafe { MiMalloc.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has promised that the size is no more than a layout may have.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_large(layout), is_large(wanted)) {
            // SAFETY: as the caller has promised.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, size) },
            #[cfg(target_os = "linux")]
            (true, true) => {
                // SAFETY: the caller has it from `map`, with this size, and then knows its new place only.
                let moved = unsafe { libc::mremap(block.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                match moved == libc::MAP_FAILED {
                    true => null_mut(),
                    false => moved.cast(),
                }
            }
            _ => {
                // SAFETY: the size is not zero, as the caller has promised.
                let new = unsafe { self.alloc(wanted) };
                if !new.is_null() {
                    // SAFETY: both are as large as what is copied, and the old block is the caller's alone.
                    unsafe {
                        std::ptr::copy_nonoverlapping(block, new, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                }
                new
            }
        }
    }
}
