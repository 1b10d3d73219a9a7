//! Checks how deep a TOML text is nested, before it is parsed.
//!
//! Code that builds, drops or writes a tree is recursive, and takes room on the stack for each
//! level. The TOML parser bounds the number of parts of a key and the depth of lists and inline
//! tables, but separately: inline tables with dotted keys can have thousands of levels within its
//! bounds, too many for the stack of a thread. So the levels are counted here, without a tree.

/// The maximum number of levels of lists and inline tables, including the levels of dotted keys
/// around them. It is above the bound for documents, because the dots in numbers count as well.
const MOST: usize = 160;

/// Returns the offset at which `text` is nested too deep to be parsed; `None` if its depth is
/// within the bound.
///
/// A text with syntax errors can be counted wrongly, but never as less deep than the parser reads
/// it: the parser continues after an error.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // The closing bracket of each open list or inline table, and the number of dots in the key
    // before it.
    let mut around = Vec::new();
    let (mut levels, mut points, mut at) = (0, 0, 0);
    // Whether a value can have ended here: a word, a string, a list or a table.
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
                // The parser can skip a bracket that closes nothing.
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
            // A key does not continue after a value. If the value is missing, the parser can take
            // what follows as the value, so the dots still count.
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

/// Returns how many of `bytes` come before the first byte of `ends`.
fn length_until(ends: &[u8], bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| ends.contains(byte));
    end.unwrap_or(bytes.len())
}

/// Returns the offset after the string that begins at `at`. A single-line string without a closing
/// quote ends with its line.
fn after_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let has_three = |at: usize| bytes[at..].starts_with(&[quote; 3]);
    let is_long = has_three(at);
    let mut at = at + if is_long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\n' if !is_long => return at,
            // Within double quotes, a backslash escapes the next byte, but not the end of a line.
            b'\\' if quote == b'"' && (is_long || bytes.get(at + 1) != Some(&b'\n')) => at += 1,
            _ if byte == quote && !is_long => return at + 1,
            _ if byte == quote && has_three(at) => {
                // Up to two more quotes can belong to the text before the closing three.
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
    fn only_nested_lists_and_tables_count_as_levels() {
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
            // The parser reports a list that is not closed.
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
            // The parser continues after a syntax error.
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
