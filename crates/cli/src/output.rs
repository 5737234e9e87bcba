//! What commands write: files, tables, times.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// A file that is opened before its content is known: one that cannot be written is reported at once, and not
/// after a run of an hour.
///
/// Until it is written, the file keeps what it contains. A file that was made here and never written is
/// removed.
pub(crate) struct Planned {
    path: PathBuf,
    file: File,
    is_left_over: bool,
}

// === impl Planned ===

impl Planned {
    /// Opens the file; an error names it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let made = File::options().write(true).create_new(true).open(path);
        let is_left_over = made.is_ok();
        let file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path),
            made => made,
        };
        Ok(Self {
            file: file.map_err(|error| named(path, &error))?,
            path: path.to_owned(),
            is_left_over,
        })
    }

    /// Replaces the file's content; an error names the file.
    pub(crate) fn write(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.is_left_over = false;
        let written = self.file.metadata().and_then(|metadata| {
            // A device or a pipe has no content to replace.
            if metadata.is_file() {
                self.file.set_len(0)?;
            }
            let mut out = io::BufWriter::new(&self.file);
            write(&mut out)?;
            out.flush()
        });
        written.map_err(|error| named(&self.path, &error))
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        if self.is_left_over {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Formats a time as in `2026-11-21T10:00:00Z`; 0 becomes `-`.
pub(crate) fn time(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    let stamp = (ms > 0)
        .then(|| jiff::Timestamp::from_second(seconds).ok())
        .flatten();
    stamp.map_or_else(|| "-".to_owned(), |stamp| stamp.to_string())
}

/// Formats a count with its noun, in the plural unless the count is one.
pub(crate) fn counted(count: u64, word: &str) -> String {
    match count {
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

/// Whether the error is a closed pipe: its reader has seen enough.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Formats an error with its causes, each said once: an error often repeats the causes that it wraps.
pub(crate) fn why(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if said.contains(&text) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&text);
    }
    said
}

/// Deeper values stay on one line: indentation would grow with the square of their depth, and a document may
/// have any.
const INDENTED_DEPTH_MAX: usize = 32;

/// Lays out a JSON text for people, and leaves every name, text and number as it was written. Control
/// characters in texts, which could steer a terminal, become escapes, which mean the same.
pub(crate) fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut is_escaped) = (0, false, false);
    let mut chars = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        if depth > INDENTED_DEPTH_MAX {
            return;
        }
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(char) = chars.next() {
        if in_text {
            match char.is_control() {
                true => out.push_str(&format!("\\u{:04x}", u32::from(char))),
                false => out.push(char),
            }
            in_text = is_escaped || char != '"';
            is_escaped = !is_escaped && char == '\\';
            continue;
        }
        match char {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                out.push(char);
                while chars.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(char);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_text = char == '"';
                out.push(char);
            }
        }
    }
    out
}

/// Says in words where a text stops being JSON.
pub(crate) fn no_json(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Eof => "it is not JSON: it ends too early".to_owned(),
        _ => format!(
            "it is not JSON at line {}, column {}",
            error.line(),
            error.column()
        ),
    }
}

/// Returns whether text for this output may have colours: it is a terminal, and `NO_COLOR` does not forbid
/// it.
pub(crate) fn has_colours(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Makes a text safe for a terminal: foreign text must not move the cursor or change the colours.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Writes rows below their heads. Each column is as wide as its longest text; the last one is not padded. A
/// head that begins with `>` belongs to a right-aligned column.
pub(crate) fn table(out: &mut dyn Write, heads: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| plain(text)).collect())
        .collect();
    let titles: Vec<String> = heads
        .iter()
        .map(|head| head.trim_start_matches('>').to_owned())
        .collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let texts = std::iter::once(&titles)
                .chain(&rows)
                .map(|row| row[column].chars().count());
            texts.max().unwrap_or(0)
        })
        .collect();
    for row in std::iter::once(&titles).chain(&rows) {
        let mut line = String::new();
        for (column, text) in row.iter().enumerate() {
            let width = widths[column];
            if column > 0 {
                line.push_str("  ");
            }
            if heads[column].starts_with('>') {
                line.push_str(&format!("{text:>width$}"));
            } else {
                line.push_str(&format!("{text:width$}"));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_as_ever_and_loses_no_digit_field_or_escape() {
        let kept = r#"{"n":12345678901234567890123, "n" : 1.0e5,"t":"a\\\"{,:[ \u00e4 ]}","e":{ },"l":[[],[1 ,-0.10]]}"#;
        assert_eq!(
            indented(kept),
            r#"{
  "n": 12345678901234567890123,
  "n": 1.0e5,
  "t": "a\\\"{,:[ \u00e4 ]}",
  "e": {},
  "l": [
    [],
    [
      1,
      -0.10
    ]
  ]
}"#
        );
        assert_eq!(indented("[\"\u{9b}31m\u{7f}\"]"), "[\n  \"\\u009b31m\\u007f\"\n]");
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(
            indented(&deep).len() < 300_000,
            "no line is as wide as it is deep"
        );
        let plain = serde_json::json!({"a": [1, "x y", {"b": [], "c": {}}], "d": null});
        assert_eq!(indented(&plain.to_string()), format!("{plain:#}"));
    }

    #[test]
    fn a_planned_file_is_replaced_when_it_is_written_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        drop(Planned::open(&path).unwrap());
        assert!(!path.exists(), "nothing was written");
        let text = |text: &'static str| move |out: &mut dyn Write| out.write_all(text.as_bytes());
        let read = || std::fs::read_to_string(&path).unwrap();
        Planned::open(&path).unwrap().write(text("a long one")).unwrap();
        drop(Planned::open(&path).unwrap());
        assert_eq!(read(), "a long one");
        Planned::open(&path).unwrap().write(text("short")).unwrap();
        assert_eq!(read(), "short");
        let error = Planned::open(&path.join("below")).err().unwrap();
        assert!(error.to_string().contains("report/below: "), "{error}");
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_text_and_numbers_stand_to_the_right() {
        let rows = [
            vec!["\u{1b}".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "1000".to_owned()],
        ];
        let mut out = Vec::new();
        table(&mut out, &["name", ">n"], &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "name     n\n         1\nlong  1000\n"
        );
    }
}
