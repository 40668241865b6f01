//! What keeps the gateway from the API server, as its own requests have found out.

use std::time::SystemTime;

use http::StatusCode;

use super::{Connector, reachable::Unreachable, refusals::Refusal};

/// The maximum length of the text of an error, in characters: what upstream says has no limit of its own.
const TEXT_MAX: usize = 400;

/// One thing that is wrong between the gateway and the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// The address of the API server, without credentials.
    pub server: String,
    /// When it began.
    pub since: SystemTime,
    /// The path of the request that is refused; `None` if upstream cannot be reached.
    pub path: Option<String>,
    /// The last error, or upstream's own words. Foreign text, of bounded length.
    pub error: String,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// No connection can be opened.
    Unreachable,
    /// 401: upstream does not accept the gateway's credentials.
    Unauthorized,
    /// 403: the gateway's identity may not do what it tries.
    Forbidden,
}

impl TroubleKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
        }
    }
}

impl Connector {
    /// What is wrong now, the worst first. Empty if the gateway's last requests were answered and allowed, or if there
    /// were none.
    pub fn troubles(&self) -> Vec<Trouble> {
        let target = &self.shared.target;
        let server = target.to_string();
        let unreachable = target.reachable.trouble().map(|Unreachable { since, error }| Trouble {
            kind: TroubleKind::Unreachable,
            server: server.clone(),
            since,
            path: None,
            error,
        });
        let refused =
            target.refusals.current().into_iter().map(|Refusal { path, status, since, message, .. }| Trouble {
                kind: if status == StatusCode::UNAUTHORIZED {
                    TroubleKind::Unauthorized
                } else {
                    TroubleKind::Forbidden
                },
                server: server.clone(),
                since,
                path: Some(path),
                error: message,
            });
        unreachable.into_iter().chain(refused).collect()
    }
}

/// The beginning of a text, on one line.
pub(super) fn bounded(text: &str) -> String {
    let line = |letter: char| if letter.is_control() { ' ' } else { letter };
    match text.char_indices().nth(TEXT_MAX) {
        None => text.chars().map(line).collect(),
        Some((end, _)) => text[..end].chars().map(line).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line_of_bounded_length() {
        assert_eq!(bounded("a\nb\u{1b}[2Jé"), "a b [2Jé");
        assert_eq!(bounded(&"é".repeat(TEXT_MAX)), "é".repeat(TEXT_MAX));
        assert_eq!(bounded(&"é".repeat(TEXT_MAX * 9)), format!("{}…", "é".repeat(TEXT_MAX)));
    }
}
