//! The text of a file without its secrets, for people who change it elsewhere, and the way back: where a
//! changed text still has the mask, the secret of the former text is put in.

use std::ops::Range;

use serde_json::Value as Json;
use settings::problem::{Problem, Problems};
use settings::yaml::{self, Node, Scalar, Value};
use settings::{MASK, Position, tree};

use super::schema::cached;
use super::show::section_of;

/// Returns the text with a mask in place of each secret: values of secret keys, passwords in URLs, and all
/// values of the section `env`. References such as `$[[env.NAME]]` stay, and so do comments. `None` if the
/// text is not valid YAML.
pub fn mask(text: &str) -> Option<String> {
    let mut masked = text.to_owned();
    for secret in secrets(text)?.iter().rev() {
        let mask = match secret.is_whole {
            true => QUOTED_MASK,
            false => MASK,
        };
        masked.replace_range(secret.written.clone(), mask);
    }
    Some(masked)
}

/// Returns the text with the secrets of `former` in place of masks. A secret belongs to its key, and in a
/// list to the section with the same `name`, wherever in the list that is; the password in a URL belongs to
/// the rest of the URL.
///
/// # Errors
/// Returns each mask for which `former` has no secret.
pub fn unmask(text: &str, former: &str, name: Option<&str>) -> Result<String, Vec<Problem>> {
    let known = secrets(former).unwrap_or_default();
    let mut problems = Problems::new(name.map(str::to_owned));
    let mut whole = text.to_owned();
    // A text that is not valid YAML has no masks that could be found. Its check says what is wrong.
    for masked in secrets(text).unwrap_or_default().iter().rev() {
        let written = &text[masked.written.clone()];
        if written != MASK && (!masked.is_whole || masked.text != MASK) {
            continue;
        }
        match known.iter().find(|secret| secret.key == masked.key) {
            Some(secret) => whole.replace_range(masked.written.clone(), &secret.as_written(former)),
            None => problems.error(
                masked.place,
                &masked.key.join("."),
                "is masked, and the configuration in force has no secret here",
                Some("write the secret itself, or `$[[env.NAME]]`".to_owned()),
            ),
        }
    }
    match problems.has_errors() {
        true => Err(problems.into_sorted()),
        false => Ok(whole),
    }
}

/// A secret in a text.
struct Found {
    /// The keys that lead to it; items of lists by their names.
    key: Vec<String>,
    place: Position,
    /// The value, of which `written` may be only a part.
    text: String,
    written: Range<usize>,
    /// Whether the whole value is secret, and not only the password in a URL.
    is_whole: bool,
}

impl Found {
    /// Returns the secret as it can be written anywhere in a file.
    fn as_written(&self, text: &str) -> String {
        let written = &text[self.written.clone()];
        // What is not in quotes may mean something else between brackets, and a block depends on its indent.
        let is_plain = written
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./+".contains(&byte));
        let is_quoted = written.starts_with(['"', '\'']) && !written.contains('\n');
        match self.is_whole && !is_plain && !is_quoted {
            true => Json::String(self.text.clone()).to_string(),
            false => written.to_owned(),
        }
    }
}

/// Returns the secrets of a text, in the order in which they are written.
fn secrets(text: &str) -> Option<Vec<Found>> {
    let mut problems = Problems::default();
    let root = tree::nest(yaml::parse(text, &mut problems)?, &mut problems);
    let mut search = Search {
        scalars: yaml::scalars(text),
        text,
        found: Vec::new(),
    };
    search.walk(&root, cached(), &mut Vec::new());
    let mut found = search.found;
    // An alias repeats what its anchor has.
    found.sort_by_key(|secret| secret.written.start);
    found.dedup_by_key(|secret| secret.written.start);
    Some(found)
}

struct Search<'a> {
    text: &'a str,
    scalars: std::collections::HashMap<Position, Range<usize>>,
    found: Vec<Found>,
}

impl Search<'_> {
    fn walk(&mut self, node: &Node, schema: &Json, key: &mut Vec<String>) {
        match &node.value {
            Value::Scalar(scalar) => self.look(node.place, scalar, schema, key),
            Value::Map(entries) => {
                for (name, below) in entries {
                    let property = schema["properties"].get(&name.name);
                    let property = property.unwrap_or(&schema["additionalProperties"]);
                    key.push(name.name.clone());
                    self.walk(below, section_of(property), key);
                    key.pop();
                }
            }
            Value::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    key.push(name_of(item).unwrap_or_else(|| at.to_string()));
                    self.walk(item, section_of(&schema["items"]), key);
                    key.pop();
                }
            }
        }
    }

    fn look(&mut self, place: Position, scalar: &Scalar, schema: &Json, key: &[String]) {
        let Some(written) = self.scalars.get(&place).cloned() else {
            return;
        };
        let is_known = schema.is_object();
        let of_env = key.first().is_some_and(|first| first == "env");
        let is_secret = schema["format"] == "password"
            || of_env
            || (!is_known && key.last().is_some_and(|name| sounds_secret(name)));
        let found = |key: Vec<String>, written: Range<usize>, is_whole: bool| Found {
            key,
            place,
            text: scalar.text.clone(),
            written,
            is_whole,
        };
        if is_secret {
            if !scalar.text.is_empty() && (of_env || !is_reference(&scalar.text)) {
                self.found.push(found(key.to_vec(), written, true));
            }
        } else if let Some(password) = password_in(&self.text[written.clone()])
            && !is_reference(&self.text[written.clone()][password.clone()])
        {
            let mut url = self.text[written.clone()].trim_matches(['"', '\'']).to_owned();
            if let Some(password) = password_in(&url) {
                url.replace_range(password, MASK);
            }
            // The position in a list says nothing about a URL.
            let list = key.len() - usize::from(key.last().is_some_and(|last| last.parse::<usize>().is_ok()));
            let key = [&key[..list], &[url]].concat();
            let within = written.start + password.start..written.start + password.end;
            self.found.push(found(key, within, false));
        } else if scalar.text == MASK
            || password_in(&self.text[written.clone()]).is_none()
                && password_in(&scalar.text).is_some_and(|password| !is_reference(&scalar.text[password]))
        {
            // Escapes hide where the password is written: the mask stands for the whole URL.
            self.found.push(found(key.to_vec(), written, true));
        }
    }
}

/// Returns the name of a section in a list.
fn name_of(item: &Node) -> Option<String> {
    let Value::Map(entries) = &item.value else {
        return None;
    };
    let (_, name) = entries.iter().find(|(key, _)| key.name == "name")?;
    match &name.value {
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        _ => None,
    }
}

/// Whether a key that has no effect here sounds as if it had a secret.
fn sounds_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    ["pass", "secret", "token", "key", "credential"]
        .iter()
        .any(|word| key.contains(word))
}

/// Whether a value is a variable and nothing else.
fn is_reference(text: &str) -> bool {
    text.starts_with("$[[") && text.ends_with("]]") && text.matches("$[[").count() == 1
}

/// Returns where the password of `http://user:password@host` is.
fn password_in(written: &str) -> Option<Range<usize>> {
    let authority = written.find("://")? + "://".len();
    let rest = &written[authority..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@')?;
    let colon = rest[..host].find(':')?;
    Some(authority + colon + 1..authority + host)
}

/// `settings::MASK` as a scalar: without quotes, it would be an alias.
const QUOTED_MASK: &str = "\"********\"";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# the file
env: {PW: "envpw", HOST: es1}
admin.token: t0ken   # keep
elasticsearch:
  - {name: a, endpoints: ["http://u:urlpw@h1:9200", http://h2:9200], basic_auth: {username: u, password: 'a,pw'}}
  - name: b
    endpoint: http://h3
    basic_auth:
      username: v
      password: |-
        b
        pw
  - {name: c, endpoint: 'http://h4', basic_auth: {username: w, password: "$[[env.PW]]"}}
tracing: {otlp: {endpoint: http://c, headers: {authorization: "Bearer x", "x-k": "k$[[env.PW]]"}}}
"#;

    #[test]
    fn no_secret_is_shown_and_everything_else_is() {
        let masked = mask(TEXT).unwrap();
        for secret in [
            "envpw", "es1", "t0ken", "urlpw", "a,pw", "pw\n", "Bearer x", "k$[",
        ] {
            assert!(!masked.contains(secret), "{secret}: {masked}");
        }
        for shown in [
            "# the file",
            "# keep",
            "http://u:********@h1:9200",
            "$[[env.PW]]",
            "http://h3",
            "username: v",
        ] {
            assert!(masked.contains(shown), "{shown}: {masked}");
        }
        assert_eq!(masked.matches(MASK).count(), 8, "{masked}");
        assert_eq!(mask("a: ["), None);
    }

    #[test]
    fn a_url_that_is_written_with_escapes_is_masked_as_a_whole() {
        // Programs that write JSON may escape slashes.
        let text =
            r#"{"elasticsearch": [{"name": "c", "endpoints": ["http:\/\/u:urlpw@h1", "http:\/\/h2"]}]}"#;
        let masked = mask(text).unwrap();
        assert!(
            !masked.contains("urlpw") && masked.contains(r"http:\/\/h2"),
            "{masked}"
        );
        assert_eq!(unmask(&masked, text, None).unwrap(), text);
    }

    #[test]
    fn what_is_unchanged_comes_back_as_it_was() {
        let back = unmask(&mask(TEXT).unwrap(), TEXT, None).unwrap();
        // Only the block became a line.
        let line = TEXT.replace("|-\n        b\n        pw", "\"b\\npw\"");
        assert_eq!(back, line);
    }

    #[test]
    fn a_secret_goes_with_its_section_and_not_with_its_position() {
        let masked = mask(TEXT).unwrap();
        let (before, after) = masked.split_once("  - name: b").unwrap();
        let (a, head) = (before.lines().last().unwrap(), before.lines().count() - 1);
        let head: String = before
            .lines()
            .take(head)
            .map(|line| format!("{line}\n"))
            .collect();
        let (b, rest) = after.split_once("  - {name: c").unwrap();
        let swapped = format!("{head}  - name: b{b}{a}\n  - {{name: c{rest}");
        let back = unmask(&swapped, TEXT, None).unwrap();
        assert!(
            back.find("\"b\\npw\"").unwrap() < back.find("'a,pw'").unwrap(),
            "{back}"
        );
    }

    #[test]
    fn a_mask_for_which_there_is_no_secret_is_a_problem_with_its_place() {
        let masked = mask(TEXT).unwrap();
        let renamed = masked
            .replace("- name: b", "- name: x")
            .replace("@h1:9200", "@evil:9200");
        let problems = unmask(&renamed, TEXT, Some("f.yml")).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("f.yml:5:"), "{told:?}");
        assert!(
            told[1].starts_with("f.yml:10:17: error: elasticsearch.x.basic_auth.password: is masked"),
            "{told:?}"
        );
    }

    #[test]
    fn a_secret_that_is_written_anew_stays() {
        let changed = mask(TEXT)
            .unwrap()
            .replacen("admin.token: \"********\"", "admin.token: new", 1);
        let back = unmask(&changed, TEXT, None).unwrap();
        assert!(back.contains("admin.token: new   # keep"), "{back}");
    }
}
