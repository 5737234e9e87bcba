//! The pages, prepared for the site.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The address of the repository on the web.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Pages outside `docs/` that the site has too: their paths in the repository, and on the site.
const BESIDE: [(&str, &str); 2] = [("README.md", "index.md"), ("CHANGELOG.md", "changelog.md")];

/// Records of decisions, which are for people who change Tidegate and are not in the guide.
const NOT_IN_THE_GUIDE: &str = "docs/adr";

/// Copies everything that the site is made of, and returns the number of pages.
pub(super) fn stage(root: &Path, staged: &Path) -> Result<usize> {
    let source = staged.join("src");
    fs::create_dir_all(&source)?;
    fs::copy(root.join("docs/book.toml"), staged.join("book.toml")).context("docs/book.toml")?;
    let mut pages = BTreeSet::new();
    for file in files(root, Path::new("docs"))? {
        let (from, to) = (
            root.join(&file),
            source.join(on_site(&file).context("a file of docs/")?),
        );
        fs::create_dir_all(to.parent().unwrap_or(&source))?;
        if file.extension().is_some_and(|ending| ending == "md") {
            fs::write(to, page(root, &file)?)?;
            pages.insert(file);
        } else if file.extension().is_none_or(|ending| ending != "toml") {
            fs::copy(&from, to).with_context(|| file.display().to_string())?;
        }
    }
    for (file, name) in BESIDE {
        fs::write(source.join(name), page(root, Path::new(file))?)?;
    }
    pages.remove(Path::new("docs/SUMMARY.md"));
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    let listed = |page: &&PathBuf| {
        let name = page.strip_prefix("docs").unwrap_or(page);
        summary.contains(&format!("]({})", name.display()))
    };
    let missing: Vec<_> = pages.iter().filter(|page| !listed(page)).collect();
    if !missing.is_empty() {
        bail!("docs/SUMMARY.md, the guide's contents, lacks {missing:?}");
    }
    Ok(pages.len() + BESIDE.len())
}

/// Lists the files below a folder of the repository, as paths from the root.
fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let path = folder.join(entry?.file_name());
        match root.join(&path).is_dir() {
            true if path != Path::new(NOT_IN_THE_GUIDE) => found.extend(files(root, &path)?),
            true => (),
            false => found.push(path),
        }
    }
    Ok(found)
}

/// Returns the path on the site of a file of the repository, if the site has it. The page that is shown for a
/// folder has another name on the web.
fn on_site(file: &Path) -> Option<PathBuf> {
    if file.starts_with(NOT_IN_THE_GUIDE) {
        return None;
    }
    let beside = BESIDE.iter().find(|(name, _)| Path::new(name) == file);
    match beside {
        Some((_, name)) => Some(PathBuf::from(name)),
        None => {
            let path = file.strip_prefix("docs").ok()?;
            let is_first = path.file_name().is_some_and(|name| name == "README.md");
            Some(if is_first {
                path.with_file_name("index.md")
            } else {
                path.to_owned()
            })
        }
    }
}

/// Returns a page with its links adapted to the site.
fn page(root: &Path, file: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(file)).with_context(|| file.display().to_string())?;
    let mut made = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else {
            break;
        };
        made.push_str(before);
        made.push_str("](");
        made.push_str(&link(root, file, target)?);
        made.push(')');
        rest = behind;
    }
    made.push_str(rest);
    Ok(made)
}

/// Returns where a link of a page leads on the site.
fn link(root: &Path, file: &Path, target: &str) -> Result<String> {
    if target.starts_with('#') || target.contains("://") || target.contains([' ', '\n']) || target.is_empty()
    {
        return Ok(target.to_owned());
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (target, String::new()),
    };
    let leads_to = plain(&file.parent().unwrap_or(Path::new("")).join(path));
    if !root.join(&leads_to).exists() {
        bail!("{}: a link leads to {target}, which is not there", file.display());
    }
    let is_folder = root.join(&leads_to).is_dir();
    if let Some(there) = on_site(&leads_to).filter(|_| !is_folder) {
        let here = on_site(file).unwrap_or_default();
        let up = "../".repeat(here.components().count().saturating_sub(1));
        return Ok(format!("{up}{}{anchor}", there.display()));
    }
    let kind = if is_folder { "tree" } else { "blob" };
    Ok(format!("{REPOSITORY}/{kind}/main/{}{anchor}", leads_to.display()))
}

/// Returns a path without `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                made.pop();
            }
            Component::CurDir => (),
            part => made.push(part),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_in_the_guide_or_lead_to_the_repository() {
        let root = crate::root();
        let led = |file: &str, target: &str| link(&root, Path::new(file), target).unwrap();
        assert_eq!(led("README.md", "docs/async.md#delivery"), "async.md#delivery");
        assert_eq!(led("docs/async.md", "log.md"), "log.md");
        assert_eq!(led("docs/runbooks/disk-full.md", "../log.md"), "../log.md");
        assert_eq!(led("docs/SUMMARY.md", "../README.md"), "index.md");
        assert_eq!(led("docs/async.md", "#delivery"), "#delivery");
        assert_eq!(
            led("docs/async.md", "../examples/async.yml"),
            format!("{REPOSITORY}/blob/main/examples/async.yml")
        );
        assert_eq!(
            led("README.md", "docs/adr"),
            format!("{REPOSITORY}/tree/main/docs/adr")
        );
        assert!(link(&root, Path::new("docs/async.md"), "nowhere.md").is_err());
    }
}
