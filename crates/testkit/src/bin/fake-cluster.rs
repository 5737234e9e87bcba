//! A fake cluster as a process of its own, for measurements. It prints its nodes' addresses, one per line,
//! and serves until its standard input ends. `GET /_fake/counts` returns what it was sent, and
//! `POST /_fake/counts/reset` resets the counts.
#![allow(clippy::print_stdout, reason = "the addresses are what the caller reads")]

use std::io::Read as _;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use testkit::fake::{FakeCluster, Flavour, Spec};

#[derive(Parser)]
struct Arguments {
    /// Number of nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Port of the first node; the others follow; 0 takes free ports.
    #[arg(long, default_value_t = 0)]
    base_port: u16,
    /// opensearch-1 to -3, elasticsearch-7 to -9.
    #[arg(long, default_value = "opensearch-3")]
    flavour: Flavour,
    /// An index that exists from the start, as NAME:SHARDS; may be repeated.
    #[arg(long, value_parser = index)]
    index: Vec<(String, u32)>,
    /// Keep documents instead of counting them.
    #[arg(long)]
    store: bool,
    /// Speak TLS; the certificate is written to this file, its key beside it with the ending `key`.
    #[arg(long)]
    tls: Option<std::path::PathBuf>,
    /// Stay on this core.
    #[arg(long)]
    core: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(core) = arguments.core {
        testkit::pin::to_core(core)?;
    }
    let cluster = FakeCluster::start(Spec {
        nodes: arguments.nodes,
        base_port: arguments.base_port,
        flavour: arguments.flavour,
        indices: arguments.index,
        store: arguments.store,
        tls: arguments.tls.is_some(),
        content_length_max: 512 << 20,
        ..Spec::default()
    })
    .context("cannot start the fake cluster")?;
    if let (Some(path), Some(certificate), Some(key)) = (&arguments.tls, cluster.ca_pem(), cluster.key_pem())
    {
        std::fs::write(path, certificate).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::write(path.with_extension("key"), key).context("cannot write the key")?;
    }
    for url in cluster.urls() {
        println!("{url}");
    }
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing)?;
    Ok(())
}

fn index(text: &str) -> Result<(String, u32)> {
    let (name, shards) = text.rsplit_once(':').context("NAME:SHARDS is wanted")?;
    Ok((
        name.to_owned(),
        shards.parse().map_err(|error| anyhow!("{shards}: {error}"))?,
    ))
}
