//! Asks upstream whether it accepts a front proxy's certificate, with a request under a made-up user without
//! permissions. What follows from the verdicts, and when servers are asked, is decided by [`Acceptance`].
//!
//! A certificate whose authority is among upstream's client CAs authenticates a user itself, and every client would act
//! as that user: so a certificate is used only after upstream has named the made-up user, and no other answer counts.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use super::AsFrontProxy;
use crate::connector::{
    BuildError, RequestBody, Servers,
    acceptance::{Acceptance, NotBelieved, Verdict},
    access::Access,
    client_certificate::{ClientCertificate, Presented},
    delivery,
    dialer::Protocols,
    pool::{Pool, PoolSettings},
    servers::Choice,
    target::Target,
};
use base::{
    apimachinery::{Status, UserInfo},
    lifecycle::Tasks,
    telemetry::Chain,
};

/// Supported since Kubernetes 1.28. Older servers refuse it, and the refusal contains the user's name.
const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const QUESTION: &[u8] = br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;
const AUTHENTICATED: &str = "system:authenticated";
const ANONYMOUS: &str = "system:anonymous";
/// How often it is decided whether to ask again.
const TICK: Duration = Duration::from_secs(1);
/// Time limit for the answers of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// For one request at a time to each server, over connections of its own
/// that are not used again: the next probe may show another certificate.
const PROBES: PoolSettings =
    PoolSettings { protocols: Protocols::Http1, idle: 0, ..PoolSettings::own("upstream_front_proxy_probes", 1) };

/// Asks the servers. One certificate is asked for at a time.
#[derive(Debug)]
pub(super) struct Prober {
    target: Target,
    servers: Option<Servers>,
    files: Arc<ClientCertificate>,
    /// What clients' connections show, and what `acceptance` is about.
    pub(super) in_use: Arc<Presented>,
    pub(super) acceptance: Acceptance,
    /// What the connections here show. Locked while it is asked for.
    asked: Mutex<Arc<Presented>>,
    /// One for each of several servers, or one.
    pools: Vec<Pool>,
}

impl Prober {
    pub(super) fn new(access: &Access, target: Target, files: Arc<ClientCertificate>) -> Result<Self, BuildError> {
        let [in_use, asked] = [files.current(), files.current()].map(Presented::new);
        let access = access.with_certificate(asked.clone())?;
        let servers = access.servers().cloned();
        let (names, choices): (Vec<_>, Vec<_>) = match &servers {
            Some(servers) => {
                let addresses = servers.addresses().iter().enumerate();
                addresses.map(|(server, address)| (address.to_string(), Choice::Only(server))).unzip()
            }
            None => (vec![target.to_string()], vec![Choice::Any]),
        };
        let acceptance = Acceptance::new(names, servers.is_none(), in_use.clone(), access.cluster().clone());
        let pools = choices.into_iter().map(|choice| Pool::new(&access, PoolSettings { choice, ..PROBES })).collect();
        Ok(Self { target, servers, files, in_use, acceptance, asked: Mutex::new(asked), pools })
    }

    /// Which servers are known to be of the cluster.
    fn members(&self) -> Vec<bool> {
        let is_member = |server| self.servers.as_ref().is_none_or(|servers| servers.is_member(server));
        (0..self.pools.len()).map(is_member).collect()
    }
}

impl AsFrontProxy {
    /// Asks upstream whether it accepts the certificate, each of several servers for itself. A task of `tasks`
    /// continues to ask: without a verdict soon, and otherwise from time to time.
    ///
    /// # Errors
    /// A server does not accept the certificate, and no server does.
    pub async fn start(&self, tasks: &Tasks) -> Result<(), NotBelieved> {
        let verdicts = self.probe().await;
        let accepted = verdicts.contains(&Verdict::Accepted);
        for verdict in verdicts {
            if let Verdict::Refused(why) = verdict
                && !accepted
            {
                return Err(why);
            }
        }
        let (proxy, token) = (self.clone(), tasks.token().clone());
        tasks.spawn("front proxy probe", async move {
            let _ended = token.run_until_cancelled(proxy.keep_probing()).await;
        });
        Ok(())
    }

    /// The verdict of each of several servers, in the order of the configuration, or that of the only one, on the
    /// certificate in use.
    pub async fn probe(&self) -> Vec<Verdict> {
        let asked = self.prober.asked.lock().await;
        self.ask_of_used(&asked, &self.prober.acceptance.all()).await
    }

    async fn keep_probing(&self) {
        loop {
            match &self.prober.servers {
                // A check finds that a server is of the cluster.
                Some(servers) => drop(timeout(TICK, servers.next_check()).await),
                None => sleep(TICK).await,
            }
            self.look().await;
        }
    }

    /// Asks what is due.
    async fn look(&self) {
        let Prober { acceptance, files, asked, .. } = &*self.prober;
        let (asked, in_files) = (asked.lock().await, files.current());
        let (servers, is_other_due) = acceptance.due(&in_files, &self.prober.members(), Instant::now());
        self.ask_of_used(&asked, &servers).await;
        if is_other_due {
            asked.replace(in_files.clone());
            let verdicts = join_all(acceptance.all().into_iter().map(|server| self.ask(server))).await;
            acceptance.judge(in_files, files.name(), &verdicts, Instant::now());
        }
    }

    /// The verdicts of these servers on the certificate in use, in the same order; each is noted when it comes.
    async fn ask_of_used(&self, asked: &Presented, servers: &[usize]) -> Vec<Verdict> {
        let Prober { acceptance, in_use, .. } = &*self.prober;
        asked.replace(in_use.current());
        let ask = |server: usize| async move {
            let verdict = self.ask(server).await;
            acceptance.note(server, &verdict, Instant::now());
            verdict
        };
        join_all(servers.iter().map(|server| ask(*server))).await
    }

    /// The verdict of a server on the certificate that is asked for.
    async fn ask(&self, server: usize) -> Verdict {
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
        let (status, body) = self.answer(server, PATH, QUESTION, user).await?;
        if status != StatusCode::NOT_FOUND && status != StatusCode::METHOD_NOT_ALLOWED {
            return Ok(said(status, &body, user));
        }
        // Before 1.28 there is nothing that says who the user is, except a refusal. The namespace does not exist, so
        // that no role is bound there.
        let [namespace, name] = [Uuid::new_v4(), Uuid::new_v4()];
        let path = format!("/api/v1/namespaces/kube-fanout-probe-{namespace}/secrets/{name}");
        let (status, body) = self.answer(server, &path, &[], user).await?;
        Ok(said_of_secret(status, &body, user))
    }

    /// Without a body, the question is a get.
    async fn answer(
        &self,
        server: usize,
        path: &str,
        body: &'static [u8],
        user: &UserInfo,
    ) -> Result<(StatusCode, Bytes), String> {
        let (json, request) = ("application/json", Request::builder().uri(path));
        let mut request = if body.is_empty() {
            request.body(RequestBody::Empty)
        } else {
            let request = request.method(Method::POST).header(header::CONTENT_TYPE, json);
            request.body(RequestBody::Full(Bytes::from_static(body)))
        }
        .map_err(|error| error.to_string())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(json));
        self.assert(&mut request, user).map_err(|error| error.to_string())?;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        let Prober { target, pools, .. } = &*self.prober;
        let answer = delivery::deliver_unnoted(target, &[&pools[server]], None, request).await;
        let answer = answer.map_err(|error| Chain(&error).to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }
}

/// The verdict in an answer. Pure.
fn said(status: StatusCode, body: &[u8], user: &UserInfo) -> Verdict {
    let unread = || Verdict::Undecided(format!("{PATH} was answered with {status}"));
    match status {
        StatusCode::UNAUTHORIZED => Verdict::Refused(NotBelieved::Unknown),
        StatusCode::OK | StatusCode::CREATED => {
            let review = serde_json::from_slice::<SelfSubjectReview>(body);
            let Some(info) = review.ok().and_then(|review| review.status?.user_info) else { return unread() };
            let verdict = seen(info.username.unwrap_or_default(), user);
            let has_group = info.groups.unwrap_or_default().contains(&user.groups[0]);
            if verdict == Verdict::Accepted && !has_group { Verdict::Refused(NotBelieved::Groups) } else { verdict }
        }
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
mod tests;
