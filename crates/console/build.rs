//! Puts the built page (`web/dist`) into the binary as it is committed, so building the console needs no
//! Node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let dist = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist")).canonicalize()?;
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &mut files)?;
    files.sort();
    let mut code = String::from("pub(crate) const FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        let name = file.strip_prefix(&dist).unwrap_or(file).display().to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(
            code,
            "    ({name:?}, include_bytes!({:?})),",
            file.display().to_string()
        );
    }
    code.push_str("];\n");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("cargo gives no OUT_DIR"))?;
    std::fs::write(Path::new(&out).join("page_files.rs"), code)
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
