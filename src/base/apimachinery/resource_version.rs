//! Versions of a collection: numbers that upstream assigns and the gateway never invents.

use std::fmt;

/// A revision of upstream's storage, greater than zero.
///
/// Comparable only within one resource (read-path 7). An unset version and `"0"` in a request are not versions: they
/// are parsed into [`super::Freshness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

/// The text is not a decimal `u64`, or it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a resource version is a whole number from 1 to 18446744073709551615")]
pub struct InvalidResourceVersion;

impl ResourceVersion {
    /// `None` for 0, which is a keyword of requests and not a version.
    pub const fn new(value: u64) -> Option<Self> {
        if value == 0 { None } else { Some(Self(value)) }
    }

    /// The number itself.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Parses decimal digits only, as Go's `ParseUint` does: no sign, no blanks.
    pub fn parse(text: &str) -> Result<Self, InvalidResourceVersion> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidResourceVersion);
        }
        let value = text.parse().map_err(|_| InvalidResourceVersion)?;
        Self::new(value).ok_or(InvalidResourceVersion)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_decimal_numbers_are_versions() {
        assert_eq!(ResourceVersion::parse("42").map(ResourceVersion::value), Ok(42));
        assert_eq!(ResourceVersion::parse("18446744073709551615").map(ResourceVersion::value), Ok(u64::MAX));
        for text in ["", "0", "-1", "+1", " 1", "1a", "18446744073709551616"] {
            assert_eq!(ResourceVersion::parse(text), Err(InvalidResourceVersion), "{text:?}");
        }
    }
}
