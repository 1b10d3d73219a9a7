//! How deep a text in TOML is nested, before it is read.
//!
//! Code that reads a tree, drops it or writes it walks down into it, and so takes room on the stack
//! for each level. The reader of TOML bounds the parts of a key and the lists and inline tables
//! within each other, but each for itself: inline tables with dotted keys have thousands of levels
//! within its bounds, too many for the stack of a thread. So they are counted here, without a tree.

/// Most levels of lists and inline tables, with those of the dotted keys around them; more
/// than a document may have, as points of numbers count as well.
const MOST: usize = 160;

/// Where `text` is nested too deep to be read, as an offset; `None` if it is not.
///
/// A text that is no TOML may be misread, but not for less deep than the reader takes it for, which
/// continues behind a syntax error.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // The closing bracket of each list or inline table that is open, and the points before it, in
    // its key.
    let mut around = Vec::new();
    let (mut levels, mut points, mut at) = (0, 0, 0);
    // Whether a value may have ended here: a word, a string, a list or a table.
    let mut may_end = false;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                may_end = true;
                at = after_string(bytes, at);
                continue;
            }
            b'#' => {
                at += length_until(b"\r\n", &bytes[at..]);
                continue;
            }
            b'[' | b'{' => {
                let close = if byte == b'[' { b']' } else { b'}' };
                around.push((close, points));
                levels += points + 1;
                points = 0;
                may_end = false;
            }
            b']' | b'}' => {
                // The reader may skip one that closes nothing.
                if around.last().is_some_and(|&(close, _)| close == byte) {
                    points = around.pop().map_or(0, |(_, before)| before);
                    levels -= points + 1;
                }
                may_end = true;
            }
            b'.' => {
                points += 1;
                may_end = false;
            }
            b'=' => may_end = false,
            // No key continues behind a value. Where one is missing, the next may be taken.
            b',' | b'\n' if may_end => {
                points = 0;
                may_end = false;
            }
            b',' | b'\n' | b' ' | b'\t' | b'\r' => {}
            // A quote within a bare word begins no string.
            _ => {
                may_end = true;
                at += length_until(b".=,[]{} \t#\r\n", &bytes[at..]);
                continue;
            }
        }
        if levels + points > MOST {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// How many of `bytes` come before the first of `ends`.
fn length_until(ends: &[u8], bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| ends.contains(byte));
    end.unwrap_or(bytes.len())
}

/// The offset behind the string that begins at `at`, or behind its line if it does not end
/// there and must.
fn after_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let has_three = |at: usize| bytes[at..].starts_with(&[quote; 3]);
    let is_long = has_three(at);
    let mut at = at + if is_long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' if !is_long => return at,
            b'\\' if quote == b'"' && (is_long || bytes.get(at + 1) != Some(&b'\n')) => at += 1,
            _ if byte == quote && !is_long => return at + 1,
            _ if byte == quote && has_three(at) => {
                // Two more may belong to the text.
                let quotes = bytes[at..].iter().take_while(|byte| **byte == quote);
                return at + quotes.take(5).count();
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_levels_count() {
        let deep = "{a.b=".repeat(100);
        assert_eq!(too_deep(&deep), Some(80 * 5));
        for quiet in [
            format!("x = \"{deep}\""),
            format!("x = \"\\\"{deep}\""),
            format!("x = '{deep}'"),
            format!("x = '\\' # {deep}\n"),
            format!("x = \"\"\"\n{deep}\n\"\"\""),
            format!("x = '''\n{deep}\n'''"),
            format!("# {deep}\n"),
            "x = [0.5, 1.5]\n".repeat(1_000),
            "[a.b.c]\nd.e = { f.g = 0.5 }\n".repeat(1_000),
            format!("x = [\r\n{}]", "0.5, # a\r\n 1.5,\r\n\r\n".repeat(1_000)),
            format!("x = [{}]", "{a.b = 0.5},\n".repeat(1_000)),
            // A list that is not closed is the reader's to tell.
            format!("x = [\n{}", "y = 0.5\n".repeat(1_000)),
        ] {
            assert_eq!(too_deep(&quiet), None, "{quiet:.40}");
        }
        for before in [
            "x = \"a\"",
            "x = 'a\\'",
            "x = 'a\n",
            "x = \"a\\\n",
            "x = \"\"\"a\"\"\"\"\"",
            "x = ''''a''''",
            "# a\n",
            // The reader continues behind a syntax error.
            "x = a\"\"\"\n",
            "x = \\'''\n",
            "# a\r",
        ] {
            assert!(too_deep(&format!("{before}{deep}")).is_some(), "{before}");
        }
        for level in ["{a.b=,", "{a.b=\n", "{a={\r}a.b=\n", "[1}"] {
            assert!(too_deep(&level.repeat(200)).is_some(), "{level:?}");
        }
    }
}
