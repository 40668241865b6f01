//! Checks whether upstream accepts a front proxy's certificate, with a request under a made-up user without
//! permissions.
//!
//! A certificate whose authority is among upstream's client CAs authenticates a user itself, and every client would act
//! as that user: such a certificate is not used.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::AsFrontProxy;
use crate::{
    apimachinery::{Status, UserInfo},
    connector::RequestBody,
    lifecycle::Tasks,
    telemetry::Chain,
};

/// Supported since Kubernetes 1.28. Older servers refuse it, and the refusal contains the user's name.
const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const QUESTION: &[u8] = br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
/// Time limit for the whole answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Pause before the next probe, after a negative answer or none.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Why a certificate is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBelieved {
    #[error(
        "the API server does not accept it as a front proxy's: its certificate authority must be in \
         --requestheader-client-ca-file, and its common name in --requestheader-allowed-names"
    )]
    Unknown,
    #[error(
        "the API server authenticates it as the user {0:?}, so every client would act as that user: its certificate \
         authority must be in --requestheader-client-ca-file, not in --client-ca-file, and its common name in \
         --requestheader-allowed-names"
    )]
    Another(String),
    #[error(
        "the API server ignores the users' groups: --requestheader-group-headers must include the groupHeader of \
         clients.identity.frontProxy"
    )]
    Groups,
}

/// Upstream's verdict on the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Believed,
    NotBelieved(NotBelieved),
    /// No verdict, and why.
    Nothing(String),
}

impl AsFrontProxy {
    /// Asks upstream whether it accepts the certificate. Without a verdict, a task of `tasks` continues until it does.
    ///
    /// # Errors
    /// Upstream does not accept the certificate.
    pub async fn probe(&self, tasks: &Tasks) -> Result<(), NotBelieved> {
        match self.ask().await {
            Said::Believed => return Ok(()),
            Said::NotBelieved(why) => return Err(why),
            Said::Nothing(why) => {
                tracing::warn!(
                    error = %why,
                    "cannot check whether the API server accepts the front-proxy certificate; trying again",
                );
            }
        }
        let (proxy, token) = (self.clone(), tasks.token().clone());
        tasks.spawn("front proxy probe", async move {
            let _ended = token.run_until_cancelled(proxy.until_believed()).await;
        });
        Ok(())
    }

    async fn until_believed(&self) {
        loop {
            sleep(ASK_AGAIN).await;
            match self.ask().await {
                Said::Believed => {
                    self.belief.set(true);
                    tracing::info!("the API server accepts the front-proxy certificate");
                    return;
                }
                Said::NotBelieved(error) => {
                    self.belief.set(false);
                    tracing::error!(error = %Chain(&error), "front-proxy certificate not used");
                }
                Said::Nothing(why) => tracing::debug!(error = %why, "front-proxy certificate still not checked"),
            }
        }
    }

    async fn ask(&self) -> Said {
        let user = UserInfo {
            name: format!("kube-fanout:probe:{}", Uuid::new_v4()),
            groups: vec![format!("kube-fanout:probe:{}", Uuid::new_v4()), AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        };
        match timeout(PROBE_TIMEOUT, self.answer(&user)).await {
            Ok(Ok((status, body))) => said(status, &body, &user),
            Ok(Err(why)) => Said::Nothing(why),
            Err(_) => Said::Nothing(format!("no answer within {PROBE_TIMEOUT:?}")),
        }
    }

    async fn answer(&self, user: &UserInfo) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::new(RequestBody::Full(Bytes::from_static(QUESTION)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = http::Uri::from_static(PATH);
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        let outbound = self.asserting(request, user).map_err(|error| error.to_string())?;
        let answer = outbound.send().await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }
}

/// The verdict in an answer. Pure.
fn said(status: StatusCode, body: &[u8], user: &UserInfo) -> Said {
    #[derive(Deserialize)]
    struct Review {
        status: ReviewStatus,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ReviewStatus {
        user_info: Seen,
    }
    #[derive(Deserialize)]
    struct Seen {
        #[serde(default)]
        username: String,
        #[serde(default)]
        groups: Vec<String>,
    }
    let unread = || Said::Nothing(format!("{PATH} was answered with {status}"));
    match status {
        StatusCode::UNAUTHORIZED => Said::NotBelieved(NotBelieved::Unknown),
        StatusCode::OK | StatusCode::CREATED => match serde_json::from_slice::<Review>(body) {
            Ok(Review { status: ReviewStatus { user_info: Seen { username, groups } } }) => {
                let is_member = groups.contains(&user.groups[0]);
                if username == user.name && !is_member {
                    Said::NotBelieved(NotBelieved::Groups)
                } else {
                    seen(username, user)
                }
            }
            Err(_) => unread(),
        },
        StatusCode::FORBIDDEN => refused_user(body).map_or_else(unread, |name| seen(name, user)),
        _ => unread(),
    }
}

fn seen(name: String, user: &UserInfo) -> Said {
    match name {
        name if name == user.name => Said::Believed,
        name if name == ANONYMOUS => Said::NotBelieved(NotBelieved::Unknown),
        name => Said::NotBelieved(NotBelieved::Another(name)),
    }
}

/// The user's name in a refusal.
fn refused_user(body: &[u8]) -> Option<String> {
    let message = Status::message_in(body)?;
    let (_, rest) = message.split_once("User \"")?;
    rest.split_once('"').map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> UserInfo {
        UserInfo { name: "p".to_owned(), groups: vec!["g".to_owned(), AUTHENTICATED.to_owned()], ..UserInfo::default() }
    }

    #[test]
    fn the_probe_reads_the_user_that_upstream_sees() {
        let review = |name: &str, groups: &str| {
            format!(r#"{{"status":{{"userInfo":{{"username":"{name}","groups":[{groups}]}}}}}}"#)
        };
        let refusal = |name: &str| {
            format!(r#"{{"kind":"Status","message":"x is forbidden: User \"{name}\" cannot create resource"}}"#)
        };
        let another = || Said::NotBelieved(NotBelieved::Another("proxy".to_owned()));
        for (status, body, expected) in [
            (201, review("p", r#""g","system:authenticated""#), Said::Believed),
            (201, review("p", r#""system:authenticated""#), Said::NotBelieved(NotBelieved::Groups)),
            (201, review("proxy", r#""g""#), another()),
            (201, review("system:anonymous", ""), Said::NotBelieved(NotBelieved::Unknown)),
            (403, refusal("p"), Said::Believed),
            (403, refusal("proxy"), another()),
            (403, refusal("system:anonymous"), Said::NotBelieved(NotBelieved::Unknown)),
            (401, String::new(), Said::NotBelieved(NotBelieved::Unknown)),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(said(status, body.as_bytes(), &probe()), expected, "{status} {body}");
        }
        for (status, body) in [(201, "{}"), (403, "no"), (403, r#"{"message":"no"}"#), (404, ""), (500, ""), (429, "")]
        {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(matches!(said(status, body.as_bytes(), &probe()), Said::Nothing(_)), "{status} {body}");
        }
    }
}
