//! The files of the page, compiled into the program.

use std::fmt::Write;
use std::sync::LazyLock;

use bytes::Bytes;

/// A file with the headers that a browser needs.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) content_type: &'static str,
    pub(super) content: &'static [u8],
    etag: LazyLock<String>,
}

/// The page itself.
pub(super) static INDEX: Asset = Asset {
    content_type: "text/html; charset=utf-8",
    content: include_bytes!("index.html"),
    etag: LazyLock::new(|| etag(INDEX.content)),
};

static EDIT_JS: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    content: include_bytes!("edit.js"),
    etag: LazyLock::new(|| etag(EDIT_JS.content)),
};

static PAGE_CSS: Asset = Asset {
    content_type: "text/css; charset=utf-8",
    content: include_bytes!("page.css"),
    etag: LazyLock::new(|| etag(PAGE_CSS.content)),
};

static PAGE_JS: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    content: include_bytes!("page.js"),
    etag: LazyLock::new(|| etag(PAGE_JS.content)),
};

static UPLOT_CSS: Asset = Asset {
    content_type: "text/css; charset=utf-8",
    content: include_bytes!("uplot.css"),
    etag: LazyLock::new(|| etag(UPLOT_CSS.content)),
};

static UPLOT_JS: Asset = Asset {
    content_type: "text/javascript; charset=utf-8",
    content: include_bytes!("uplot.js"),
    etag: LazyLock::new(|| etag(UPLOT_JS.content)),
};

/// Returns the file called `name`.
pub(super) fn named(name: &str) -> Option<&'static Asset> {
    match name {
        "" => Some(&INDEX),
        "edit.js" => Some(&EDIT_JS),
        "page.css" => Some(&PAGE_CSS),
        "page.js" => Some(&PAGE_JS),
        "uplot.css" => Some(&UPLOT_CSS),
        "uplot.js" => Some(&UPLOT_JS),
        _ => None,
    }
}

impl Asset {
    pub(super) fn etag(&self) -> &str {
        &self.etag
    }

    pub(super) const fn body(&self) -> Bytes {
        Bytes::from_static(self.content)
    }
}

/// The `ETag` of `content`: its FNV-1a hash. It need not resist attacks, as the content is fixed.
pub(super) fn etag(content: &[u8]) -> String {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = content.iter().fold(0xcbf2_9ce4_8422_2325, fold);
    let mut tag = String::with_capacity(18);
    // Writing to a string cannot fail.
    let _ = write!(tag, "\"{hash:016x}\"");
    tag
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = [
        "",
        "edit.js",
        "page.css",
        "page.js",
        "uplot.css",
        "uplot.js",
    ];

    #[test]
    fn all_files_together_are_small() {
        let sizes = NAMES.map(|name| named(name).unwrap().content.len());
        let sum: usize = sizes.iter().sum();
        assert!(sum <= 96 * 1_024, "{sum} bytes: {sizes:?}");
        for script in [PAGE_JS.content, EDIT_JS.content] {
            let lines = std::str::from_utf8(script).unwrap().lines().count();
            assert!(lines <= 600, "{lines} lines");
        }
    }

    #[test]
    fn no_script_makes_elements_of_text() {
        let scripts = [PAGE_JS.content, EDIT_JS.content].concat();
        let script = String::from_utf8(scripts).unwrap();
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ] {
            assert!(!script.contains(way), "{way}");
        }
        // The content security policy forbids these, so the browser would ignore them.
        let page = std::str::from_utf8(INDEX.content).unwrap();
        for part in [
            "<style", " style=", " onclick", " onload", "http:", "https:",
        ] {
            assert!(!page.contains(part), "{part}");
        }
        let inline = page.matches("<script").count()
            - page.matches("<script src=\"?").count()
            - page.matches("<script type=\"module\" src=\"?").count();
        assert_eq!(inline, 0);
    }

    #[test]
    fn each_file_has_a_tag_of_its_own() {
        let mut tags: Vec<_> = NAMES.map(|name| named(name).unwrap().etag()).into();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), NAMES.len());
        assert_eq!(etag(b"a"), "\"af63dc4c8601ec8c\"");
        assert!(named("page.html").is_none());
    }
}
