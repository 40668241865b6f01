//! The users: the rows of the matrix.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
};

use anyhow::{Context, Result, bail};
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::requests::{RIGHTS, Request};
use crate::{
    certificates::Certificates,
    client::{Answer, Ask, Endpoint, Protocol},
};

/// A user, defined by the credentials that they present.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: &'static str,
    /// A file of [`Certificates`].
    certificate: Option<&'static str>,
    headers: Vec<(String, String)>,
    /// The identity that the server sees: `name [groups] {extras}`, or the status of a refusal.
    pub(super) who: &'static str,
    /// Their rights, before and after [`super::roles::swap`].
    rights: [&'static str; 2],
}

/// A user's connections to one side.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
}

/// Many users of one side: those with the same certificate share connections.
pub(super) struct Callers(HashMap<Option<&'static str>, Endpoint>);

/// Name, rights before and after roles change, certificate, headers, and the identity that the server sees (read-path
/// 8.1). `{sa}` is the service account's token.
const USERS: &str = "
    anonymous                | anonymous guest   |                   | system:anonymous [system:unauthenticated]
    token                    | reader outsider   |                   | authorization: Bearer conformance-reader | reader [readers, system:authenticated]
    token, one pod           | named named       |                   | authorization: Bearer conformance-named | named [system:authenticated]
    token, one name          | wide wide         |                   | authorization: Bearer conformance-wide | wide [system:authenticated]
    token, keeper            | keeper keeper     |                   | authorization: Bearer conformance-keeper | keeper [keepers, system:authenticated]
    token, outsider          | outsider reader   |                   | authorization: Bearer conformance-outsider | outsider [system:authenticated]
    token, odd words         | reader outsider   |                   | authorization: bEARER conformance-reader more | reader [readers, system:authenticated]
    bad token                | 401 401           |                   | authorization: Bearer conformance-reade | 401
    empty token              | anonymous guest   |                   | authorization: Bearer  conformance-keeper | system:anonymous [system:unauthenticated]
    Basic                    | anonymous guest   |                   | authorization: Basic a2VlcGVyOmNvbmZvcm1hbmNlLWtlZXBlcg== | system:anonymous [system:unauthenticated]
    service account          | reader outsider   |                   | authorization: Bearer {sa} | system:serviceaccount:conf:reader [system:serviceaccounts, system:serviceaccounts:conf, system:authenticated]
    certificate              | staff clerk       | cert              | cert [readers, staff, system:authenticated]
    certificate, outsider    | outsider reader   | cert-outsider     | j\u{fc}rgen <b> [system:authenticated]
    certificate, other CA    | 401 401           | cert-wrong        | 401
    certificate, expired     | 401 401           | cert-expired      | 401
    certificate, a server's  | 401 401           | server            | 401
    other CA, good token     | keeper keeper     | cert-wrong        | authorization: Bearer conformance-keeper | keeper [keepers, system:authenticated]
    certificate, token       | staff clerk       | cert              | authorization: Bearer conformance-keeper | cert [readers, staff, system:authenticated]
    certificate, bad token   | staff clerk       | cert              | authorization: Bearer nonsense | cert [readers, staff, system:authenticated]
    front proxy              | reader outsider   | front-proxy       | x-remote-user: J\u{f6}rg | x-remote-group: proxied | x-remote-group: more | x-remote-extra-scopes: a | x-remote-extra-scopes: b | x-remote-extra-Example.Org%2fKey: c | J\u{f6}rg [proxied, more, system:authenticated] {\"example.org/key\":[\"c\"],\"scopes\":[\"a\",\"b\"]}
    front proxy, token       | outsider outsider | front-proxy       | x-remote-user: proxied | authorization: Bearer conformance-keeper | proxied [system:authenticated]
    front proxy, no user     | 401 401           | front-proxy       | x-remote-group: keepers | 401
    front proxy, anonymous   | anonymous guest   | front-proxy       | x-remote-user: system:anonymous | x-remote-group: system:unauthenticated | system:anonymous [system:unauthenticated]
    front proxy, of users    | reader outsider   | front-proxy       | x-remote-user: impersonator | impersonate-user: reader | impersonate-group: readers | reader [readers, system:authenticated]
    other proxy              | 401 401           | other-proxy       | x-remote-user: admin | x-remote-group: system:masters | 401
    proxy of other CA        | outsider outsider | ca-proxy          | x-remote-user: admin | x-remote-group: system:masters | front-proxy [system:authenticated]
    impersonates             | reader outsider   |                   | authorization: Bearer conformance-impersonator | impersonate-user: reader | impersonate-group: readers | reader [readers, system:authenticated]
    impersonates a master    | 403 403           |                   | authorization: Bearer conformance-impersonator | impersonate-user: reader | impersonate-group: system:masters | 403
    impersonates no user     | {i} {i}           |                   | authorization: Bearer conformance-impersonator | impersonate-group: readers | {i}
    outsider impersonates    | 403 403           |                   | authorization: Bearer conformance-outsider | impersonate-user: reader | 403
    anonymous impersonates   | 403 403           |                   | impersonate-user: admin | impersonate-group: system:masters | 403
    certificate impersonates | reader outsider   | cert-impersonator | impersonate-user: reader | impersonate-group: readers | reader [readers, system:authenticated]
";

/// All users of `server`. `api` issues the token of the service account.
pub(super) async fn all(api: &Endpoint, server: &Endpoint) -> Result<Vec<User>> {
    let (token, incomplete) = (&reader_token(api).await?, incomplete(server).await?);
    USERS.lines().map(str::trim).filter(|row| !row.is_empty()).map(|row| parse(row, token, incomplete)).collect()
}

/// The status with which the server refuses an impersonation without a user: 500 from old servers, 400 from current
/// ones.
async fn incomplete(server: &Endpoint) -> Result<&'static str> {
    match server.send(&Ask::get("/version").header("impersonate-group", "readers")).await?.status {
        400 => Ok("400"),
        500 => Ok("500"),
        status => bail!("groups are impersonated without a user: {status}"),
    }
}

/// A new token of the service account, which may read pods.
pub(crate) async fn reader_token(api: &Endpoint) -> Result<String> {
    let path = "/api/v1/namespaces/conf/serviceaccounts/reader/token";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let token = api.create(path, &request).await?;
    Ok(token["status"]["token"].as_str().context("no token")?.to_owned())
}

fn parse(row: &'static str, token: &str, incomplete: &'static str) -> Result<User> {
    let known = |word: &'static str| if word == "{i}" { incomplete } else { word };
    let mut parts = row.split('|').map(str::trim);
    let name = parts.next().context("no name")?;
    let mut rights = parts.next().into_iter().flat_map(str::split_whitespace).map(known);
    let rights = [rights.next().context("no rights")?, rights.next().context("no rights")?];
    let certificate = parts.next().filter(|file| !file.is_empty());
    let who = known(parts.next_back().context("no identity")?);
    let headers = parts.map(|header| header.replace("{sa}", token));
    Ok(User { name, certificate, headers: headers.filter_map(|header| split(&header)).collect(), who, rights })
}

fn split(header: &str) -> Option<(String, String)> {
    let (name, value) = header.split_once(':')?;
    Some((name.to_owned(), value.trim_start_matches(' ').to_owned()))
}

impl User {
    /// The expected status of a request: by their rights, or the one status that they always get.
    pub(super) fn status(&self, request: &Request, is_swapped: bool) -> Result<u16> {
        let rights = self.rights[usize::from(is_swapped)];
        match RIGHTS.iter().position(|known| *known == rights) {
            Some(at) => Ok(request.statuses[at]),
            None => Ok(rights.parse()?),
        }
    }

    /// The text of a refusal, for the requests whose refusals are listed here.
    pub(super) fn forbidden(&self, request: &Request) -> Option<Value> {
        let (verb, named, subresource) = match request.name {
            "list" => ("list", false, ""),
            "get" => ("get", true, ""),
            "watch.nm" => ("watch", true, ""),
            "status" => ("get", true, "/status"),
            _ => return None,
        };
        let (resource, name, group, suffix) = if request.ask.path.contains("/widgets") {
            ("widgets", "w-00", "conf.example.com", ".conf.example.com")
        } else {
            ("pods", "pod-00", "", "")
        };
        let quoted = if named { format!(" \"{name}\"") } else { String::new() };
        let user = self.who.split_once(" [")?.0.replace('<', "&lt;").replace('>', "&gt;");
        let message = format!(
            "{resource}{suffix}{quoted} is forbidden: \
             User \"{user}\" cannot {verb} resource \"{resource}{subresource}\" in API group \"{group}\" \
             in the namespace \"conf\""
        );
        let mut details = json!({"kind": resource});
        if named {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Some(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Forbidden", "details": details, "code": 403,
        }))
    }

    /// A user who is not in the table: name, certificate, headers.
    pub(super) fn forger(row: &'static str) -> Result<Self> {
        let mut parts = row.split('|').map(|part| part.trim_matches(' '));
        let name = parts.next().context("no name")?;
        let certificate = parts.next().filter(|file| !file.is_empty());
        Ok(Self { name, certificate, headers: parts.filter_map(split).collect(), who: "", rights: ["", ""] })
    }

    pub(super) fn shows(&self, header: &str) -> bool {
        self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(header))
    }

    /// Whether a gateway need not forward their requests: `Connection` names headers that determine the user.
    pub(super) fn may_be_refused(&self) -> bool {
        let names = |(name, value): &(String, String)| name == "connection" && value.contains("impersonate-");
        self.headers.iter().any(names)
    }

    pub(super) fn impersonates(&self) -> bool {
        self.headers.iter().any(|(name, _)| name.starts_with("impersonate-"))
    }

    /// Whether they have neither a certificate nor a token, but a header that upstream may interpret.
    pub(super) fn is_left_to_upstream(&self) -> bool {
        self.certificate.is_none() && self.shows("authorization") && self.is_anonymous()
    }

    /// Whether they have a certificate, their own or that of their front proxy.
    pub(super) fn is_verified(&self) -> bool {
        self.certificate.is_some()
    }

    pub(super) fn is_anonymous(&self) -> bool {
        self.who.starts_with("system:anonymous ")
    }

    /// The connections of this user to a server or a gateway; both have the same authority.
    pub(super) fn calls(&self, base: &str, certificates: &Certificates, how: Protocol) -> Result<Caller> {
        Ok(Caller { endpoint: self.endpoint(base, certificates, how)?, headers: self.headers.clone() })
    }

    fn endpoint(&self, base: &str, certificates: &Certificates, how: Protocol) -> Result<Endpoint> {
        let certificate = self.certificate.map(|file| certificates.file(&format!("{file}.crt")));
        let (authority, certificate) = (certificates.file("ca.crt"), certificate.as_deref().map(Path::new));
        Endpoint::showing(base, Path::new(&authority), certificate, how)
    }
}

impl Callers {
    pub(super) fn new<'a>(
        users: impl Iterator<Item = &'a User>,
        base: &str,
        certificates: &Certificates,
        how: Protocol,
    ) -> Result<Self> {
        let mut endpoints = HashMap::new();
        for user in users {
            if let Entry::Vacant(vacant) = endpoints.entry(user.certificate) {
                vacant.insert(user.endpoint(base, certificates, how)?);
            }
        }
        Ok(Self(endpoints))
    }

    pub(super) async fn send(&self, user: &User, ask: &Ask) -> Result<Answer> {
        let endpoint = self.0.get(&user.certificate).context("a user of these")?.clone();
        Caller { endpoint, headers: user.headers.clone() }.send(ask).await
    }
}

impl Caller {
    pub(super) async fn send(&self, ask: &Ask) -> Result<Answer> {
        self.endpoint.send(&self.with_headers(ask)).await
    }

    /// The head of the response; the body is still to be read.
    pub(super) async fn open(&self, ask: &Ask) -> Result<Response<Incoming>> {
        self.endpoint.open(&self.with_headers(ask)).await
    }

    fn with_headers(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        ask.headers.extend(self.headers.iter().cloned());
        ask
    }
}
