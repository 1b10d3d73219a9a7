//! Chooses the text format that a scraper accepts.

use http::HeaderMap;
use http::header::ACCEPT;

use super::text::TextFormat;

/// Returns the format for a request with these headers: OpenMetrics if they accept it, with any
/// weight above 0.
pub(super) fn negotiate(headers: &HeaderMap) -> TextFormat {
    let accepted = headers.get_all(ACCEPT).iter();
    let mut ranges = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    if ranges.any(accepts_open_metrics) {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Classic
    }
}

/// Returns whether a media range, with its parameters, accepts OpenMetrics in a supported version.
fn accepts_open_metrics(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let is_type = |it: &str| it.eq_ignore_ascii_case("application/openmetrics-text");
    if !parts.next().is_some_and(is_type) {
        return false;
    }
    parts.all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("q") {
            return value.parse::<f64>().is_ok_and(|q| q > 0.0);
        }
        !name.eq_ignore_ascii_case("version") || value.starts_with("1.")
    })
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn open_metrics_is_sent_only_if_it_is_accepted() {
        use TextFormat::{Classic, OpenMetrics};
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let cases = [
            ("", Classic),
            ("*/*", Classic),
            ("text/plain;version=0.0.4", Classic),
            (prometheus, OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            (
                "Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.5",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6",
                OpenMetrics,
            ),
            ("application/openmetrics-text;q=0", Classic),
            ("application/openmetrics-text;q=0.000", Classic),
            ("application/openmetrics-text;q=much", Classic),
            ("application/openmetrics-text;version=0.0.1", Classic),
            ("application/openmetrics-textual, text/html", Classic),
            ("text/html, application/openmetrics-text ;q=1", OpenMetrics),
        ];
        for (accept, format) in cases {
            let mut headers = HeaderMap::new();
            headers.append(ACCEPT, HeaderValue::from_static("text/html"));
            headers.append(ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(negotiate(&headers), format, "{accept}");
        }
        assert_eq!(negotiate(&HeaderMap::new()), Classic);
    }
}
