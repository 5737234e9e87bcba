//! The settings of logins at a provider, from the file of `--oidc`.

use std::collections::BTreeSet;

use http::Uri;
use serde_json::json;
use settings::problem::Problems;
use settings::yaml::{self, Node};
use settings::{Position, Secret};

use crate::import::{entries, flag, text, texts};
use crate::roles::Role;

/// The settings.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The provider's identifier, as its tokens have it.
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: Option<Secret>,
    /// The console's address for browsers, without a slash at its end.
    pub(crate) url: String,
    pub(crate) scopes: Vec<String>,
    /// The claim with the user's name.
    pub(crate) name_claim: String,
    /// The claim with the user's groups or roles.
    pub(crate) roles_claim: String,
    pub(crate) roles: Vec<RoleRule>,
    /// The role of those to whom no rule applies; none: they are not let in.
    pub(crate) default_role: Option<Role>,
    /// The time after which sessions end; none: as others.
    pub(crate) session_minutes: Option<i64>,
    /// Authorities to trust in place of the system's.
    pub(crate) ca_pem: Option<String>,
    pub(crate) label: String,
    pub(crate) password_login: bool,
}

/// What a value of the claim gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleRule {
    pub(crate) value: String,
    pub(crate) role: Role,
    /// The name of the cluster for which the role is; none: for everything.
    pub(crate) cluster: Option<String>,
}

/// What is wrong with the settings, with line and column.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadSettings(String);

impl Settings {
    /// Reads the file.
    ///
    /// # Errors
    /// Returns each problem with its line and column.
    pub(crate) fn read(text: &str) -> Result<Self, BadSettings> {
        let mut problems = Problems::new(None);
        let settings = yaml::parse(text, &mut problems).and_then(|root| root_of(&root, &mut problems));
        match settings {
            Some(settings) if !problems.has_errors() => Ok(settings),
            _ => {
                let told = problems.into_sorted().into_iter().map(|problem| {
                    let place = problem.place.unwrap_or(Position { line: 1, column: 1 });
                    let help = problem.help.map(|help| format!("; {help}")).unwrap_or_default();
                    format!(
                        "line {}, column {}: {}{help}",
                        place.line, place.column, problem.message
                    )
                });
                Err(BadSettings(told.collect::<Vec<_>>().join("; ")))
            }
        }
    }

    /// Returns the address to which the provider sends browsers back.
    pub(crate) fn redirect_url(&self) -> String {
        format!("{}/api/oidc/callback", self.url)
    }

    /// Returns whether the console's address is one with TLS.
    pub(crate) fn is_secured(&self) -> bool {
        let uri: Option<Uri> = self.url.parse().ok();
        uri.is_some_and(|uri| uri.scheme_str() == Some("https"))
    }

    /// Returns what decides which roles claims give, and for how long, in the same order whatever that of the
    /// file.
    pub(crate) fn rules(&self) -> String {
        let rules = self
            .roles
            .iter()
            .map(|rule| (&rule.value, rule.role, &rule.cluster));
        let rules: BTreeSet<String> = rules.map(|rule| json!(rule).to_string()).collect();
        json!([self.roles_claim, self.default_role, rules, self.session_minutes]).to_string()
    }

    /// Returns the host name in the console's address.
    pub(crate) fn host(&self) -> String {
        let uri: Option<Uri> = self.url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        host.trim_matches(['[', ']']).to_owned()
    }
}

fn root_of(root: &Node, problems: &mut Problems) -> Option<Settings> {
    let mut read = Settings {
        issuer: String::new(),
        client_id: String::new(),
        client_secret: None,
        url: String::new(),
        scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
        name_claim: "preferred_username".to_owned(),
        roles_claim: "groups".to_owned(),
        roles: Vec::new(),
        default_role: None,
        session_minutes: None,
        ca_pem: None,
        label: "Log in with single sign-on".to_owned(),
        password_login: true,
    };
    for (key, value) in entries(root, "the file", &KEYS, problems) {
        let mut to = |place: &mut String| {
            if let Some(given) = text(value, problems) {
                *place = given;
            }
        };
        match key {
            "issuer" => to(&mut read.issuer),
            "client_id" => to(&mut read.client_id),
            "url" => to(&mut read.url),
            "name_claim" => to(&mut read.name_claim),
            "roles_claim" => to(&mut read.roles_claim),
            "label" => to(&mut read.label),
            "client_secret" => read.client_secret = text(value, problems).map(Secret::new),
            "client_secret_file" => {
                read.client_secret = file(value, problems).map(|secret| Secret::new(secret.trim()))
            }
            "ca_file" => read.ca_pem = file(value, problems),
            "ca_pem" => read.ca_pem = text(value, problems),
            "scopes" => read.scopes = texts(value, problems).unwrap_or_default(),
            "password_login" => read.password_login = flag(value, problems).unwrap_or(true),
            "default_role" => read.default_role = role(value, problems),
            "session_minutes" => read.session_minutes = minutes(value, problems),
            _ => read.roles = rules(value, problems),
        }
    }
    read.url = read.url.trim_end_matches('/').to_owned();
    for (key, given) in [
        ("issuer", &read.issuer),
        ("client_id", &read.client_id),
        ("url", &read.url),
    ] {
        if given.is_empty() {
            problems.error(root.place, "", format!("`{key}` is missing"), None);
        } else if key != "client_id" && !is_address(given) {
            let why = format!(
                "`{key}`: an address with https:// is wanted, without a query; http:// only for this machine"
            );
            problems.error(root.place, "", why, None);
        }
    }
    if !read.scopes.iter().any(|scope| scope == "openid") {
        problems.error(root.place, "", "`scopes`: `openid` is missing", None);
    }
    if read.roles.is_empty() && read.default_role.is_none() {
        let why = "nobody could log in: neither `roles` nor `default_role` is there";
        problems.error(root.place, "", why, None);
    }
    Some(read)
}

fn rules(node: &Node, problems: &mut Problems) -> Vec<RoleRule> {
    let yaml::Value::List(list) = &node.value else {
        problems.error(
            node.place,
            "",
            format!("a list is wanted, not {}", node.describe()),
            None,
        );
        return Vec::new();
    };
    let mut rules = Vec::new();
    for one in list {
        let (mut value, mut wanted, mut cluster) = (None, None, None);
        for (key, given) in entries(one, "a role", &["value", "role", "cluster"], problems) {
            match key {
                "value" => value = text(given, problems),
                "role" => wanted = role(given, problems),
                _ => cluster = text(given, problems),
            }
        }
        match (value, wanted) {
            (Some(value), Some(role)) => rules.push(RoleRule { value, role, cluster }),
            _ => problems.error(one.place, "", "`value` and `role` are wanted", None),
        }
    }
    rules
}

fn role(node: &Node, problems: &mut Problems) -> Option<Role> {
    match text(node, problems).as_deref() {
        Some("viewer") => Some(Role::Viewer),
        Some("operator") => Some(Role::Operator),
        Some("admin") => Some(Role::Admin),
        _ => {
            problems.error(node.place, "", "`viewer`, `operator` or `admin` is wanted", None);
            None
        }
    }
}

fn minutes(node: &Node, problems: &mut Problems) -> Option<i64> {
    let given = text(node, problems)?.parse().ok();
    let minutes = given.filter(|minutes| (1..=SESSION_MINUTES_MAX).contains(minutes));
    if minutes.is_none() {
        let why = format!("a number from 1 to {SESSION_MINUTES_MAX} is wanted");
        problems.error(node.place, "", why, None);
    }
    minutes
}

fn file(node: &Node, problems: &mut Problems) -> Option<String> {
    let name = text(node, problems)?;
    match std::fs::read_to_string(&name) {
        Ok(content) => Some(content),
        Err(error) => {
            problems.error(node.place, "", format!("`{name}` cannot be read: {error}"), None);
            None
        }
    }
}

/// Returns whether an address may be used: others on the network path could read what is sent to an `http://`
/// address, or pose as it.
pub(super) fn is_address(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let Some(authority) = uri.authority() else {
        return false;
    };
    let host = authority.host().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let scheme = uri.scheme_str();
    !host.is_empty()
        && !authority.as_str().contains('@')
        && uri.query().is_none()
        && !text.contains('#')
        && (scheme == Some("https") || scheme == Some("http") && is_here)
}

/// No session lasts longer.
const SESSION_MINUTES_MAX: i64 = crate::store::SESSION_MS_MAX / 60_000;

const KEYS: [&str; 15] = [
    "issuer",
    "client_id",
    "client_secret",
    "client_secret_file",
    "url",
    "scopes",
    "name_claim",
    "roles_claim",
    "roles",
    "default_role",
    "session_minutes",
    "ca_file",
    "ca_pem",
    "label",
    "password_login",
];

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str =
        "issuer: https://login.example\nclient_id: console\nurl: https://console.example/x/\n";

    #[test]
    fn a_file_is_read_with_its_defaults() {
        let read = Settings::read(&format!(
            "{LEAST}client_secret: hunter2\nroles:\n  - {{value: ops, role: operator, cluster: prod}}\n  - {{value: all, role: viewer}}\n"
        ))
        .unwrap();
        assert_eq!(read.redirect_url(), "https://console.example/x/api/oidc/callback");
        assert_eq!(read.host(), "console.example");
        assert_eq!(
            (read.roles[0].role, read.roles[0].cluster.as_deref()),
            (Role::Operator, Some("prod"))
        );
        assert_eq!(
            (&*read.name_claim, &*read.roles_claim, read.password_login),
            ("preferred_username", "groups", true)
        );
        assert!(!format!("{read:?}").contains("hunter2"));
    }

    #[test]
    fn what_gives_roles_and_for_how_long_is_among_the_rules_and_the_order_is_not() {
        let rules = |more: &str| Settings::read(&format!("{LEAST}{more}")).unwrap().rules();
        let (one, other) = ("  - {value: a, role: admin}\n", "  - {value: b, role: viewer}\n");
        let both = rules(&format!("roles:\n{one}{other}"));
        assert_eq!(both, rules(&format!("roles:\n{other}{one}label: x\n")));
        for changed in [
            "session_minutes: 5\n",
            "default_role: viewer\n",
            "roles_claim: x\n",
        ] {
            assert_ne!(
                both,
                rules(&format!("roles:\n{one}{other}{changed}")),
                "{changed}"
            );
        }
        assert_ne!(both, rules(&format!("roles:\n{one}")));
    }

    #[test]
    fn the_file_of_the_documentation_can_be_used() {
        let page = include_str!("../../../../docs/console.md");
        let lines = page.lines().skip_while(|line| !line.starts_with("    issuer: "));
        let lines = lines.take_while(|line| !line.is_empty());
        let text: String = lines.map(|line| format!("{}\n", &line[4..])).collect();
        let read = Settings::read(&text).unwrap();
        assert_eq!((read.roles.len(), &*read.client_id), (3, "tidegate-console"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, told) in [
            (
                "issuer: http://login.example\nclient_id: c\nurl: https://c\ndefault_role: viewer",
                "`issuer`: an address with https://",
            ),
            (
                &*format!("{LEAST}default_role: none"),
                "line 4, column 15: `viewer`, `operator` or `admin`",
            ),
            (
                &*format!("{LEAST}default_role: viewer\nsession_minutes: 721"),
                "line 5, column 18: a number from 1 to 720",
            ),
            (LEAST, "nobody could log in"),
            (
                &*format!("{LEAST}default_role: viewer\nscopes: [profile]"),
                "`openid` is missing",
            ),
            (&*format!("{LEAST}roles: [{{value: x}}]"), "`value` and `role`"),
            (
                &*format!("{LEAST}role_claim: x\ndefault_role: viewer"),
                "did you mean `roles_claim`?",
            ),
            (
                &*format!("{LEAST}default_role: viewer\nclient_secret_file: /nowhere/x"),
                "`/nowhere/x` cannot be read",
            ),
            ("default_role: viewer", "`issuer` is missing"),
        ] {
            let wrong = Settings::read(text).unwrap_err().to_string();
            assert!(wrong.contains(told), "{wrong}");
        }
    }
}
