//! Small SVG drawings, made of attributes alone: the page's policy allows no styles in them.

use maud::{Markup, html};

/// Width and height of a sparkline's coordinates.
const WIDTH: f64 = 100.0;
const HEIGHT: f64 = 30.0;
/// Room for the stroke.
const MARGIN: f64 = 2.0;

/// A line over an area, from the oldest value to the newest; `top` is the value at the upper edge. Empty for fewer than
/// two values.
pub(super) fn sparkline(values: &[f64], top: f64, label: &str) -> Markup {
    let line = points(values, top);
    html! {
        div.draw {
            @if values.len() > 1 {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                    polygon.area points=(format!("0,{HEIGHT} {line} {WIDTH},{HEIGHT}")) {}
                    polyline.stroke points=(line) {}
                }
            }
        }
    }
}

fn points(values: &[f64], top: f64) -> String {
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f64;
    let height = |value: f64| if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    let point = |(at, value): (usize, &f64)| {
        format!("{:.1},{:.1}", at as f64 * step, HEIGHT - MARGIN - height(*value) * (HEIGHT - 2.0 * MARGIN))
    };
    values.iter().enumerate().map(point).collect::<Vec<_>>().join(" ")
}

/// The largest value, with space above it.
pub(super) fn top(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max) * 1.1
}

/// A part of a whole, as a bar on top of a full one.
pub(super) fn part_of_whole(part: u64, whole: u64, label: &str) -> Markup {
    let width = if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * WIDTH).clamp(0.6, WIDTH) };
    html! {
        div.draw {
            @if whole > 0 {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                    rect.most x="0" y="12" width=(WIDTH) height="18" {}
                    rect.own x="0" y="12" width=(format!("{width:.1}")) height="18" {}
                }
            }
        }
    }
}

/// A share from 0 to 1 as a bar. With `warns`, a bar that is nearly full is marked.
pub(super) fn bar(share: f64, warns: bool) -> Markup {
    let class = match share {
        0.9.. if warns => "fill bad",
        0.7.. if warns => "fill warn",
        _ => "fill",
    };
    html! {
        svg.bar viewBox="0 0 100 7" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="100" height="7" {}
            rect class=(class) width=(format!("{:.1}", share.clamp(0.0, 1.0) * 100.0)) height="7" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_points_between_the_edges() {
        assert_eq!(points(&[0.0, 5.0, 10.0, 99.0], 10.0), "0.0,28.0 33.3,15.0 66.7,2.0 100.0,2.0");
        assert_eq!(points(&[1.0, 2.0], 0.0), "0.0,28.0 100.0,28.0");
        assert!(!sparkline(&[1.0], 1.0, "x").into_string().contains("svg"));
    }
}
