//! W3C Trace Context: the header that continues a trace in another process. Pure.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The trace, and the span in it, that a request belongs to.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendor-specific data of tracing systems; meaningless without its `traceparent`.
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Version 00: `00-<trace id>-<span id>-<flags>`, each byte as two hexadecimal digits.
const LEN: usize = 55;
const SAMPLED: u8 = 1;

/// The identity of a span, as passed between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// Whether the span is recorded.
    pub(super) is_sampled: bool,
}

impl SpanContext {
    /// The parent span in a request's headers; `None` unless there is exactly one valid `traceparent`.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        Self::parse(value.as_bytes())
    }

    /// Later versions of the format may only append fields.
    fn parse(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_at_checked(LEN)?;
        let version = byte(head.get(..2)?)?;
        let is_whole = rest.is_empty() || version > 0 && rest.starts_with(b"-");
        if version == u8::MAX || !is_whole || [2, 35, 52].iter().any(|at| head.get(*at) != Some(&b'-')) {
            return None;
        }
        let trace_id: [u8; 16] = bytes(head.get(3..35)?)?;
        let span_id: [u8; 8] = bytes(head.get(36..52)?)?;
        let flags = byte(head.get(53..)?)?;
        let is_sampled = flags & SAMPLED != 0;
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self { trace_id, span_id, is_sampled })
    }

    /// The value of `traceparent` for a request that is sent within this span.
    pub(super) fn header(&self) -> HeaderValue {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        let text = format!("00-{}-{}-{flags:02x}", hex(&self.trace_id), hex(&self.span_id));
        HeaderValue::from_str(&text).expect("digits and hyphens are a header value")
    }
}

fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut found = [0; N];
    for (found, digits) in found.iter_mut().zip(digits.chunks_exact(2)) {
        *found = byte(digits)?;
    }
    Some(found)
}

fn byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| match digits.get(at)? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    Some(digit(0)? << 4 | digit(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_round_trips() {
        let context = SpanContext::parse(VALUE.as_bytes()).unwrap();
        assert_eq!((context.trace_id[0], context.span_id[7], context.is_sampled), (0x0a, 0x31, true));
        assert_eq!(context.header(), VALUE);
        let unsampled = SpanContext::parse(VALUE.replace("-01", "-00").as_bytes()).unwrap();
        assert!(!unsampled.is_sampled);
        assert_eq!(unsampled.header(), VALUE.replace("-01", "-00"));
        // Flags that mean nothing here are not passed on.
        assert_eq!(SpanContext::parse(VALUE.replace("-01", "-03").as_bytes()), Some(context));
        // A later version.
        for later in [VALUE.replacen("00-", "01-", 1), VALUE.replacen("00-", "cc-", 1) + "-more"] {
            assert_eq!(SpanContext::parse(later.as_bytes()), Some(context), "{later}");
        }
    }

    #[test]
    fn invalid_contexts_are_ignored() {
        let zeros = |range: std::ops::Range<usize>| {
            let mut value = VALUE.to_owned();
            value.replace_range(range.clone(), &"0".repeat(range.len()));
            value
        };
        for value in [
            String::new(),
            "-".repeat(55),
            VALUE.to_uppercase(),
            VALUE[..54].to_owned(),
            format!("{VALUE}-more"),
            format!("{VALUE} "),
            VALUE.replacen("00-", "ff-", 1),
            VALUE.replacen("00-", "01-", 1) + "more",
            VALUE.replace("-01", "_01"),
            VALUE.replace("b7ad", "xxxx"),
            zeros(3..35),
            zeros(36..52),
        ] {
            assert_eq!(SpanContext::parse(value.as_bytes()), None, "{value}");
        }
        let mut twice = HeaderMap::new();
        twice.insert(TRACEPARENT, HeaderValue::from_static(VALUE));
        assert!(SpanContext::of(&twice).is_some());
        twice.append(TRACEPARENT, HeaderValue::from_static(VALUE));
        assert_eq!(SpanContext::of(&twice), None);
    }
}
