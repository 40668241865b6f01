//! The meaning of each reason for forwarding, in the manual's own words, so that page and manual say the same.

/// The chapter that explains them, one line each: ``| `excluded` | `cache.exclude` names the resource |``.
const CHAPTER: &str = include_str!("../../manual/request_path.md");
/// The head of the table.
const HEAD: &str = "| Reason | Why |";

/// Every reason with its meaning, in the manual's order.
pub(super) fn all() -> impl Iterator<Item = (&'static str, String)> {
    let rows = CHAPTER.lines().skip_while(|line| *line != HEAD).skip(2);
    rows.map_while(|row| {
        let (reason, meaning) = row.strip_prefix("| `")?.split_once("` | ")?;
        Some((reason, meaning.trim_end_matches(" |").replace('`', "")))
    })
}

/// The meaning of a reason; empty if the manual does not have it.
pub(super) fn meaning(reason: &str) -> String {
    all().find(|(known, _)| *known == reason).map(|(_, meaning)| meaning).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::ForwardReason;

    #[test]
    fn the_manual_s_table_is_read_to_its_end() {
        for reason in [ForwardReason::NotARead, ForwardReason::MostRecent, ForwardReason::Unproven] {
            let meaning = meaning(reason.as_str());
            assert!(!meaning.is_empty() && !meaning.contains(['|', '`']), "{reason:?}: {meaning}");
        }
    }
}
