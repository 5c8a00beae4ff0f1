// SPDX-License-Identifier: GPL-2.0
//! A timeline in the trace event format, which <https://ui.perfetto.dev> opens.
//!
//! A device is a process there, a track a thread; spans are complete events, moments are instants.

use serde_json::{json, Map, Value};

use super::record::What;
use super::timeline::{Long, Timeline, Track};

/// As the file has it.
pub(crate) fn json(timeline: &Timeline) -> String {
    let tracks = timeline.tracks();
    let id = |track: &Track| tracks.binary_search(track).unwrap_or(0) + 1;
    let mut events = Vec::new();
    for track in &tracks {
        let meta = |name: &str, args: Value| json!({ "ph": "M", "pid": track.dev, "tid": id(track), "name": name, "args": args });
        let device = format!("qpair{}", track.dev);
        events.push(meta("process_name", json!({ "name": device })));
        events.push(meta("thread_name", json!({ "name": track.name() })));
        events.push(meta(
            "thread_sort_index",
            json!({ "sort_index": id(track) }),
        ));
    }
    for span in &timeline.spans {
        let (name, args) = match span.what {
            Long::Masked => ("masked".into(), json!({})),
            Long::Poll {
                budget,
                eqes,
                cqes,
                again,
            } => (
                format!("poll: {cqes} CQEs"),
                json!({ "budget": budget, "eqes": eqes, "cqes": cqes, "again": again }),
            ),
            Long::Turn { cqes, armed } => (
                format!("{cqes} CQEs"),
                json!({ "cqes": cqes, "armed": armed }),
            ),
        };
        events.push(json!({
            "ph": "X",
            "pid": span.track.dev,
            "tid": id(&span.track),
            "ts": microseconds(span.start),
            "dur": microseconds(span.end - span.start),
            "name": name,
            "args": args,
        }));
    }
    for moment in &timeline.moments {
        let (name, args) = about(&moment.what);
        events.push(json!({
            "ph": "i",
            "s": "t",
            "pid": moment.track.dev,
            "tid": id(&moment.track),
            "ts": microseconds(moment.at),
            "name": name,
            "args": args,
        }));
    }
    let mut file = Map::new();
    file.insert("displayTimeUnit".into(), "ns".into());
    file.insert("otherData".into(), json!({ "lost": timeline.lost }));
    file.insert("traceEvents".into(), events.into());
    Value::Object(file).to_string()
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn about(what: &What) -> (String, Value) {
    match *what {
        What::Irq { .. } => ("interrupt".into(), json!({})),
        What::Eqe { index, number, .. } => ("EQE".into(), json!({ "index": index, "of": number })),
        What::Cqe {
            index, qp, status, ..
        } => (
            "CQE".into(),
            json!({ "index": index, "qp": qp, "status": status }),
        ),
        What::Arm { index, .. } => ("arm".into(), json!({ "index": index })),
        What::CqHead { index, .. } => ("head".into(), json!({ "index": index })),
        What::EqHead { index, masked, .. } => {
            let name = if masked {
                "head, masked"
            } else {
                "head, unmask"
            };
            (name.into(), json!({ "index": index }))
        }
        What::Post { index, opcode, .. } => {
            ("post".into(), json!({ "index": index, "opcode": opcode }))
        }
        What::Doorbell { index, .. } => ("doorbell".into(), json!({ "index": index })),
        What::Error {
            kind,
            number,
            detail,
        } => (
            format!("error: {}", kind.name()),
            json!({ "number": number, "detail": detail }),
        ),
        // Spans.
        What::PollStart { .. } | What::PollEnd { .. } => ("poll".into(), json!({})),
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::recorded;
    use super::*;

    #[test]
    fn it_is_a_file_of_that_format() {
        let timeline = recorded();
        let file: Value = serde_json::from_str(&json(&timeline)).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        assert_eq!(file["otherData"]["lost"], 5);
        for event in events {
            assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
            match event["ph"].as_str() {
                Some("M") => assert!(event["args"].is_object(), "{event}"),
                Some("X") => assert!(event["dur"].as_f64() >= Some(0.0), "{event}"),
                Some("i") => assert!(event["ts"].is_f64() && event["s"] == "t", "{event}"),
                other => panic!("{other:?} in {event}"),
            }
        }
        let polls = events.iter().filter(|event| event["args"]["budget"] == 256);
        assert_eq!(polls.clone().count(), timeline.polls().count());
        assert!(polls
            .clone()
            .any(|poll| poll["args"]["cqes"].as_u64() > Some(1)));
        let named = |name: &str| events.iter().any(|event| event["args"]["name"] == name);
        assert!(named("qpair0") && named("EQ 0.0") && named("CQ 2.1"));
    }
}
