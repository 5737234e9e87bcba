//! Puts the built page (`web/dist`) into the binary as it is committed, compressed, so building the console
//! needs no Node.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> std::io::Result<()> {
    let dist = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist")).canonicalize()?;
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &mut files)?;
    files.sort();
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("cargo gives no OUT_DIR"))?;
    let out = Path::new(&out);
    let mut code = String::from("pub(crate) const FILES: &[(&str, &[u8])] = &[\n");
    for (number, file) in files.iter().enumerate() {
        let name = file.strip_prefix(&dist).unwrap_or(file).display().to_string();
        let packed = out.join(format!("{number}.gz"));
        std::fs::write(&packed, gzip(&std::fs::read(file)?)?)?;
        // Writing to a string cannot fail.
        let _ = writeln!(
            code,
            "    ({name:?}, include_bytes!({:?})),",
            packed.display().to_string()
        );
    }
    code.push_str("];\n");
    std::fs::write(out.join("page_files.rs"), code)
}

/// Compresses a file. The result has neither a time nor a name, so the same file gives the same bytes.
fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
