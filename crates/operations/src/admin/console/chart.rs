//! Small line charts, drawn as SVG by the server: no script, no style attribute, and the numbers stand beside them.

/// Width and height of a chart in its own units.
pub(super) const WIDTH: usize = 360;
pub(super) const HEIGHT: usize = 36;

/// Returns the path of a line through these values, which are evenly spaced; the newest is last. `None` is a gap.
pub(super) fn line(values: &[Option<f64>], most: f64) -> String {
    let step = WIDTH as f64 / values.len().saturating_sub(1).max(1) as f64;
    let scale = if most > 0.0 { (HEIGHT - 2) as f64 / most } else { 0.0 };
    let (mut path, mut is_drawing) = (String::new(), false);
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            is_drawing = false;
            continue;
        };
        let command = if is_drawing { 'L' } else { 'M' };
        let (x, y) = (index as f64 * step, (HEIGHT - 1) as f64 - value.max(0.0) * scale);
        path.push_str(&format!("{command}{x:.1} {y:.1}"));
        is_drawing = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_spans_the_chart_and_breaks_at_gaps() {
        assert_eq!(line(&[Some(0.0), Some(10.0)], 10.0), "M0.0 35.0L360.0 1.0");
        assert_eq!(line(&[Some(5.0), None, Some(5.0)], 10.0), "M0.0 18.0M360.0 18.0");
        assert_eq!(line(&[Some(3.0)], 0.0), "M0.0 35.0");
        assert_eq!(line(&[Some(f64::NAN), Some(-1.0)], 1.0), "M360.0 35.0");
        assert_eq!(line(&[], 1.0), "");
    }
}
