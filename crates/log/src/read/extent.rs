//! The end of a segment's records, and a scan of them.

use crate::ReadError;
use crate::format::folder::read_error;
use crate::format::scan::Scan;
use crate::format::segment::Footer;
use crate::shared::OpenLog;

/// Returns a scan of a segment's record heads that does not read their payload.
pub(crate) fn scan_of<'a>(shared: &OpenLog, file: &'a dyn crate::File, first: u64) -> Scan<'a> {
    Scan {
        file,
        first,
        lanes: shared.folder.lanes,
        key: shared.folder.key,
        verify_beyond: u64::MAX,
    }
}

/// Returns the end of a segment's records that readers may see, in bytes from the file's start.
pub(crate) fn records_end(shared: &OpenLog, file: &dyn crate::File, first: u64) -> Result<u64, ReadError> {
    let failed = |source| read_error("cannot read", &shared.folder.segment(first), source);
    {
        let state = shared.state.lock();
        if state.active == Some(first) {
            return Ok(state.end - first);
        }
    }
    match Footer::read(file, first, shared.folder.lanes, shared.folder.key).map_err(failed)? {
        Some(footer) => Ok(footer.at),
        None => file.bytes().map_err(failed),
    }
}
