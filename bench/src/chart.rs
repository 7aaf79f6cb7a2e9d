//! SVG charts for the report: bars with their spread, lines over a growing size, one bar in parts.

use std::fmt::Write as _;

/// Owner of a bar; sets its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A limit that cannot be passed, or the handler without protection.
    Floor,
    /// Semel.
    Ours,
    /// Another product.
    Peer,
}

impl Kind {
    const fn colour(self) -> &'static str {
        match self {
            Kind::Floor => "#9aa5b1",
            Kind::Ours => "#1f6f54",
            Kind::Peer => "#c98a2b",
        }
    }
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label of the bar.
    pub label: String,
    /// Length of the bar.
    pub value: f64,
    /// Least and greatest value seen.
    pub spread: (f64, f64),
    /// Owner of the bar; sets its colour.
    pub kind: Kind,
    /// Text beside the bar.
    pub note: String,
}

/// Chart of bars below each other.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Unit of the bars' lengths.
    pub unit: String,
    /// Bars, from top to bottom.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 950.0;
const LEFT: f64 = 280.0;
const ROW: f64 = 26.0;
const TOP: f64 = 52.0;

impl Bars {
    /// Returns the chart as SVG.
    pub fn svg(&self) -> String {
        let height = TOP + ROW * self.bars.len() as f64 + 14.0;
        let most = self.bars.iter().map(|bar| bar.value.max(bar.spread.1)).fold(f64::MIN_POSITIVE, f64::max);
        let room = WIDTH - LEFT - 230.0;
        let mut drawing = begin(height, &self.title, &self.unit);
        for (row, bar) in self.bars.iter().enumerate() {
            let y = TOP + ROW * row as f64;
            let scaled = |value: f64| room * (value / most).clamp(0.0, 1.0);
            let (length, low, high) = (scaled(bar.value), scaled(bar.spread.0), scaled(bar.spread.1));
            text(&mut drawing, LEFT - 8.0, y + 14.0, "end", &bar.label);
            let colour = bar.kind.colour();
            let _ = writeln!(
                drawing,
                r#"<rect x="{LEFT}" y="{y:.1}" width="{length:.1}" height="18" rx="2" fill="{colour}"/>"#
            );
            let middle = y + 9.0;
            let _ = writeln!(
                drawing,
                r##"<path d="M{:.1} {middle:.1}H{:.1}M{:.1} {:.1}v8M{:.1} {:.1}v8" stroke="#222" fill="none"/>"##,
                LEFT + low,
                LEFT + high,
                LEFT + low,
                middle - 4.0,
                LEFT + high,
                middle - 4.0
            );
            let said = format!("{} {}", figure(bar.value), bar.note);
            text(&mut drawing, LEFT + length.max(high) + 8.0, y + 14.0, "start", said.trim_end());
        }
        drawing + "</svg>\n"
    }
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// Label of the line.
    pub label: String,
    /// Points of the line.
    pub points: Vec<(f64, f64)>,
}

/// Chart of lines over a size that grows by factors.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Title of the chart.
    pub title: String,
    /// Units of both axes.
    pub unit: String,
    /// Lines of the chart.
    pub lines: Vec<Line>,
}

/// Line colours, distinguishable also with colour blindness.
const LINE_COLOURS: [&str; 6] = ["#1f6f54", "#c98a2b", "#3b5b92", "#a23b4a", "#6b6b6b", "#7a4fa3"];

impl Lines {
    /// Returns the chart as SVG.
    pub fn svg(&self) -> String {
        let (height, bottom, left, right) = (340.0, 296.0, 70.0, WIDTH - 230.0);
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let least = points().map(|point| point.0).fold(f64::MAX, f64::min).max(1.0).log10();
        let most = points().map(|point| point.0).fold(10.0, f64::max).log10();
        let top = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max) * 1.1;
        let x = |size: f64| left + (right - left) * (size.max(1.0).log10() - least) / (most - least).max(0.1);
        let y = |value: f64| bottom - (bottom - TOP) * (value / top).clamp(0.0, 1.0);
        let mut drawing = begin(height, &self.title, &self.unit);
        for step in 0..=4 {
            let value = top * f64::from(step) / 4.0;
            let _ = writeln!(drawing, r##"<path d="M{left} {:.1}H{right}" stroke="#ddd"/>"##, y(value));
            text(&mut drawing, left - 6.0, y(value) + 4.0, "end", &figure(value));
        }
        for power in least.floor() as i32..=most.ceil() as i32 {
            let size = 10_f64.powi(power);
            if (least - 0.01..=most + 0.01).contains(&f64::from(power)) {
                text(&mut drawing, x(size), bottom + 20.0, "middle", &figure(size));
            }
        }
        let mut labels: Vec<(f64, usize)> = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let colour = LINE_COLOURS[number % LINE_COLOURS.len()];
            let path: Vec<_> =
                line.points.iter().map(|point| format!("{:.1} {:.1}", x(point.0), y(point.1))).collect();
            let _ = writeln!(
                drawing,
                r#"<path d="M{}" stroke="{colour}" stroke-width="2" fill="none"/>"#,
                path.join("L")
            );
            for point in &line.points {
                let _ = writeln!(
                    drawing,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}"/>"#,
                    x(point.0),
                    y(point.1)
                );
            }
            labels.push((line.points.last().map_or(bottom, |point| y(point.1)), number));
        }
        // Labels stand at the ends of their lines, moved apart where lines meet.
        labels.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut free = TOP;
        for (wanted, number) in labels {
            let at = wanted.max(free);
            free = at + 16.0;
            let colour = LINE_COLOURS[number % LINE_COLOURS.len()];
            let _ = writeln!(
                drawing,
                r#"<rect x="{:.1}" y="{:.1}" width="9" height="9" fill="{colour}"/>"#,
                right + 12.0,
                at - 5.0
            );
            text(&mut drawing, right + 26.0, at + 4.0, "start", &self.lines[number].label);
        }
        drawing + "</svg>\n"
    }
}

/// Chart of bars divided into parts that add up to them.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Title of the chart.
    pub title: String,
    /// Unit of the parts.
    pub unit: String,
    /// Bars by name, each with its parts in order.
    pub wholes: Vec<(String, Vec<(String, f64)>)>,
}

impl Parts {
    /// Returns the chart as SVG.
    pub fn svg(&self) -> String {
        let rows: f64 = self.wholes.iter().map(|whole| 2.6 + whole.1.len() as f64 * 0.72).sum();
        let height = TOP + ROW * rows + 10.0;
        let sum = |parts: &[(String, f64)]| parts.iter().map(|part| part.1).sum::<f64>();
        let most = self.wholes.iter().map(|whole| sum(&whole.1)).fold(f64::MIN_POSITIVE, f64::max);
        let room = WIDTH - 40.0;
        let mut drawing = begin(height, &self.title, &self.unit);
        let mut y = TOP;
        for (name, parts) in &self.wholes {
            let whole = sum(parts);
            text(&mut drawing, 20.0, y + 12.0, "start", &format!("{name}: {}", figure(whole)));
            y += 20.0;
            let mut x = 20.0;
            for (number, (_, value)) in parts.iter().enumerate() {
                let (width, colour) = (room * value / most, LINE_COLOURS[number % LINE_COLOURS.len()]);
                let _ = writeln!(
                    drawing,
                    r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="22" fill="{colour}" stroke="#fff"/>"##
                );
                x += width;
            }
            y += 30.0;
            for (number, (label, value)) in parts.iter().enumerate() {
                let colour = LINE_COLOURS[number % LINE_COLOURS.len()];
                let _ =
                    writeln!(drawing, r#"<rect x="20" y="{y:.1}" width="10" height="10" fill="{colour}"/>"#);
                let part = 100.0 * value / whole.max(f64::MIN_POSITIVE);
                text(
                    &mut drawing,
                    38.0,
                    y + 9.5,
                    "start",
                    &format!("{label}: {} ({part:.0} %)", figure(*value)),
                );
                y += ROW * 0.72;
            }
            y += 14.0;
        }
        drawing + "</svg>\n"
    }
}

fn begin(height: f64, title: &str, unit: &str) -> String {
    let mut drawing = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0}" viewBox="0 0 {WIDTH} {height:.0}" font-family="system-ui, sans-serif" font-size="13" fill="#222">
<rect width="100%" height="100%" fill="#fff"/>
<text x="20" y="22" font-size="16" font-weight="600">{}</text>
"##,
        escape(title)
    );
    let _ = writeln!(drawing, r##"<text x="20" y="40" fill="#666">{}</text>"##, escape(unit));
    drawing
}

fn text(drawing: &mut String, x: f64, y: f64, anchor: &str, said: &str) {
    let _ =
        writeln!(drawing, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escape(said));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a number with its significant digits: `12,300`, `4.56`.
pub fn figure(value: f64) -> String {
    if value >= 100.0 {
        let digits = format!("{value:.0}");
        let mut grouped = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Formats a whole number with separators: `12,300`, `4`.
pub fn count(number: u64) -> String {
    if number < 100 { number.to_string() } else { figure(number as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_significant_digits() {
        let table =
            [(0.0, "0.00"), (4.556, "4.56"), (45.56, "45.6"), (999.6, "1,000"), (1_234_567.0, "1,234,567")];
        for (value, said) in table {
            assert_eq!(figure(value), said);
        }
        assert_eq!([0, 99, 100, 12_300].map(count), ["0", "99", "100", "12,300"]);
    }

    #[test]
    fn a_bar_is_as_long_as_its_value_and_text_cannot_become_markup() {
        let bar = |label: &str, value| Bar {
            label: label.into(),
            value,
            spread: (value, value),
            kind: Kind::Ours,
            note: String::new(),
        };
        let chart =
            Bars { title: "a <b>".into(), unit: "x".into(), bars: vec![bar("one", 50.0), bar("two", 100.0)] };
        let svg = chart.svg();
        assert!(svg.contains(r#"width="220.0""#) && svg.contains(r#"width="440.0""#), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("<b>"));
    }
}
