// SPDX-License-Identifier: GPL-2.0
//! A view on a terminal of any size.
//!
//! Below a few lines about the device are three tables. One of them is selected: it gets the rows
//! that the others leave, and can be scrolled. There are no frames, so that it is readable on a
//! serial console.

use anyhow::Context as _;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};
use ratatui::{Frame, Terminal};

use super::model::{Cq, Eq, Qp, View};

/// Rows of a table that is not selected.
const SHORT: usize = 3;

/// The headings of the tables, without the first: the kind of the objects, and how many there are.
/// The help explains each.
const EQ_HEADS: [&str; 11] = [
    "VEC", "CQS", "USED", "IRQ/s", "POLL/s", "EQE/s", "CQE/s", "CQE/IRQ", "EQE/HEAD", "MODER.",
    "ERR",
];
const CQ_HEADS: [&str; 4] = ["OWNER", "EQ", "USED", "CQE/s"];
const QP_HEADS: [&str; 8] = [
    "OWNER", "STATE", "SEND CQ", "RECV CQ", "SQ", "SEND/s", "RQ", "RECV/s",
];

/// The table and the rows that the user looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Which table is selected.
    pub(crate) table: usize,
    /// The first row of it.
    pub(crate) row: usize,
    /// Paused: nothing is read.
    pub(crate) paused: bool,
    /// One report: no table is cut, and there are no keys.
    all: bool,
}

impl Look {
    /// Handles a key; returns whether to go on.
    pub(crate) fn key(&mut self, key: u8, view: &View) -> bool {
        let rows = [view.eqs.len(), view.cqs.len(), view.qps.len()];
        match key {
            b'q' | b'Q' | 0x03 | 0x04 => return false,
            b'\t' => {
                self.table = (self.table + 1) % rows.len();
                self.row = 0;
            }
            b'j' => self.row += 1,
            b'k' => self.row = self.row.saturating_sub(1),
            b' ' => self.paused = !self.paused,
            _ => (),
        }
        self.row = self.row.min(rows[self.table].saturating_sub(1));
        true
    }
}

/// The screen as text without colours.
pub(crate) fn text(view: &View, width: u16, height: u16) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    let drawn = terminal.draw(|frame| {
        draw(
            frame,
            view,
            Look {
                all: true,
                ..Look::default()
            },
        )
    });
    let buffer = drawn.context("drawing")?.buffer;
    let rows = buffer.content.chunks(width.into());
    Ok(rows.fold(String::new(), |text, row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text + line.trim_end() + "\n"
    }))
}

/// A table of one kind.
struct List {
    title: &'static str,
    heads: &'static [&'static str],
    rows: Vec<(Vec<String>, bool)>,
}

/// Draws the lines about the device, the tables, and the keys.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, look: Look) {
    let lists = [
        List {
            title: "EQ",
            heads: &EQ_HEADS,
            rows: view.eqs.iter().map(eq).collect(),
        },
        List {
            title: "CQ",
            heads: &CQ_HEADS,
            rows: view.cqs.iter().map(cq).collect(),
        },
        List {
            title: "QP",
            heads: &QP_HEADS,
            rows: view.qps.iter().map(qp).collect(),
        },
    ];
    let heights = lists.iter().enumerate().map(|(which, list)| {
        if look.all {
            Constraint::Length(1 + list.rows.len() as u16)
        } else if which == look.table {
            Constraint::Fill(1)
        } else {
            // Title, headings as one, and what is shown of it.
            Constraint::Length(1 + list.rows.len().min(SHORT) as u16)
        }
    });
    let constraints = [Constraint::Length(3)]
        .into_iter()
        .chain(heights)
        .chain([Constraint::Length(1)]);
    let areas = Layout::vertical(constraints).split(frame.area());
    frame.render_widget(ratatui::text::Text::from(about(view, look)), areas[0]);
    for (which, list) in lists.into_iter().enumerate() {
        let first = if which == look.table { look.row } else { 0 };
        draw_list(frame, areas[which + 1], list, first, which == look.table);
    }
    if look.all {
        return;
    }
    let keys = "q quit   Tab next table   j/k scroll   Space pause";
    frame.render_widget(Line::from(keys).dim(), areas[areas.len() - 1]);
}

fn about(view: &View, look: Look) -> Vec<Line<'static>> {
    let rate = |name: &str| number(view.counter(name).1);
    let bytes: Option<f64> = ["send-bytes", "write-bytes", "read-bytes"]
        .iter()
        .map(|name| view.counter(name).1)
        .sum();
    let tuning = |name: &str| view.tuning.get(name).copied().unwrap_or(0);
    let health = Span::from(format!("  {}", view.health));
    let errors: u64 = [
        "errors",
        "flushes",
        "violations",
        "dma-faults",
        "cq-overruns",
        "stale",
    ]
    .iter()
    .map(|name| view.counter(name).0)
    .sum();
    let errors = Span::from(format!("errors {errors}"));
    vec![
        Line::from(vec![
            Span::from(view.name.clone()).bold(),
            if view.health == "Up" {
                health.green()
            } else {
                health.red()
            },
            Span::from(format!(
                "  epoch {}  n {}  k {}  budget {}  policy {}{}",
                view.epoch,
                tuning("events"),
                tuning("completions"),
                tuning("budget"),
                tuning("policy"),
                if look.paused { "  PAUSED" } else { "" }
            )),
        ]),
        Line::from(format!(
            "a second: {} CQEs, {} EQEs, {} interrupts, {}B",
            rate("cqes"),
            rate("eqes"),
            rate("interrupts"),
            number(bytes)
        )),
        Line::from(vec![
            Span::from(format!(
                "doorbells: {} SQ, {} RQ, {} CQ head, {} arm, {} EQ; ",
                rate("sq-doorbells"),
                rate("rq-doorbells"),
                rate("cq-head-doorbells"),
                rate("cq-arm-doorbells"),
                rate("eq-masked-doorbells"),
            )),
            errors,
        ]),
    ]
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, list: List, first: usize, selected: bool) {
    let total = list.rows.len();
    // CAST: A terminal's rows.
    let room = usize::from(area.height.saturating_sub(1));
    let widths: Vec<Constraint> = (0..list.heads.len() + 1)
        .map(|column| {
            let cells = list.rows.iter().map(|(cells, _)| cells[column].len());
            let head = match column {
                0 => 6,
                _ => list.heads[column - 1].len(),
            };
            Constraint::Length(cells.max().unwrap_or(0).max(head) as u16)
        })
        .collect();
    let title = format!("{} {total}", list.title);
    let heads = [title]
        .into_iter()
        .chain(list.heads.iter().map(|head| (*head).to_owned()));
    let style = Style::new().add_modifier(if selected {
        Modifier::REVERSED | Modifier::BOLD
    } else {
        Modifier::REVERSED
    });
    let first = first.min(total.saturating_sub(room));
    let rows = list.rows.into_iter().skip(first).take(room);
    let rows = rows.map(|(cells, bad)| {
        let row = Row::new(cells);
        if bad {
            row.red()
        } else {
            row
        }
    });
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(style))
        .column_spacing(1);
    frame.render_widget(table, area);
}

fn eq(eq: &Eq) -> (Vec<String>, bool) {
    let moderation = match (eq.moderation_count, eq.moderation_usecs) {
        (0, 0) => "off".into(),
        (count, usecs) => format!("{count}/{usecs}us"),
    };
    let cells = vec![
        name(eq.number),
        eq.vector.to_string(),
        eq.cqs.to_string(),
        format!("{}/{}", eq.used, eq.depth),
        number(eq.interrupts),
        number(eq.polls),
        number(eq.events),
        number(eq.completions),
        number(eq.completions_per_interrupt),
        number(eq.events_per_head),
        moderation,
        (eq.errors + eq.lost_interrupts).to_string(),
    ];
    (cells, eq.errors + eq.lost_interrupts > 0)
}

fn cq(cq: &Cq) -> (Vec<String>, bool) {
    let cells = vec![
        name(cq.number),
        owner(cq.page),
        name(cq.eq),
        format!("{}/{}", cq.used, cq.depth),
        number(cq.completions),
    ];
    (cells, cq.used > cq.depth)
}

fn qp(qp: &Qp) -> (Vec<String>, bool) {
    let cells = vec![
        name(qp.number),
        owner(qp.page),
        qp.state.to_owned(),
        name(qp.send_cq),
        name(qp.recv_cq),
        format!("{}/{}", qp.sq_used, qp.sq_depth),
        number(qp.sends),
        format!("{}/{}", qp.rq_used, qp.rq_depth),
        number(qp.receives),
    ];
    (cells, qp.state == "ERROR")
}

/// As the driver's tables have it: index and generation.
pub(crate) fn name(number: u64) -> String {
    format!("{}.{}", number & 0xffff, number >> 16)
}

fn owner(page: u64) -> String {
    match page {
        0 => "kernel".into(),
        page => format!("page {page}"),
    }
}

/// In at most five letters.
fn number(value: Option<f64>) -> String {
    let Some(mut value) = value else {
        return "-".into();
    };
    for unit in ["", "k", "M", "G"] {
        if value < 9.95 && (value > 0.0 || !unit.is_empty()) {
            return format!("{value:.1}{unit}");
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1e3;
    }
    format!("{value:.0}T")
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::{recorded, FIRST, SECOND};
    use super::*;

    fn view() -> View {
        View::between(Some(&recorded(FIRST)), &recorded(SECOND), 1.0)
    }

    fn screen(width: u16, height: u16, look: Look) -> Vec<String> {
        let view = view();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &view, look)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content.chunks(width.into());
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect())
            .collect()
    }

    #[test]
    fn all_is_there_on_a_small_console() {
        let lines = screen(80, 24, Look::default());
        let all = lines.join("\n");
        assert!(
            lines[0].starts_with("qpair0  Up  epoch 0  n 32  k 64"),
            "{all}"
        );
        for title in ["EQ 2", "CQ 3", "QP 13"] {
            assert!(lines.iter().any(|line| line.starts_with(title)), "{all}");
        }
        let eq = lines.iter().find(|line| line.starts_with("0.0")).unwrap();
        assert!(all.contains("EQE/HEAD MODER. ERR"), "{all}");
        assert!(eq.contains(" 60 ") && eq.contains("0/4096"), "{all}");
        assert!(
            all.contains("page 1") && lines[23].starts_with("q quit"),
            "{all}"
        );
    }

    #[test]
    fn the_selected_table_has_the_room_and_scrolls() {
        let mut look = Look::default();
        let all = view();
        assert!(look.key(b'\t', &all) && look.key(b'\t', &all));
        let first = screen(80, 24, look).join("\n");
        assert!(
            first.contains("\n1.1  ") && first.contains("\n3.1  "),
            "{first}"
        );
        for _ in 0..100 {
            assert!(look.key(b'j', &all));
        }
        assert_eq!(look.row, 12);
        let last = screen(80, 24, look).join("\n");
        assert!(last.contains("12.1"), "{last}");
        assert!(look.key(b'\t', &all) && look.row == 0);
    }

    #[test]
    fn keys_that_end_it() {
        let all = view();
        for key in [b'q', 0x03] {
            assert!(!Look::default().key(key, &all));
        }
        let mut look = Look::default();
        assert!(look.key(b' ', &all) && look.paused);
        assert!(screen(80, 24, look)[0].contains("PAUSED"));
    }

    #[test]
    fn any_size_will_do() {
        for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 100)] {
            for table in 0..3 {
                let look = Look {
                    table,
                    row: 12,
                    ..Look::default()
                };
                assert_eq!(screen(width, height, look).len(), usize::from(height));
            }
        }
    }

    #[test]
    fn the_text_has_every_row() {
        let text = text(&view(), 120, 30).unwrap();
        assert_eq!(
            text.lines().filter(|line| line.contains(" RTS ")).count(),
            13
        );
        assert!(!text.contains("q quit"), "{text}");
    }

    /// Each heading begins a line of its table's part, in the order of the columns.
    #[test]
    fn the_help_explains_each_column() {
        let help: Vec<&str> = crate::args::TOP_HELP.lines().collect();
        for (title, heads) in [("EQ", &EQ_HEADS[..]), ("CQ", &CQ_HEADS), ("QP", &QP_HEADS)] {
            let begin = help
                .iter()
                .position(|line| line.starts_with(&format!("{title}, ")));
            let part = &help[begin.unwrap() + 1..];
            let explained = part
                .iter()
                .take_while(|line| line.starts_with("  "))
                .filter_map(|line| line[2..].split("  ").next())
                .filter(|head| !head.is_empty());
            assert_eq!(explained.collect::<Vec<_>>(), heads, "{title}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (9.94, "9.9"),
            (42.4, "42"),
            (999.4, "999"),
            (1234.0, "1.2k"),
            (999_900.0, "1.0M"),
            (12_345_678.0, "12M"),
        ] {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "-");
    }
}
