//! The servers of a run before it: whether load may be put on them, and what to do about those that do not answer.

use std::sync::Arc;

use crate::{
    LoadError,
    cluster::{self, Looks},
    endpoint::Endpoint,
    failure::{ErrorKind, Failure},
    same_cluster,
    side::Side,
};

/// Refuses servers that load must not be put on. Returns what could not be checked, for the report.
///
/// # Errors
/// One of them does not answer or does not look like a test cluster, unless load may be put on any cluster, or shows
/// another cluster than the first.
pub(super) async fn check(any_cluster: bool, sides: &[Side]) -> Result<Vec<String>, LoadError> {
    if !any_cluster {
        for server in same_cluster::servers(sides) {
            refuse_strange(&server).await?;
        }
    }
    same_cluster::check(sides).await
}

async fn refuse_strange(endpoint: &Arc<Endpoint>) -> Result<(), LoadError> {
    match cluster::is_for_tests(endpoint).await {
        Ok(Looks::ForTests) => Ok(()),
        Ok(Looks::Strange(unread)) => {
            let unread: String = unread.iter().map(|what| format!("; {what}")).collect();
            Err(LoadError::NotForTests(endpoint.url().to_owned(), unread))
        }
        Err(failure) => Err(unanswered(endpoint, &failure)),
    }
}

/// Why it is not known what cluster it is.
fn unanswered(endpoint: &Endpoint, failure: &Failure) -> LoadError {
    let (url, words) = (endpoint.url().to_owned(), cluster::words(failure));
    let advice = match failure.kind {
        ErrorKind::Status(401 | 403) if endpoint.tls.is_none() => {
            "credentials are only sent with TLS: use the server's https:// address"
        }
        ErrorKind::Status(401) => "name other credentials with --kubeconfig or --context",
        ErrorKind::Status(403) => {
            "give the kubeconfig's user the right, or name another one with --kubeconfig or --context"
        }
        ErrorKind::Status(500..) => "the server, or what it is behind, is not well",
        ErrorKind::Status(400) if failure.message.contains("HTTPS") => "it speaks TLS: use its https:// address",
        ErrorKind::Status(_) | ErrorKind::Stream => return LoadError::Foreign(url, words),
        ErrorKind::Handshake => return LoadError::Unreachable(url, format!("{failure}{}", of_handshake(failure))),
        ErrorKind::Connect
        | ErrorKind::Timeout
        | ErrorKind::Event(_)
        | ErrorKind::Unsent
        | ErrorKind::Unsynced
        | ErrorKind::Away
        | ErrorKind::Undelivered => {
            return LoadError::Unreachable(url, failure.to_string());
        }
    };
    LoadError::Refused(url, words, advice)
}

/// What to do about a handshake that failed, by the words of TLS.
fn of_handshake(failure: &Failure) -> &'static str {
    if failure.message.contains("invalid peer certificate") {
        "; check the kubeconfig (--kubeconfig, --context): its certificate-authority has to be the one of this server, \
         and its tls-server-name, or else the address, a name in the certificate"
    } else if failure.message.contains("corrupt message") {
        "; if the server speaks plain HTTP, use its http:// address"
    } else {
        ""
    }
}
