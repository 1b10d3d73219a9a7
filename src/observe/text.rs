//! Writes families in the two text formats of Prometheus.
//!
//! | | classic, 0.0.4 | OpenMetrics, 1.0.0 |
//! |---|---|---|
//! | name in the head of a counter | with `_total`, like its samples | without |
//! | units | not written | `# UNIT` |
//! | end | none | `# EOF` |

use std::fmt::{self, Write};

use super::body::{GrowingText, TextParts};
use super::family::{Family, FamilyKind, Sample, Value};
use crate::base::pace::StepPace;
use crate::stat::Histogram;

/// The number of samples whose writing counts as much work as the reading of one resource.
const WRITTEN_AT_ONCE: usize = 16;

/// A text format of Prometheus.
///
/// ```
/// use tower_sentinel::observe::TextFormat;
///
/// assert!(TextFormat::OpenMetrics.content_type().starts_with("application/openmetrics-text;"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextFormat {
    /// Prometheus's classic text, version 0.0.4.
    Classic,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    /// Returns its content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes `families`, and drops each part once it is written.
    pub(super) async fn text(self, families: Vec<Family>, pace: &mut StepPace) -> TextParts {
        let mut text = GrowingText::default();
        for mut family in families {
            let parts = family.take_parts();
            if parts.iter().all(Vec::is_empty) {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = self.write_head(text.end(), &family);
            for part in parts {
                for (number, sample) in part.into_iter().enumerate() {
                    let _ = write_sample(text.end(), &family, &sample);
                    if number % WRITTEN_AT_ONCE == 0 {
                        pace.spend(1).await;
                    }
                }
            }
        }
        if self == Self::OpenMetrics {
            text.end().push_str("# EOF\n");
        }
        text.into_parts()
    }

    /// Writes the lines before the samples of a family.
    fn write_head(self, text: &mut String, family: &Family) -> fmt::Result {
        let (name, kind, help) = (family.name(), family.kind(), family.help());
        let suffix = match (self, kind) {
            (Self::Classic, FamilyKind::Counter) => "_total",
            _ => "",
        };
        writeln!(text, "# HELP {name}{suffix} {help}")?;
        writeln!(text, "# TYPE {name}{suffix} {kind}")?;
        match (self, family.unit()) {
            (Self::OpenMetrics, Some(unit)) => writeln!(text, "# UNIT {name} {unit}"),
            _ => Ok(()),
        }
    }
}

/// Writes the lines of one sample: one line, or several for durations.
fn write_sample(text: &mut String, family: &Family, sample: &Sample) -> fmt::Result {
    let name = family.name();
    match sample.value() {
        Value::Count(count) if family.kind() == FamilyKind::Counter => {
            write_name(text, name, "_total", sample, None)?;
            writeln!(text, " {count}")
        }
        Value::Count(count) => {
            write_name(text, name, "", sample, None)?;
            writeln!(text, " {count}")
        }
        Value::Figure(figure) => {
            write_name(text, name, "", sample, None)?;
            text.push(' ');
            write_figure(text, *figure)?;
            text.push('\n');
            Ok(())
        }
        Value::Times {
            sum,
            count,
            histogram,
        } => {
            // The count must agree with the ranges, and `count` can be from a later reading. So the
            // ranges are summed.
            let count = histogram.as_ref().map_or(*count, Histogram::count);
            let buckets = histogram.iter().flat_map(Histogram::buckets);
            for (edge, count) in buckets {
                let edge = edge.map_or(f64::INFINITY, |edge| edge.as_secs_f64());
                write_name(text, name, "_bucket", sample, Some(edge))?;
                writeln!(text, " {count}")?;
            }
            // Durations without ranges have only the range without an upper bound.
            if histogram.is_none() && family.kind() == FamilyKind::Histogram {
                write_name(text, name, "_bucket", sample, Some(f64::INFINITY))?;
                writeln!(text, " {count}")?;
            }
            write_name(text, name, "_sum", sample, None)?;
            text.push(' ');
            write_figure(text, *sum)?;
            text.push('\n');
            write_name(text, name, "_count", sample, None)?;
            writeln!(text, " {count}")
        }
    }
}

/// Writes the name of a sample and its labels. `edge` is the upper bound of a bucket, in seconds.
fn write_name(
    text: &mut String,
    name: &str,
    suffix: &str,
    sample: &Sample,
    edge: Option<f64>,
) -> fmt::Result {
    text.push_str(name);
    text.push_str(suffix);
    let mut before = '{';
    for (label, value) in sample.labels() {
        text.push(before);
        before = ',';
        text.push_str(label);
        text.push_str("=\"");
        write_escaped(text, value);
        text.push('"');
    }
    if let Some(edge) = edge {
        text.push(before);
        before = ',';
        text.push_str("le=\"");
        write_figure(text, edge)?;
        text.push('"');
    }
    if before == ',' {
        text.push('}');
    }
    Ok(())
}

/// Writes a figure as a floating-point number, without an exponent.
fn write_figure(text: &mut String, figure: f64) -> fmt::Result {
    if figure.is_nan() {
        text.push_str("NaN");
        return Ok(());
    }
    if figure.is_infinite() {
        text.push_str(if figure > 0.0 { "+Inf" } else { "-Inf" });
        return Ok(());
    }
    let start = text.len();
    write!(text, "{figure}")?;
    if !text[start..].contains('.') {
        text.push_str(".0");
    }
    Ok(())
}

/// Writes the text of a label. Both formats escape these three characters, and nothing else.
fn write_escaped(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_floating_point_numbers() {
        let cases = [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (0.000_001, "0.000001"),
            (1e21, "1000000000000000000000.0"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (figure, written) in cases {
            let mut text = String::new();
            write_figure(&mut text, figure).unwrap();
            assert_eq!(text, written);
        }
    }

    #[test]
    fn labels_escape_what_would_end_them() {
        let mut text = String::new();
        write_escaped(&mut text, "a\\b\"c\nd{e}#\u{202e}\0é");
        assert_eq!(text, "a\\\\b\\\"c\\nd{e}#\u{202e}\0é");
    }
}
