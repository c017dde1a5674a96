//! Tag patterns: levels between dots, one wildcard for a level, one for the rest, `;` lists.
//!
//! zbus changed its wildcards twice, so they are values here. Levels follow Java's `split`, as
//! every dialect's author saw them: empty levels at the end do not count, inner ones do.

/// Which characters mean what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Stands for exactly one level.
    pub one: u8,
    /// Stands for all further levels; what follows it is ignored.
    pub rest: u8,
    /// Whether `a.#` matches `a`.
    pub rest_may_be_empty: bool,
    /// Whether `;` separates alternatives.
    pub has_lists: bool,
    /// Whether there are no wildcards at all, and how an alternative is compared then.
    pub literal: Option<Literal>,
}

/// Comparing without wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// The whole tag.
    Whole,
    /// The beginning of the tag.
    Prefix,
}

/// Whole tags, as `=` and `in` of a query mean them.
pub const EXACT: Dialect = Dialect { literal: Some(Literal::Whole), ..MODERN };
/// Beginnings of tags, as `startswith` means them.
pub const PREFIX: Dialect = Dialect { literal: Some(Literal::Prefix), ..MODERN };

/// Ours, and that of zbus since 0.9.0.
pub const MODERN: Dialect =
    Dialect { one: b'*', rest: b'#', rest_may_be_empty: true, has_lists: true, literal: None };
/// zbus until April 2017.
pub const FLAG: Dialect =
    Dialect { one: b'+', rest: b'#', rest_may_be_empty: false, has_lists: false, literal: None };
/// zbus 0.8, and its Go server.
pub const FLAG_LATE: Dialect =
    Dialect { one: b'+', rest: b'*', rest_may_be_empty: false, has_lists: false, literal: None };

/// The dialect with this name.
pub fn dialect(name: &str) -> Option<Dialect> {
    match name {
        "modern" => Some(MODERN),
        "flag" => Some(FLAG),
        "flag-late" => Some(FLAG_LATE),
        "exact" => Some(EXACT),
        "prefix" => Some(PREFIX),
        _ => None,
    }
}

/// Alternatives; none at all means that everything matches.
#[derive(Clone, Debug)]
pub struct Filter {
    dialect: Dialect,
    patterns: Vec<Vec<u8>>,
}

impl Filter {
    /// Parses a filter text.
    pub fn new(text: &str, dialect: Dialect) -> Self {
        let items: Vec<&str> =
            if dialect.has_lists { text.split(';').collect() } else { vec![text] };
        let patterns = items
            .iter()
            .filter(|item| !item.trim().is_empty())
            .map(|item| item.as_bytes().to_vec());
        Self { dialect, patterns: patterns.collect() }
    }

    /// Whether it lets everything through, tagged or not.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a message with this tag passes.
    pub fn matches(&self, tag: &[u8]) -> bool {
        self.is_open()
            || (!tag.is_empty() && self.patterns.iter().any(|pattern| self.fits(pattern, tag)))
    }

    fn fits(&self, pattern: &[u8], tag: &[u8]) -> bool {
        match self.dialect.literal {
            Some(Literal::Whole) => return pattern == tag,
            Some(Literal::Prefix) => return tag.starts_with(pattern),
            None => {}
        }
        let mut levels = levels(tag);
        for part in self::levels(pattern) {
            if part == [self.dialect.rest] {
                return self.dialect.rest_may_be_empty || levels.next().is_some();
            }
            match levels.next() {
                Some(level) if part == [self.dialect.one] || part == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

/// Levels without the empty ones at the end.
fn levels(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = text.iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
    let used = text.get(..end).unwrap_or_default();
    let is_empty = used.is_empty();
    used.split(|byte| *byte == b'.').filter(move |_| !is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, tag: &str, dialect: Dialect) -> bool {
        Filter::new(pattern, dialect).matches(tag.as_bytes())
    }

    #[test]
    fn one_level_and_the_rest() {
        assert!(fits("eu.*", "eu.orders", MODERN));
        assert!(!fits("eu.*", "eu.orders.new", MODERN));
        assert!(!fits("eu.*", "eu", MODERN));
        assert!(fits("eu.#", "eu", MODERN));
        assert!(!fits("eu.#", "eu", FLAG));
        assert!(fits("eu.*.new", "eu.orders.new", MODERN));
        assert!(fits("eu.+", "eu.orders", FLAG_LATE));
    }

    #[test]
    fn lists_and_empty_filters() {
        assert!(fits("a;b.*", "b.c", MODERN));
        assert!(!fits("a;b", "a;b", MODERN));
        assert!(fits("a;b", "a;b", FLAG));
        assert!(fits("", "", MODERN));
        assert!(!fits("a", "", MODERN));
        assert!(fits(" ; ", "anything", MODERN));
    }

    #[test]
    fn empty_levels_at_the_end_do_not_count() {
        assert!(fits("a.b", "a.b..", MODERN));
        assert!(!fits("a.b", "a..b", MODERN));
        assert!(fits("a.*.b", "a..b", MODERN));
    }
}
