//! Prints access-log documents: `cargo run -p testkit --example nginx_lines -- DOCS SEED`.
//! `samples/nginx.ndjson` is its output for 4000 and 1.

use std::io::Write as _;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let docs = arguments.next().as_deref().unwrap_or("10").parse()?;
    let seed = arguments.next().as_deref().unwrap_or("1").parse()?;
    std::io::stdout().write_all(&testkit::nginx::Nginx::new(seed).ndjson(docs))?;
    Ok(())
}
