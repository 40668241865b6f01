//! `shardSelector` as 1.36 reads it with `ShardedListAndWatch` enabled. Independent of the gateway's own parser.

use http::StatusCode;

use crate::{failure::Failure, stored::Stored};

/// Ranges of hashes of one field.
#[derive(Debug)]
pub(crate) struct Shards {
    /// Whether the uid is hashed, or else the namespace.
    by_uid: bool,
    ranges: Vec<(u128, u128)>,
}

impl Shards {
    /// `None` if the parameter is missing or empty.
    ///
    /// # Errors
    /// The text is none of those that clients send.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let compact: String = text.split_whitespace().collect();
        let calls = compact.split("||").map(|call| {
            let arguments = call.strip_prefix("shardRange(")?.strip_suffix(")")?;
            let mut arguments = arguments.split(',');
            let field = arguments.next()?;
            let ends = [arguments.next()?, arguments.next()?].map(end);
            Some((field, (ends[0]?, ends[1]?))).filter(|(_, (start, end))| start < end)
        });
        let calls: Option<Vec<_>> = calls.collect();
        let is_known = |field: &str| matches!(field, "object.metadata.uid" | "object.metadata.namespace");
        match calls {
            Some(calls) if calls.iter().all(|(field, _)| is_known(field) && *field == calls[0].0) => {
                let by_uid = calls[0].0.ends_with("uid");
                Ok(Some(Self { by_uid, ranges: calls.into_iter().map(|(_, range)| range).collect() }))
            }
            _ => Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", "invalid shard selector: cannot be read")),
        }
    }

    pub(crate) fn select(&self, object: &Stored) -> bool {
        let value = if self.by_uid { &*object.uid } else { object.namespace().unwrap_or_default() };
        let hash = u128::from(fnv1a(value));
        self.ranges.iter().any(|(start, end)| (start..end).contains(&&hash))
    }

    /// As lists name it.
    pub(crate) fn text(&self) -> String {
        let field = if self.by_uid { "uid" } else { "namespace" };
        let range = |(start, end): &(u128, u128)| {
            format!("shardRange(object.metadata.{field}, '0x{start:016x}', '0x{end:016x}')")
        };
        self.ranges.iter().map(range).collect::<Vec<_>>().join(" || ")
    }
}

fn end(text: &str) -> Option<u128> {
    let digits = text.strip_prefix("'0x")?.strip_suffix('\'')?;
    let is_long = digits == "10000000000000000" || digits.len() == 16;
    u128::from_str_radix(digits, 16).ok().filter(|_| is_long)
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
