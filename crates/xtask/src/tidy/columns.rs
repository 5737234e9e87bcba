//! Prose in Markdown files is wrapped, like comments, so that it can be read beside another file and reviewed
//! line by line.

use std::path::Path;

use super::COLUMNS_MAX;

/// Pages that are made from the code: their paragraphs are its doc comments.
const GENERATED: [&str; 1] = ["docs/configuration.md"];

/// Reports each line of prose that is too long and could be wrapped.
pub(super) fn check(file: &Path, text: &str, wrong: &mut Vec<String>) {
    let is_markdown = file.extension().is_some_and(|extension| extension == "md");
    if !is_markdown || GENERATED.iter().any(|page| file == Path::new(page)) {
        return;
    }
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block && is_long(line) {
            wrong.push(format!(
                "{}:{}: a line of more than {COLUMNS_MAX} columns",
                file.display(),
                number + 1
            ));
        }
    }
}

/// Whether a line is too long, and has a place at which it could end. Tables, headings and code have none,
/// and neither has a code span or a link.
fn is_long(line: &str) -> bool {
    let text = line.trim_start();
    let as_it_is = text.starts_with(['|', '#', '<', '>']) || line.starts_with("    ");
    if as_it_is || line.chars().count() <= COLUMNS_MAX {
        return false;
    }
    // The marker of a list's item is no place to end a line.
    let marker = text.split(' ').next().unwrap_or_default();
    let is_marker =
        marker == "-" || marker.ends_with('.') && marker[..marker.len() - 1].parse::<u32>().is_ok();
    let begins = line.len() - text.len() + if is_marker { marker.len() + 1 } else { 0 };
    let (mut in_code, mut in_link) = (false, false);
    for (column, (at, letter)) in line.char_indices().enumerate() {
        match letter {
            '`' => in_code = !in_code,
            '[' if !in_code => in_link = true,
            ']' if !in_code && !line[at..].starts_with("](") => in_link = false,
            ')' if !in_code => in_link = false,
            ' ' if at > begins && column <= COLUMNS_MAX && !in_code && !in_link => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_but_for_what_cannot_be() {
        let long = "word ".repeat(30);
        let solid = "x".repeat(120);
        let text = format!(
            "{long}\n- {long}\n| {long}\n# {long}\n    {long}\n```\n{long}\n```\n- `{long}`\n- [{long}](x.md)\n12. {solid}\n"
        );
        let mut wrong = Vec::new();
        check(Path::new("docs/a.md"), &text, &mut wrong);
        check(Path::new("docs/configuration.md"), &text, &mut wrong);
        check(Path::new("a.txt"), &text, &mut wrong);
        let lines: Vec<&str> = wrong.iter().filter_map(|one| one.split(':').nth(1)).collect();
        assert_eq!(lines, ["1", "2"], "{wrong:?}");
    }
}
