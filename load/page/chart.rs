//! Lines and bars, as SVG. Question: how does a column of numbers become a picture that needs no library to be looked at?
//!
//! Colours are classes, so that the page's style decides them, by light and by dark.

use std::fmt::Write as _;

use super::escaped;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 294.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
const LEGEND: f64 = 22.0;

/// How values lie on an axis.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    Linear,
    /// Only for values above 0.
    Log,
}

#[derive(Debug)]
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    pub(super) scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Where a line is drawn across, with its name.
    pub(super) ticks: Vec<(f64, String)>,
}

#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Of the page's style.
    pub(super) class: String,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

impl Axis<'_> {
    /// From 0 to 1 along the axis.
    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => {
                let log = |value: f64| value.max(f64::MIN_POSITIVE).ln();
                (log(value) - log(self.from)) / (log(self.to) - log(self.from))
            }
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn x(axis: &Axis<'_>, value: f64) -> f64 {
    LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)
}

fn y(axis: &Axis<'_>, value: f64) -> f64 {
    HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)
}

/// Round numbers from 0 to at least `most`, five or so.
pub(super) fn round_ticks(most: f64, named: fn(f64) -> String) -> Vec<(f64, String)> {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let rough = most / 5.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * magnitude).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..=(most / step).ceil() as u32).map(|tick| f64::from(tick) * step).map(|tick| (tick, named(tick))).collect()
}

/// Powers of ten around these values.
pub(super) fn log_ticks(least: f64, most: f64, named: fn(f64) -> String) -> Vec<(f64, String)> {
    let power = |value: f64| value.max(1e-6).log10();
    let powers = (power(least).floor() as i32)..=(power(most.max(least)).ceil() as i32);
    powers.map(|power| 10_f64.powi(power)).map(|tick| (tick, named(tick))).collect()
}

/// Curves over two axes.
pub(super) fn lines(title: &str, across: &Axis<'_>, up: &Axis<'_>, series: &[Series]) -> String {
    let mut svg = frame(title, across, up, series.iter().map(|one| (one.name.as_str(), one.class.as_str())));
    for one in series.iter().filter(|one| !one.points.is_empty()) {
        let points: Vec<_> =
            one.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(across, *at), y(up, *value))).collect();
        let dashed = if one.dashed { " dashed" } else { "" };
        put(&mut svg, format_args!("<polyline class=\"line {}{dashed}\" points=\"{}\"/>", one.class, points.join(" ")));
    }
    svg.push_str("</svg>");
    svg
}

/// Bars side by side at each bin, and a mark somewhere.
pub(super) fn bars(
    title: &str,
    across: &Axis<'_>,
    up: &Axis<'_>,
    series: &[Series],
    mark: Option<(f64, &str)>,
) -> String {
    let mut svg = frame(title, across, up, series.iter().map(|one| (one.name.as_str(), one.class.as_str())));
    let bins = series.iter().map(|one| one.points.len()).max().unwrap_or_default().max(1) as f64;
    let each = ((WIDTH - LEFT - RIGHT) / bins / (series.len().max(1) as f64)).max(1.0);
    for (place, one) in series.iter().enumerate() {
        for (at, value) in one.points.iter().filter(|(_, value)| *value > 0.0) {
            let (left, top) = (x(across, *at) + place as f64 * each, y(up, *value));
            put(
                &mut svg,
                format_args!(
                    "<rect class=\"fill {}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                    one.class,
                    (each - 0.3).max(0.7),
                    y(up, up.from) - top
                ),
            );
        }
    }
    if let Some((at, name)) = mark {
        let at = x(across, at);
        put(
            &mut svg,
            format_args!(
                "<line class=\"mark\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                HEIGHT - BOTTOM,
                at + 4.0,
                TOP + 12.0,
                escaped(name)
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A dot in each row, and the span in which they are to be expected.
pub(super) fn dots(title: &str, across: &Axis<'_>, span: (f64, f64), rows: &[(String, String, f64)]) -> String {
    const ROW: f64 = 26.0;
    let bottom = 12.0 + ROW * (rows.len() as f64 + 1.0);
    let mut svg = open(title, bottom + BOTTOM);
    for (tick, name) in across.ticks.iter().filter(|(tick, _)| (across.from..=across.to).contains(tick)) {
        let at = x(across, *tick);
        put(
            &mut svg,
            format_args!(
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"4\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 16.0,
                escaped(name)
            ),
        );
    }
    let (from, to) = (x(across, span.0), x(across, span.1));
    put(
        &mut svg,
        format_args!(
            "<rect class=\"span\" x=\"{from:.1}\" y=\"4\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <text class=\"note middle\" x=\"{:.1}\" y=\"18\">95 % of all seeds</text>\
             <text class=\"label middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            to - from,
            bottom - 4.0,
            f64::midpoint(from, to),
            f64::midpoint(LEFT, WIDTH - RIGHT),
            bottom + 34.0,
            escaped(across.label)
        ),
    );
    for (row, (name, class, at)) in rows.iter().enumerate() {
        let (at, y) = (x(across, *at), 12.0 + ROW * (row as f64 + 1.0));
        put(
            &mut svg,
            format_args!(
                "<circle class=\"fill {class}\" cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"6\"/>\
                 <text class=\"label end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                at - 12.0,
                y + 4.0,
                escaped(name)
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// One bar for each row, of parts behind one another. Values are lengths.
pub(super) fn stacked(title: &str, unit: &str, rows: &[(String, Vec<(String, f64)>)]) -> String {
    const ROW: f64 = 34.0;
    const NAMES: f64 = 110.0;
    let longest = rows.iter().map(|(_, parts)| parts.iter().map(|(_, value)| value).sum::<f64>()).fold(0.0, f64::max);
    let length = |value: f64| if longest > 0.0 { value / longest * (WIDTH - NAMES - 90.0) } else { 0.0 };
    let height = ROW * rows.len() as f64 + LEGEND + 8.0;
    let mut svg = open(title, height);
    let names: Vec<&str> =
        rows.first().map(|(_, parts)| parts.iter().map(|(name, _)| name.as_str()).collect()).unwrap_or_default();
    legend(&mut svg, names.iter().enumerate().map(|(at, name)| (*name, format!("p{at}"))));
    for (row, (name, parts)) in rows.iter().enumerate() {
        let top = LEGEND + row as f64 * ROW;
        put(&mut svg, format_args!("<text class=\"label\" x=\"0\" y=\"{:.1}\">{}</text>", top + 21.0, escaped(name)));
        let mut left = NAMES;
        for (at, (part, value)) in parts.iter().enumerate() {
            let width = length(*value);
            put(
                &mut svg,
                format_args!(
                    "<rect class=\"fill p{at}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"24\">\
                     <title>{} {value:.3} {unit}</title></rect>",
                    top + 4.0,
                    escaped(part)
                ),
            );
            left += width;
        }
        let total: f64 = parts.iter().map(|(_, value)| value).sum();
        put(
            &mut svg,
            format_args!(
                "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\">{total:.3} {unit}</text>",
                left + 6.0,
                top + 21.0
            ),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Axes, ticks, labels and a legend.
fn frame<'a>(title: &str, across: &Axis<'_>, up: &Axis<'_>, names: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut svg = open(title, HEIGHT + LEGEND);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (tick, name) in up.ticks.iter().filter(|(tick, _)| (up.from..=up.to).contains(tick)) {
        let at = y(up, *tick);
        put(
            &mut svg,
            format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(name)
            ),
        );
    }
    for (tick, name) in across.ticks.iter().filter(|(tick, _)| (across.from..=across.to).contains(tick)) {
        let at = x(across, *tick);
        put(
            &mut svg,
            format_args!(
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text class=\"tick middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 16.0,
                escaped(name)
            ),
        );
    }
    put(
        &mut svg,
        format_args!(
            "<text class=\"label middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" x=\"4\" y=\"{:.1}\">{}</text>",
            f64::midpoint(LEFT, right),
            bottom + 34.0,
            escaped(across.label),
            TOP - 16.0,
            escaped(up.label)
        ),
    );
    let mut at = LEFT;
    // What has no name is explained beside the picture.
    for (name, class) in names.filter(|(name, _)| !name.is_empty()) {
        key(&mut svg, at, HEIGHT + 12.0, name, class);
        at += 34.0 + 8.0 * name.chars().count() as f64;
    }
    svg
}

fn legend<'a>(svg: &mut String, names: impl Iterator<Item = (&'a str, String)>) {
    let mut at = 110.0;
    for (name, class) in names {
        key(svg, at, 14.0, name, &class);
        at += 34.0 + 8.0 * name.chars().count() as f64;
    }
}

fn key(svg: &mut String, left: f64, bottom: f64, name: &str, class: &str) {
    put(
        svg,
        format_args!(
            "<rect class=\"fill {class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
             <text class=\"label\" x=\"{:.1}\" y=\"{bottom:.1}\">{}</text>",
            bottom - 10.0,
            left + 18.0,
            escaped(name)
        ),
    );
}

pub(super) fn open(title: &str, height: f64) -> String {
    let title = escaped(title);
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>")
}

pub(super) fn put(svg: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = svg.write_fmt(what);
}
