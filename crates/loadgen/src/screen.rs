//! A live screen on a terminal: rates, latencies and errors of the last minute or so.

use std::collections::VecDeque;
use std::io::{self, Stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, LineGauge, Paragraph, Sparkline};

use crate::engine::Stop;
use crate::options::Options;
use crate::progress::Progress;
use crate::units::{bytes, decimal, number, time};

/// The screen; dropping it restores the terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    view: View,
    over: Arc<AtomicBool>,
}

/// The contents of the screen.
#[derive(Debug, Default)]
struct View {
    title: String,
    users: usize,
    duration: Option<Duration>,
    requests_max: Option<u64>,
    stop: Stop,
    now: Option<Progress>,
    /// The newest error or complaint, and when it happened.
    trouble: Option<(f64, String)>,
    /// The values of the sparklines, by second.
    rates: VecDeque<u64>,
    p99_us: VecDeque<u64>,
}

// === impl Screen ===

impl Screen {
    /// Takes over the terminal on standard error. `q`, Escape and Ctrl-C end the run through `stop`; a second
    /// time they end the process.
    ///
    /// # Errors
    /// If standard error is no terminal, or the terminal does not work.
    pub fn open(title: &str, options: &Options, stop: &Stop) -> io::Result<Screen> {
        enable_raw_mode()?;
        execute!(io::stderr(), EnterAlternateScreen)?;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            hook(panic);
        }));
        let screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(io::stderr()))?,
            view: View {
                title: title.to_owned(),
                users: options.users,
                duration: options.duration,
                requests_max: options.requests_max,
                stop: stop.clone(),
                ..View::default()
            },
            over: Arc::default(),
        };
        let (over, stop) = (Arc::clone(&screen.over), stop.clone());
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || watch_keys(&over, &stop))?;
        Ok(screen)
    }

    /// Shows what happened in the last second.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn show(&mut self, now: &Progress) -> io::Result<()> {
        self.view.add(now);
        let view = &self.view;
        self.terminal.draw(|frame| view.draw(frame)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        give_back();
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

/// Restores the terminal. Errors here mean that the terminal is gone.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stderr(), LeaveAlternateScreen);
}

fn watch_keys(over: &AtomicBool, stop: &Stop) {
    let mut asked = false;
    while !over.load(Ordering::Relaxed) {
        match event::poll(KEY_LOOK) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(_) => return,
        }
        let Ok(Event::Key(key)) = event::read() else {
            continue;
        };
        if !ends(&key) {
            continue;
        }
        if asked {
            give_back();
            std::process::exit(130);
        }
        asked = true;
        stop.stop();
    }
}

fn ends(key: &KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

// === impl View ===

impl View {
    fn add(&mut self, now: &Progress) {
        let count = if now.total.documents > 0 {
            now.last.documents
        } else {
            now.last.answers
        };
        self.rates.push_back(now.rate(count).round() as u64);
        let p99 = now.latency_ms.as_ref().map_or(0.0, |latency| latency.p99);
        self.p99_us.push_back((p99 * 1e3).round() as u64);
        for values in [&mut self.rates, &mut self.p99_us] {
            while values.len() > SECONDS_KEPT {
                values.pop_front();
            }
        }
        if let Some(trouble) = &now.trouble {
            self.trouble = Some((now.at_s, trouble.clone()));
        }
        self.now = Some(now.clone());
    }

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        let Some(now) = &self.now else { return };
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(9),
            Constraint::Min(4),
            Constraint::Min(4),
            Constraint::Length(1),
        ]);
        let [title, gauge, figures, rates, p99, foot] = rows.areas(frame.area());
        let users = if self.users == 1 { "user" } else { "users" };
        let spans = [
            Span::from(" tidegate loadgen ").bold().reversed(),
            Span::from(format!(" {}", self.title)).bold(),
            Span::from(format!("   {} {users}   {}", self.users, self.time(now))),
        ];
        frame.render_widget(Line::from_iter(spans), title);
        if let Some(done) = self.done(now) {
            let line = LineGauge::default()
                .ratio(done)
                .filled_style(Style::new().fg(Color::Blue))
                .unfilled_style(Style::new().fg(Color::DarkGray));
            frame.render_widget(line, gauge);
        }
        // On a terminal of 80 columns the counts need more than half of the width.
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(26)]).areas(figures);
        frame.render_widget(counts(now), left);
        frame.render_widget(latencies(now), right);
        let what = if now.total.documents > 0 {
            "documents/s"
        } else {
            "requests/s"
        };
        spark(frame, rates, what, &self.rates, Color::Blue, &|rate| number(rate));
        spark(frame, p99, "p99", &self.p99_us, Color::Yellow, &|us| {
            time(us as f64 / 1e3)
        });
        frame.render_widget(self.foot(), foot);
    }

    /// Returns how long the run has lasted, and will last.
    fn time(&self, now: &Progress) -> String {
        match self.duration {
            Some(duration) => format!("{:.0} s of {:.0} s", now.at_s, duration.as_secs_f64()),
            None => format!("{:.0} s", now.at_s),
        }
    }

    /// Shows what the keys do, and the last error.
    fn foot(&self) -> Line<'_> {
        let keys = if self.stop.is_asked() {
            " ending: requests under way are finished; q ends at once"
        } else {
            " q ends the run"
        };
        let mut line = Line::from(Span::from(keys).dim());
        if let Some((at_s, trouble)) = &self.trouble {
            line.push_span(Span::from(format!("   at {at_s:.0} s: {trouble}")).red());
        }
        line
    }

    /// Returns how much of the run is over, from 0 to 1, if that is known.
    fn done(&self, now: &Progress) -> Option<f64> {
        let by_time = self
            .duration
            .map(|duration| now.at_s / duration.as_secs_f64().max(1e-9));
        let sent = now.total.answers + now.total.errors;
        let by_count = self.requests_max.map(|max| sent as f64 / max.max(1) as f64);
        let done = by_time.into_iter().chain(by_count).reduce(f64::max)?;
        Some(done.clamp(0.0, 1.0))
    }
}

fn counts(now: &Progress) -> Paragraph<'static> {
    let (last, total) = (&now.last, &now.total);
    let row = |name: &str, rate: String, sum: String| Line::from(format!("{name:<17}{rate:>13}/s {sum:>15}"));
    let bad = |name: &str, count: u64| {
        let line = Line::from(format!("{name:<17}{:>15} {:>15}", "", number(count)));
        if count > 0 { line.red().bold() } else { line }
    };
    let lines = vec![
        row("requests", decimal(now.rate(last.answers)), number(total.answers)),
        row(
            "documents",
            decimal(now.rate(last.documents)),
            number(total.documents),
        ),
        row(
            "sent",
            bytes(now.rate(last.sent_bytes)),
            bytes(total.sent_bytes as f64),
        ),
        row(
            "received",
            bytes(now.rate(last.received_bytes)),
            bytes(total.received_bytes as f64),
        ),
        bad("errors", total.errors),
        bad("invalid", total.invalid),
        bad("documents failed", total.failed_documents),
    ];
    Paragraph::new(lines).block(Block::bordered().title(" now, in all "))
}

fn latencies(now: &Progress) -> Paragraph<'static> {
    let block = Block::bordered().title(" latency, last second ");
    let Some(ms) = &now.latency_ms else {
        return Paragraph::new("no answers").block(block);
    };
    let rows = [
        ("mean", ms.mean),
        ("p50", ms.p50),
        ("p90", ms.p90),
        ("p99", ms.p99),
        ("p99.9", ms.p99_9),
        ("max", ms.max),
    ];
    let line = |(name, value): (&str, f64)| Line::from(format!("{name:<8}{:>12}", time(value)));
    Paragraph::new(rows.into_iter().map(line).collect::<Vec<_>>()).block(block)
}

/// Draws the newest values that fit, the last one at the right edge.
fn spark(
    frame: &mut ratatui::Frame<'_>,
    area: Rect,
    name: &str,
    values: &VecDeque<u64>,
    colour: Color,
    label: &dyn Fn(u64) -> String,
) {
    let width = usize::from(area.width.saturating_sub(2));
    let shown: Vec<u64> = values.iter().rev().take(width).rev().copied().collect();
    let max = shown.iter().copied().max().unwrap_or(0);
    let title = format!(" {name}, at most {} ", label(max));
    let spark = Sparkline::default()
        .data(shown)
        .max(max.max(1))
        .style(Style::new().fg(colour))
        .block(Block::bordered().title(title));
    frame.render_widget(spark, area);
}

const KEY_LOOK: Duration = Duration::from_millis(100);
const SECONDS_KEPT: usize = 600;

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::progress::Counts;

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_rates_latency_and_errors() {
        let counts = Counts {
            answers: 12,
            documents: 60_000,
            errors: 3,
            ..Counts::default()
        };
        let mut view = View {
            title: "bulk.yml".to_owned(),
            users: 3,
            duration: Some(Duration::from_secs(10)),
            ..View::default()
        };
        view.add(&Progress {
            at_s: 5.0,
            span_s: 1.0,
            last: counts,
            total: counts,
            latency_ms: None,
            trouble: Some("connect failed: refused".to_owned()),
        });
        let text = drawn(&view);
        for wanted in [
            "bulk.yml   3 users   5 s of 10 s",
            "60,000/s",
            "at 5 s: connect failed: refused",
            "50%",
            "errors",
            "no answers",
            "documents/s, at most 60,000",
            "q ends",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let mut view = View::default();
        view.add(&Progress {
            at_s: 0.0,
            span_s: 0.0,
            last: Counts::default(),
            total: Counts::default(),
            latency_ms: None,
            trouble: None,
        });
        for (width, height) in [(1, 1), (10, 3), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
    }

    #[test]
    fn keys_that_end_the_run() {
        let key = |code, modifiers| ends(&KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
