//! Who somebody is, by the claims of an ID token: the name, and the roles that groups give.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::LoginError;
use super::settings::Settings;
use crate::roles::{Role, Roles};
use crate::store::ClusterEntry;

/// Somebody whom the provider vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) issuer: String,
    /// The provider's identifier of the user, which never changes and is never given to another one.
    pub(crate) subject: String,
    pub(crate) name: String,
    pub(crate) roles: Roles,
}

/// Reads name and roles. The highest of several roles counts.
pub(super) fn person(
    settings: &Settings,
    claims: &Map<String, Value>,
    clusters: &[ClusterEntry],
) -> Result<Person, LoginError> {
    let text = |claim: &str| found(claims, claim).and_then(Value::as_str);
    // To the letter: another spelling is somebody else.
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let names = [text(&settings.name_claim), text("email"), Some(subject)];
    let name = names
        .into_iter()
        .flatten()
        .map(shown)
        .find(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "?".to_owned());
    let values = values(found(claims, &settings.roles_claim));
    let given = settings
        .roles
        .iter()
        .filter(|rule| values.contains(&rule.value.as_str()));
    let mut general = settings.default_role;
    let mut single: BTreeMap<String, Role> = BTreeMap::new();
    let mut applies = false;
    for rule in given {
        applies = true;
        let Some(cluster) = &rule.cluster else {
            general = general.max(Some(rule.role));
            continue;
        };
        match clusters.iter().find(|known| known.name == *cluster) {
            Some(known) => {
                let role = single.entry(known.id.clone()).or_insert(rule.role);
                *role = rule.role.max(*role);
            }
            None => tracing::warn!(
                cluster,
                "a role of --oidc is for a cluster that is not registered"
            ),
        }
    }
    let role = general.unwrap_or(Role::None);
    if !applies && settings.default_role.is_none() {
        return Err(LoginError::NoRole {
            name,
            subject: subject.to_owned(),
            claim: settings.roles_claim.clone(),
            has: match values.len() {
                0 => "missing or empty".to_owned(),
                count => format!("a list of {count}"),
            },
        });
    }
    single.retain(|_, on_cluster| *on_cluster > role);
    Ok(Person {
        issuer: settings.issuer.clone(),
        subject: subject.to_owned(),
        name,
        roles: Roles {
            role,
            clusters: single,
        },
    })
}

/// Returns a name without what cannot be seen: with that, it would look like another user's.
fn shown(name: &str) -> String {
    let seen: String = name.chars().filter(|letter| !is_invisible(*letter)).collect();
    let words: Vec<_> = seen.split_whitespace().collect();
    let short: String = words.join(" ").chars().take(NAME_CHARS_MAX).collect();
    short.trim_end().to_owned()
}

/// Returns whether a character is a control character, is ignored by default (Unicode, UAX #44), or sets the
/// direction of others.
fn is_invisible(letter: char) -> bool {
    letter.is_control() && !letter.is_whitespace()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns a claim by its name, or by a path such as `realm_access.roles`.
fn found<'a>(claims: &'a Map<String, Value>, claim: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(claim) {
        return Some(value);
    }
    let mut steps = claim.split('.');
    let first = claims.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

fn values(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one],
        _ => Vec::new(),
    }
}

const NAME_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(roles: &str, claims: Value) -> Result<Person, LoginError> {
        let text = format!("issuer: https://a\nclient_id: c\nurl: https://b\n{roles}");
        let clusters = [("id-prod", "prod"), ("id-test", "test")].map(|(id, name)| ClusterEntry {
            id: id.into(),
            name: name.into(),
            ..ClusterEntry::default()
        });
        person(
            &Settings::read(&text).unwrap(),
            claims.as_object().unwrap(),
            &clusters,
        )
    }

    const RULES: &str = "roles:\n  - {value: all, role: viewer}\n  - {value: ops, role: operator, cluster: prod}\n  - {value: boss, role: admin}\n  - {value: low, role: viewer, cluster: prod}\n  - {value: ops, role: operator, cluster: gone}\n";

    #[test]
    fn the_highest_role_of_all_values_counts_in_general_and_on_each_cluster() {
        let roles =
            |groups: Value| asked(RULES, json!({"sub": "1", "groups": groups})).map(|person| person.roles);
        let ops = roles(json!(["ops", "low", "other"])).unwrap();
        assert_eq!(
            (ops.role, ops.on_cluster("id-prod"), ops.on_cluster("id-test")),
            (Role::None, Role::Operator, Role::None)
        );
        let both = roles(json!(["all", "ops"])).unwrap();
        assert_eq!(
            (both.role, both.on_cluster("id-prod"), both.on_cluster("id-test")),
            (Role::Viewer, Role::Operator, Role::Viewer)
        );
        let boss = roles(json!(["boss", "low", "all"])).unwrap();
        assert_eq!((boss.role, boss.clusters.len()), (Role::Admin, 0));
        assert_eq!(
            roles(json!("all")).unwrap().role,
            Role::Viewer,
            "a single value is no list"
        );
        for none in [
            json!(["other", 7]),
            json!([]),
            json!(null),
            json!({"all": true}),
            json!("all ops"),
        ] {
            assert!(matches!(roles(none), Err(LoginError::NoRole { .. })));
        }
    }

    #[test]
    fn names_and_groups_are_found_where_providers_have_them() {
        let keycloak = "roles_claim: realm_access.roles\nroles: [{value: ops, role: operator}]\n";
        let claims = json!({"sub": "7", "preferred_username": "ada", "realm_access": {"roles": ["ops"]}});
        let ada = asked(keycloak, claims).unwrap();
        assert_eq!(
            (&*ada.name, &*ada.subject, ada.roles.role),
            ("ada", "7", Role::Operator)
        );
        let url = "roles_claim: https://example.com/roles\nroles: [{value: ops, role: operator}]\n";
        let claims = json!({"sub": "7", "email": "ada@example.com", "https://example.com/roles": ["ops"]});
        assert_eq!(asked(url, claims).unwrap().name, "ada@example.com");
        let named = |name: &str| {
            let claims = json!({"sub": " 7", "preferred_username": name, "email": "e@example.com"});
            asked("default_role: viewer\n", claims).unwrap()
        };
        for (name, shown) in [
            (" ad\u{200b}a\u{7f} ", "ada"),
            ("ada \u{1}", "ada"),
            ("\u{202e}ada\u{3164}", "ada"),
            ("Ada\u{a0}\u{2003} L", "Ada L"),
            ("\u{1}\u{2060}", "e@example.com"),
            ("Zoë 山田", "Zoë 山田"),
        ] {
            assert_eq!(named(name).name, shown);
        }
        assert_eq!(named("ada").subject, " 7", "it is nobody else's, to the letter");
        let everybody = asked("default_role: viewer\n", json!({"sub": "7"})).unwrap();
        assert_eq!((&*everybody.name, everybody.roles.role), ("7", Role::Viewer));
    }
}
