//! `./dev docs`: builds the user guide as a site with mdBook, with a search in the browser, and checks every
//! link.
//!
//! The pages are those of `docs/`, as they are read in the repository. Before mdBook gets them, links that
//! leave the guide are changed to lead to the repository, since a reader of the site has only the site.

mod links;
mod pages;

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::steps::run;
use crate::terminal::say;

/// Builds the site into `dist/docs`, and checks it.
///
/// # Errors
/// If mdBook is missing or fails, a page is in no chapter, or a link leads nowhere.
pub(crate) fn run_verb() -> Result<()> {
    let root = crate::root();
    let staged = crate::target().join("docs");
    if staged.exists() {
        fs::remove_dir_all(&staged).context("the pages that were staged last time")?;
    }
    let count = pages::stage(&root, &staged)?;
    let site = root.join("dist/docs");
    run(Command::new("mdbook")
        .arg("build")
        .arg(&staged)
        .arg("--dest-dir")
        .arg(&site))?;
    let checked = links::check(&site)?;
    say(&format!(
        "{count} pages, {checked} links, all of which lead somewhere: {}",
        site.join("index.html").display()
    ));
    Ok(())
}
