//! Files that commands write.

use std::io::{self, Write};
use std::path::Path;

/// Writes a file; an error names it.
pub(crate) fn write_file(
    file: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let mut out = io::BufWriter::new(std::fs::File::create(file).map_err(named)?);
    write(&mut out).and_then(|()| out.flush()).map_err(named)
}
