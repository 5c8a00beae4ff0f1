// SPDX-License-Identifier: GPL-2.0
//! The busiest moments of a timeline as an SVG.
//!
//! A run is longer than a picture, so the picture shows the stretch of polls with the most CQEs,
//! from an interrupt on if there is one.

use svg::node::element::{Line, Rectangle, Text, Title};
use svg::Document;

use super::record::What;
use super::timeline::{Kind, Long, Moment, Span, Timeline, Track};

/// Polls in the picture.
const POLLS: usize = 6;
/// Tracks in the picture; the busiest, if there are more.
const TRACKS: usize = 24;
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 130.0;
const TOP: f64 = 60.0;
const ROW: f64 = 26.0;
/// Moments and their colours.
const LEGEND: [(&str, &str); 7] = [
    ("interrupt", "#d00000"),
    ("EQE", "#7030a0"),
    ("CQE", "#108030"),
    ("arm", "#e08000"),
    ("head update", "#0050c0"),
    ("post, doorbell", "#808080"),
    ("error", "#ff00ff"),
];

/// The busiest polls of a timeline, as the text of an SVG.
pub(crate) fn svg(timeline: &Timeline) -> String {
    let (start, end) = window(timeline);
    let is_in = |from: u64, to: u64| from <= end && to >= start;
    let spans: Vec<&Span> = timeline
        .spans
        .iter()
        .filter(|span| is_in(span.start, span.end))
        .collect();
    let moments: Vec<&Moment> = timeline
        .moments
        .iter()
        .filter(|moment| is_in(moment.at, moment.at))
        .collect();
    let mut tracks: Vec<Track> = spans
        .iter()
        .map(|span| span.track)
        .chain(moments.iter().map(|moment| moment.track))
        .collect();
    tracks.sort_unstable();
    tracks.dedup();
    let more = tracks.len().saturating_sub(TRACKS);
    tracks.truncate(TRACKS);

    let height = TOP + ROW * tracks.len() as f64 + 70.0;
    let scale = (WIDTH - LEFT - 20.0) / (end - start).max(1) as f64;
    let x = |at: u64| LEFT + at.clamp(start, end).saturating_sub(start) as f64 * scale;
    let y = |track: &Track| {
        let row = tracks.iter().position(|it| it == track)?;
        Some(TOP + ROW * row as f64)
    };
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, WIDTH, height))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(
            Rectangle::new()
                .set("width", WIDTH)
                .set("height", height)
                .set("fill", "white"),
        )
        .add(label(10.0, 20.0, timeline.summary().replace('\n', ". ")))
        .add(label(
            10.0,
            40.0,
            format!(
                "shown: {:.1} microseconds{}",
                (end - start) as f64 / 1e3,
                match more {
                    0 => String::new(),
                    more => format!("; {more} more tracks are in the file for Perfetto"),
                }
            ),
        ));
    for track in &tracks {
        let Some(y) = y(track) else { continue };
        document = document
            .add(label(
                10.0,
                y + 17.0,
                match track.dev {
                    0 => track.name(),
                    dev => format!("qpair{dev} {}", track.name()),
                },
            ))
            .add(line(LEFT, y + ROW, WIDTH - 20.0, y + ROW, "#dddddd"));
    }
    for span in spans {
        let Some(y) = y(&span.track) else { continue };
        let (from, to) = (x(span.start), x(span.end));
        let (colour, text) = match span.what {
            Long::Masked => ("#f4b6b6", "masked".to_owned()),
            Long::Poll { cqes, .. } => ("#b9d3f0", format!("poll: {cqes} CQEs")),
            Long::Turn { cqes, .. } => ("#bfe3c0", format!("{cqes} CQEs")),
        };
        document = document.add(
            Rectangle::new()
                .set("x", from)
                .set("y", y + 4.0)
                .set("width", (to - from).max(1.0))
                .set("height", ROW - 8.0)
                .set("fill", colour)
                // A tooltip, since the span may be too narrow for text.
                .add(Title::new(text.clone())),
        );
        // About the width of letters.
        if to - from > 7.0 * text.len() as f64 {
            document = document.add(label(from + 3.0, y + 17.0, text));
        }
    }
    for moment in moments {
        let Some(y) = y(&moment.track) else { continue };
        let Some(colour) = mark(&moment.what) else {
            continue;
        };
        let x = x(moment.at);
        document = document.add(line(x, y + 3.0, x, y + ROW - 3.0, colour));
    }
    let foot = TOP + ROW * tracks.len() as f64 + 25.0;
    for tick in 0..=10u64 {
        let at = start + (end - start) * tick / 10;
        let text = format!("{:.1}", (at - start) as f64 / 1e3);
        document = document.add(label(x(at) - 10.0, foot, text));
    }
    for (place, (text, colour)) in LEGEND.into_iter().enumerate() {
        let x = LEFT + 130.0 * place as f64;
        document = document
            .add(line(x, foot + 12.0, x, foot + 28.0, colour))
            .add(label(x + 6.0, foot + 25.0, text));
    }
    format!("<!-- The event path of qpair, recorded by qpair trace -->\n{document}\n")
}

/// From where to where: the stretch of polls of an EQ with the most CQEs, from an interrupt on.
fn window(timeline: &Timeline) -> (u64, u64) {
    let polls: Vec<_> = timeline.polls().collect();
    let best = polls
        .windows(POLLS.min(polls.len()).max(1))
        .max_by_key(|some| {
            let first = some[0].0.start;
            let begins = timeline.spans.iter().any(|span| {
                span.what == Long::Masked && span.start <= first && first - span.start < 100_000
            });
            (begins, some.iter().map(|poll| poll.2).sum::<u32>())
        });
    let Some(best) = best else {
        let times = || timeline.moments.iter().map(|moment| moment.at);
        return (times().min().unwrap_or(0), times().max().unwrap_or(0));
    };
    let (first, last) = (best[0].0, best[best.len() - 1].0);
    // The interrupt before it.
    let interrupt = timeline.spans.iter().filter(|span| {
        span.track.kind == Kind::Interrupt
            && span.track.number == first.track.number
            && span.start <= first.start
            && first.start - span.start < 100_000
    });
    let start = interrupt.map(|span| span.start).max();
    (start.unwrap_or(first.start), last.end.max(first.end))
}

/// Colour of a moment.
fn mark(what: &What) -> Option<&'static str> {
    let place = match what {
        What::Irq { .. } => 0,
        What::Eqe { .. } => 1,
        What::Cqe { .. } => 2,
        What::Arm { .. } => 3,
        What::CqHead { .. } | What::EqHead { .. } => 4,
        What::Post { .. } | What::Doorbell { .. } => 5,
        What::Error { .. } => 6,
        What::PollStart { .. } | What::PollEnd { .. } => return None,
    };
    LEGEND.get(place).map(|(_, colour)| *colour)
}

fn label(x: f64, y: f64, text: impl Into<String>) -> Text {
    Text::new(text.into()).set("x", x).set("y", y)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> Line {
    Line::new()
        .set("x1", x1)
        .set("y1", y1)
        .set("x2", x2)
        .set("y2", y2)
        .set("stroke", colour)
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::recorded;
    use super::*;

    #[test]
    fn it_shows_polls_with_many_completions() {
        let timeline = recorded();
        let picture = svg(&timeline);
        assert!(picture.contains("<svg") && picture.trim_end().ends_with("</svg>"));
        for text in [
            "poll: 256 CQEs",
            "EQ 0.0",
            "CQ 2.1",
            "#108030",
            "5 events are missing",
        ] {
            assert!(picture.contains(text), "no {text}");
        }
        let (start, end) = window(&timeline);
        assert!(start < end);
    }

    #[test]
    fn of_nothing_it_shows_nothing() {
        let picture = svg(&Timeline::new(&[], 0));
        assert!(picture.contains("0 interrupts"), "{picture}");
    }
}
