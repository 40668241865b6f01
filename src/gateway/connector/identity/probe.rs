//! Checks whether upstream accepts a front proxy's certificate, with a request under a made-up user without
//! permissions.
//!
//! A certificate whose authority is among upstream's client CAs authenticates a user itself, and every client would act
//! as that user: so a certificate is used only after upstream has named the made-up user, and no other answer counts.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::{sync::Mutex, time::timeout};
use uuid::Uuid;

use super::AsFrontProxy;
use crate::connector::{
    BuildError, RequestBody, Servers,
    acceptance::Acceptance,
    access::Access,
    client_certificate::ClientCertificate,
    delivery,
    dialer::Protocols,
    pool::{Pool, PoolSettings},
    presented::Presented,
    servers::Choice,
    target::Target,
};
use base::{
    apimachinery::{Status, UserInfo},
    telemetry::Chain,
};

/// Supported since Kubernetes 1.28. Older servers refuse it, and the refusal contains the user's name.
const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const QUESTION: &[u8] = br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
/// Time limit for the answers of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// For one request at a time to each server, over connections of its own
/// that are not used again: the next probe may show another certificate.
const PROBES: PoolSettings =
    PoolSettings { protocols: Protocols::Http1, idle: 0, ..PoolSettings::own("upstream_front_proxy_probes", 1) };

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

/// A server's verdict on the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused(NotBelieved),
    /// An answer as of a server that takes every client for the certificate's own user, and of one that allows
    /// everything: the certificate is not used, whatever the server has shown before.
    Doubtful(String),
    /// No verdict, and why: what the server has shown before remains.
    Undecided(String),
}

/// The connections for probes, and what they have shown.
#[derive(Debug)]
pub(super) struct Probes {
    pub(super) target: Target,
    pub(super) servers: Option<Servers>,
    /// What the files hold.
    pub(super) files: Arc<ClientCertificate>,
    /// What clients' connections show, and what `acceptance` is about.
    pub(super) accepted: Arc<Presented>,
    /// What probes' connections show. Locked during probes, since these show one certificate at a time.
    pub(super) asked: Mutex<Arc<Presented>>,
    /// One for each of several servers, or one.
    pools: Vec<Pool>,
    pub(super) acceptance: Acceptance,
}

impl Probes {
    pub(super) fn new(access: &Access, target: Target, files: Arc<ClientCertificate>) -> Result<Self, BuildError> {
        let [accepted, asked] = [files.current(), files.current()].map(Presented::new);
        let access = access.with_certificate(asked.clone())?;
        let servers = access.servers().cloned();
        let choices: Vec<_> = match &servers {
            Some(servers) => (0..servers.addresses().len()).map(Choice::Only).collect(),
            None => vec![Choice::Any],
        };
        let acceptance = Acceptance::undecided(choices.len(), access.cluster().clone());
        let pools = choices.into_iter().map(|choice| Pool::new(&access, PoolSettings { choice, ..PROBES })).collect();
        Ok(Self { target, servers, files, accepted, asked: Mutex::new(asked), pools, acceptance })
    }

    pub(super) fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    pub(super) fn accepted(&self) -> Arc<Presented> {
        self.accepted.clone()
    }

    /// All servers, by their places in the configuration.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.pools.len()).collect()
    }

    /// The servers that are known to be of the cluster.
    pub(super) fn members(&self) -> Vec<usize> {
        self.all().into_iter().filter(|server| self.is_member(*server)).collect()
    }

    /// Whether a server is of the cluster. One that is not has no say.
    pub(super) fn is_member(&self, server: usize) -> bool {
        self.servers.as_ref().is_none_or(|servers| servers.is_member(server))
    }

    pub(super) fn name(&self, server: usize) -> String {
        match &self.servers {
            Some(servers) => servers.addresses()[server].to_string(),
            None => self.target.to_string(),
        }
    }
}

impl AsFrontProxy {
    /// The verdicts of these servers on a certificate, in the same order; each is noted when it comes. `asked` is that
    /// of the probes, locked.
    pub(super) async fn ask(
        &self,
        asked: &Presented,
        certificate: Arc<CertifiedKey>,
        servers: &[usize],
        note: impl Fn(usize, &Verdict),
    ) -> Vec<Verdict> {
        asked.set(certificate);
        let note = &note;
        let ask = |server: usize| async move {
            let verdict = self.ask_one(server).await;
            note(server, &verdict);
            verdict
        };
        join_all(servers.iter().map(|server| ask(*server))).await
    }

    async fn ask_one(&self, server: usize) -> Verdict {
        let user = UserInfo {
            name: format!("kube-fanout:probe:{}", Uuid::new_v4()),
            groups: vec![format!("kube-fanout:probe:{}", Uuid::new_v4()), AUTHENTICATED.to_owned()],
            ..UserInfo::default()
        };
        match timeout(PROBE_TIMEOUT, self.asked(server, &user)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(why)) => Verdict::Undecided(why),
            Err(_) => Verdict::Undecided(format!("no answer within {PROBE_TIMEOUT:?}")),
        }
    }

    async fn asked(&self, server: usize, user: &UserInfo) -> Result<Verdict, String> {
        let (status, body) = self.answer(server, Uri::from_static(PATH), QUESTION, user).await?;
        if status != StatusCode::NOT_FOUND && status != StatusCode::METHOD_NOT_ALLOWED {
            return Ok(said(status, &body, user));
        }
        // Before 1.28 there is nothing that says who the user is, except a refusal. The namespace does not exist, so
        // that no role is bound there.
        let [namespace, name] = [Uuid::new_v4(), Uuid::new_v4()];
        let path = format!("/api/v1/namespaces/kube-fanout-probe-{namespace}/secrets/{name}");
        let path = Uri::try_from(path).map_err(|error| error.to_string())?;
        let (status, body) = self.answer(server, path, &[], user).await?;
        Ok(said_of_secret(status, &body, user))
    }

    /// Without a body, the question is a get.
    async fn answer(
        &self,
        server: usize,
        path: Uri,
        body: &'static [u8],
        user: &UserInfo,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::new(RequestBody::Empty);
        let json = HeaderValue::from_static("application/json");
        if !body.is_empty() {
            *request.body_mut() = RequestBody::Full(Bytes::from_static(body));
            *request.method_mut() = Method::POST;
            request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        }
        *request.uri_mut() = path;
        request.headers_mut().insert(header::ACCEPT, json);
        self.assert(&mut request, user).map_err(|error| error.to_string())?;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        let Probes { target, pools, .. } = &*self.probes;
        let answer = delivery::deliver_unnoted(target, &[&pools[server]], None, request).await;
        let answer = answer.map_err(|error| Chain(&error).to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }
}

/// The verdict in an answer. Pure.
fn said(status: StatusCode, body: &[u8], user: &UserInfo) -> Verdict {
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
    let unread = || Verdict::Undecided(format!("{PATH} was answered with {status}"));
    match status {
        StatusCode::UNAUTHORIZED => Verdict::Refused(NotBelieved::Unknown),
        StatusCode::OK | StatusCode::CREATED => match serde_json::from_slice::<Review>(body) {
            Ok(Review { status: ReviewStatus { user_info: Seen { username, groups } } }) => {
                let is_member = groups.contains(&user.groups[0]);
                if username == user.name && !is_member {
                    Verdict::Refused(NotBelieved::Groups)
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

fn seen(name: String, user: &UserInfo) -> Verdict {
    match name {
        name if name == user.name => Verdict::Accepted,
        name if name == ANONYMOUS => Verdict::Refused(NotBelieved::Unknown),
        name => Verdict::Refused(NotBelieved::Another(name)),
    }
}

/// The verdict in the answer to a get of a Secret that does not exist. Pure.
fn said_of_secret(status: StatusCode, body: &[u8], user: &UserInfo) -> Verdict {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => said(status, body, user),
        StatusCode::NOT_FOUND => Verdict::Doubtful(
            "the API server has no selfsubjectreviews, and does not refuse to get a Secret to a made-up user without \
             rights: either it takes every client for the certificate's own user, whose authority must then not be in \
             --client-ca-file, or its authorizer allows everything"
                .to_owned(),
        ),
        _ => Verdict::Undecided(format!("{PATH} was answered with 404, and a get of a Secret with {status}")),
    }
}

/// The user's name in a refusal by an API server's authorizer.
fn refused_user(body: &[u8]) -> Option<String> {
    let message = Status::message_in(body)?;
    let (_, rest) = message.split_once("forbidden: User \"")?;
    rest.split_once("\" cannot ").map(|(name, _)| name.to_owned())
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
        let another = || Verdict::Refused(NotBelieved::Another("proxy".to_owned()));
        for (status, body, expected) in [
            (201, review("p", r#""g","system:authenticated""#), Verdict::Accepted),
            (201, review("p", r#""system:authenticated""#), Verdict::Refused(NotBelieved::Groups)),
            (201, review("proxy", r#""g""#), another()),
            (201, review("system:anonymous", ""), Verdict::Refused(NotBelieved::Unknown)),
            (403, refusal("p"), Verdict::Accepted),
            (403, refusal("proxy"), another()),
            (403, refusal("system:anonymous"), Verdict::Refused(NotBelieved::Unknown)),
            (401, String::new(), Verdict::Refused(NotBelieved::Unknown)),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(said(status, body.as_bytes(), &probe()), expected, "{status} {body}");
        }
        for (status, body) in [(201, "{}"), (403, "no"), (403, r#"{"message":"no"}"#), (404, ""), (500, ""), (429, "")]
        {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(matches!(said(status, body.as_bytes(), &probe()), Verdict::Undecided(_)), "{status} {body}");
        }
    }

    #[test]
    fn only_a_refusal_of_a_secret_to_the_made_up_user_is_believed() {
        let refusal = |name: &str| {
            format!(r#"{{"message":"secrets \"s\" is forbidden: User \"{name}\" cannot get resource \"secrets\""}}"#)
        };
        for (status, body, expected) in [
            (403, refusal("p"), Some(Verdict::Accepted)),
            (403, refusal("proxy"), Some(Verdict::Refused(NotBelieved::Another("proxy".to_owned())))),
            (403, r#"{"message":"User \"p\" is blocked"}"#.to_owned(), None),
            (401, String::new(), Some(Verdict::Refused(NotBelieved::Unknown))),
            (200, "{}".to_owned(), None),
            (503, String::new(), None),
        ] {
            let verdict = said_of_secret(StatusCode::from_u16(status).unwrap(), body.as_bytes(), &probe());
            match expected {
                Some(expected) => assert_eq!(verdict, expected, "{status} {body}"),
                None => assert!(matches!(verdict, Verdict::Undecided(_)), "{status} {body}: {verdict:?}"),
            }
        }
        let found_none = br#"{"message":"secrets \"s\" not found"}"#;
        assert!(matches!(said_of_secret(StatusCode::NOT_FOUND, found_none, &probe()), Verdict::Doubtful(_)));
    }
}
