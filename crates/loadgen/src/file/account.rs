//! Users and their passwords.

use super::section::Section;
use super::text::Text;

/// A user and a password, both templates.
#[derive(Debug, Clone)]
pub(crate) struct BasicAuth {
    pub(crate) username: Text,
    pub(crate) password: Text,
}

/// Reads a section with `username` and `password`.
pub(super) fn basic_auth(section: &mut Section<'_, '_>, key: &'static str) -> Option<BasicAuth> {
    let node = section.get(key)?;
    let path = section.path_of(key);
    let mut account = Section::of(node, &path, section.problems)?;
    let username = account.text("username");
    let password = account.text("password");
    if username.is_none() {
        account.missing("`username`");
    }
    account.end();
    let username = username?;
    let password = password.unwrap_or(Text {
        text: String::new(),
        ..username.clone()
    });
    Some(BasicAuth { username, password })
}
