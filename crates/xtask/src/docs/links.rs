//! Checks that the links of a site made by mdBook lead somewhere within it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// A page of the site.
struct Page {
    /// The names that a link can have behind `#`.
    ids: BTreeSet<String>,
    links: Vec<String>,
}

/// Checks each link of each page, and returns how many there are.
///
/// # Errors
/// All links that lead nowhere, with their pages.
pub(super) fn check(site: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    read(site, site, &mut pages)?;
    let (mut count, mut dead) = (0, Vec::new());
    for (file, page) in &pages {
        for link in page.links.iter().filter(|link| is_within(link)) {
            count += 1;
            if !leads_somewhere(site, &pages, file, link) {
                dead.push(format!("{}: {link}", file.display()));
            }
        }
    }
    if count == 0 {
        bail!("no link was found in {}", site.display());
    }
    if !dead.is_empty() {
        bail!("{} links lead nowhere:\n{}", dead.len(), dead.join("\n"));
    }
    Ok(count)
}

/// Reads the pages of a folder. The page for unknown addresses has links from the site's root, wherever that
/// will be.
fn read(site: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(site, &path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html") && !path.ends_with("404.html") {
            let text = fs::read_to_string(&path)?;
            let of = |name| attributes(&text, name);
            let page = Page {
                ids: of("id").collect(),
                links: of("href").chain(of("src")).collect(),
            };
            pages.insert(path.strip_prefix(site)?.to_owned(), page);
        }
    }
    Ok(())
}

/// Returns the values of an attribute, as mdBook writes them: in double quotes.
fn attributes<'a>(text: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let begin = format!(" {name}=\"");
    let starts: Vec<usize> = text
        .match_indices(&begin)
        .map(|(at, _)| at + begin.len())
        .collect();
    starts
        .into_iter()
        .filter_map(|at| text[at..].split_once('"'))
        .map(|(value, _)| value.replace("&amp;", "&"))
}

fn is_within(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:") && !link.starts_with("data:")
}

fn leads_somewhere(site: &Path, pages: &BTreeMap<PathBuf, Page>, file: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => file.to_owned(),
        path => super::pages::plain(&file.parent().unwrap_or(Path::new("")).join(path)),
    };
    match pages.get(&target) {
        Some(page) => anchor.is_empty() || page.ids.contains(anchor),
        None => anchor.is_empty() && site.join(&target).is_file(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_named_with_its_page() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.html",
            r##"<h1 id="top">A</h1><a href="b.html#x">b</a> <a href="#top">up</a> <img src="p.svg">"##,
        );
        write(
            "b.html",
            r#"<h2 id="x">X</h2> <a href="https://example.com/nowhere">away</a>"#,
        );
        write("p.svg", "<svg/>");
        assert_eq!(check(folder.path()).unwrap(), 3);
        write("b.html", r#"<h2 id="y">X</h2> <a href="c.html">c</a>"#);
        let said = check(folder.path()).unwrap_err().to_string();
        assert!(
            said.contains("2 links") && said.contains("a.html: b.html#x") && said.contains("b.html: c.html"),
            "{said}"
        );
    }
}
