//! One purchase as a diagram. Question: what did the phone know, and what had happened?
//!
//! Time goes down, not to scale: every event has its line, with its moment beside it. Whatever the network lost ends in a cross.

use super::{
    chart::{open, put},
    escaped,
};
use crate::found::{AttemptMade, Story};

const LINE: f64 = 30.0;
const TOP: f64 = 34.0;
const PHONE: f64 = 260.0;
const API: f64 = 510.0;
const BOOKS: f64 = 660.0;
/// Attempts beyond these are named and not drawn.
const ATTEMPTS_MAX: usize = 12;

/// What happens, in the order of its moments.
enum Event<'a> {
    Asked(&'a AttemptMade),
    Heard(&'a AttemptMade),
    Ordered,
}

pub(super) fn diagram(story: &Story) -> String {
    let mut events: Vec<(f64, Event<'_>)> = Vec::new();
    for made in story.attempts.iter().take(ATTEMPTS_MAX) {
        events.push((made.began_s, Event::Asked(made)));
        events.push((made.began_s + made.took_s, Event::Heard(made)));
    }
    events.extend(story.orders.iter().map(|order| (order.at_s, Event::Ordered)));
    events.sort_by(|one, other| one.0.total_cmp(&other.0));
    let began = events.first().map_or(0.0, |(at, _)| *at);

    let height = TOP + LINE * events.len() as f64 + LINE;
    let mut svg = open("One purchase, from the phone to the books", height);
    for (place, name) in [(PHONE, "phone"), (API, "api"), (BOOKS, "books")] {
        put(
            &mut svg,
            format_args!(
                "<text class=\"label middle\" x=\"{place}\" y=\"14\">{name}</text>\
                 <line class=\"life\" x1=\"{place}\" y1=\"22\" x2=\"{place}\" y2=\"{:.1}\"/>",
                height - 8.0
            ),
        );
    }
    for (row, (at, event)) in events.iter().enumerate() {
        let y = TOP + LINE * row as f64 + 12.0;
        put(&mut svg, format_args!("<text class=\"tick\" x=\"0\" y=\"{:.1}\">{:.3} s</text>", y + 4.0, at - began));
        match event {
            Event::Asked(made) => asked(&mut svg, y, made),
            Event::Heard(made) => heard(&mut svg, y, made),
            Event::Ordered => {
                arrow(&mut svg, y, API, BOOKS, "fine");
                note(&mut svg, y, API + 8.0, "an order, a charge");
            }
        }
    }
    if story.attempts.len() > ATTEMPTS_MAX {
        let more = story.attempts.len() - ATTEMPTS_MAX;
        put(
            &mut svg,
            format_args!("<text class=\"note\" x=\"{PHONE}\" y=\"{:.1}\">{more} more attempts</text>", height - 4.0),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn asked(svg: &mut String, y: f64, made: &AttemptMade) {
    let key = made.key.as_deref().map_or_else(|| "no key".to_owned(), |key| format!("key {key}…"));
    let lost = made.fate == "RequestLost";
    arrow(svg, y, PHONE, if lost { f64::midpoint(PHONE, API) } else { API }, if lost { "lost" } else { "fine" });
    note(svg, y, PHONE + 8.0, &format!("attempt {}, {key}", made.attempt));
}

fn heard(svg: &mut String, y: f64, made: &AttemptMade) {
    match made.fate.as_str() {
        "Answered" | "SentTwice" => arrow(svg, y, API, PHONE, "fine"),
        "RequestLost" => {}
        // It was given long before; that nothing came is what the phone has at this moment.
        _ => arrow(svg, y, API, f64::midpoint(PHONE, API), "lost"),
    }
    let heard = escaped(made.heard.strip_prefix("no answer: ").unwrap_or(&made.heard));
    put(svg, format_args!("<text class=\"note end\" x=\"{:.1}\" y=\"{:.1}\">{heard}</text>", PHONE - 8.0, y + 4.0));
}

/// From one lane to another; a lost one ends in a cross.
fn arrow(svg: &mut String, y: f64, from: f64, to: f64, class: &str) {
    let back = if to > from { -7.0 } else { 7.0 };
    put(svg, format_args!("<line class=\"arrow {class}\" x1=\"{from}\" y1=\"{y:.1}\" x2=\"{to}\" y2=\"{y:.1}\"/>"));
    let (up, down) = (y - 5.0, y + 5.0);
    if class == "lost" {
        let (left, right) = (to - 5.0, to + 5.0);
        put(
            svg,
            format_args!(
                "<path class=\"arrow lost\" d=\"M{left} {up:.1}L{right} {down:.1}M{left} {down:.1}L{right} {up:.1}\"/>"
            ),
        );
    } else {
        put(
            svg,
            format_args!(
                "<path class=\"head\" d=\"M{to} {y:.1}L{:.1} {up:.1}L{:.1} {down:.1}Z\"/>",
                to + back,
                to + back
            ),
        );
    }
}

fn note(svg: &mut String, y: f64, x: f64, text: &str) {
    put(svg, format_args!("<text class=\"note\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y - 4.0, escaped(text)));
}
