//! Requests that try to act as another user, or to be interpreted differently from what was authorized: through the
//! gateway they get the same responses as directly, over every kind of connection.

use anyhow::{Context, Result};
use futures_util::{StreamExt, stream};

use super::{
    gateways::{Asserts, Delegated},
    paths, raw, requests,
    users::{Callers, User},
};
use crate::{
    Side,
    certificates::Certificates,
    client::{Answer, Ask, Protocol},
    compare::{Rules, differences},
    gateway::{Gateway, Outcome, unique_agent},
    report::Tally,
};

/// The forgeries: name, certificate, headers.
const FORGERIES: &str = "
    asserted without a certificate | | x-remote-user: admin | x-remote-group: system:masters
    asserted in other letters | | X-ReMoTe-UsEr: admin | X-REMOTE-GROUP: system:masters | x_remote_user: admin
    asserted beside a token | | authorization: Bearer conformance-outsider | x-remote-user: admin | x-remote-group: system:masters
    asserted by a user | cert | x-remote-user: admin | x-remote-group: system:masters
    groups and extras of a user | cert-outsider | x-remote-group: system:masters | x-remote-extra-a: b | x-remote-uid: c
    asserted by a wrong certificate | cert-wrong | x-remote-user: admin | x-remote-group: system:masters
    asserted by another proxy | other-proxy | x-remote-user: admin | x-remote-group: system:masters
    asserted twice | front-proxy | x-remote-user: outsider | x-remote-user: admin
    asserted empty | front-proxy | x-remote-user: | x-remote-group: system:masters
    a proxy's own headers named in connection | front-proxy | x-remote-user: outsider | connection: x-remote-user, x-remote-group
    the assertion named in connection | cert-outsider | connection: x-remote-user, x-remote-group, x-remote-uid
    asserted and named in connection | cert-outsider | x-remote-user: admin | connection: x-remote-user
    an impersonation named in connection | cert-outsider | connection: impersonate-user, impersonate-group
    own impersonation named in connection | | authorization: Bearer conformance-impersonator | impersonate-user: reader | connection: impersonate-user
    the token named in connection | | authorization: Bearer conformance-outsider | connection: authorization
    a good token named in connection | | authorization: Bearer conformance-keeper | connection: close, Authorization
    the token named in connection, with a certificate | cert-outsider | authorization: Bearer conformance-keeper | connection: authorization
    impersonation by an anonymous client | | impersonate-user: admin
    impersonation by a user | | authorization: Bearer conformance-outsider | impersonate-user: admin
    impersonation of groups | | authorization: Bearer conformance-keeper | impersonate-user: keeper | impersonate-group: system:masters
    impersonation of extras | | authorization: Bearer conformance-impersonator | impersonate-user: reader | impersonate-extra-scopes: a
    impersonation, empty | | authorization: Bearer conformance-keeper | impersonate-user:
    impersonation by a bad token | | authorization: Bearer nonsense | impersonate-user: reader
    two tokens, the good one last | | authorization: Bearer conformance-outsider | authorization: Bearer conformance-keeper
    two tokens, the good one first | | authorization: Bearer conformance-keeper | authorization: Bearer nonsense
    two tokens in one | | authorization: Bearer conformance-outsider, Bearer conformance-keeper
    a token after a tab | | authorization: Bearer\tconformance-keeper
    a token and no scheme | | authorization: conformance-keeper
    a token of another scheme | | authorization: Token conformance-keeper
    a token for the proxy | | proxy-authorization: Bearer conformance-keeper
    a token in a cookie | | cookie: token=conformance-keeper
    a token in a subprotocol | | sec-websocket-protocol: base64url.bearer.authorization.k8s.io.Y29uZm9ybWFuY2Uta2VlcGVy, v4.channel.k8s.io
    another method | | authorization: Bearer conformance-outsider | x-http-method-override: DELETE
    forwarded for somebody | | authorization: Bearer conformance-outsider | x-forwarded-for: 127.0.0.1 | x-forwarded-user: admin | forwarded: for=127.0.0.1
";
/// The targets.
const WANTED: [&str; 3] = [
    "/api/v1/namespaces/conf/secrets/secret-0?resourceVersion=0",
    "/api/v1/namespaces/conf/pods?resourceVersion=0",
    "/api/v1/namespaces/conf/secrets/secret-0?resourceVersion=0\
     &token=conformance-keeper&access_token=conformance-keeper",
];
/// The number of concurrent requests on one HTTP/2 connection.
const AT_ONCE: usize = 48;

/// A forgery and its target.
struct Attempt {
    user: User,
    ask: Ask,
}

/// A way to the gateway.
struct Way<'a> {
    name: &'static str,
    base: &'a str,
    how: Protocol,
    gateway: &'a Gateway,
}

pub(crate) async fn run(side: &Side, certificates: &Certificates) -> Result<Tally> {
    let mut tally = Tally::default();
    let server = &side.server;
    let attempts = attempts()?;
    let users = attempts.iter().map(|attempt| &attempt.user);
    let callers = Callers::new(users.clone(), &server.endpoint.base, certificates, Protocol::Http1)?;
    let direct = attempts.iter().map(|attempt| answer(attempt, &callers));
    let direct: Vec<_> = stream::iter(direct).buffered(AT_ONCE).collect().await;
    let direct = direct.into_iter().collect::<Result<Vec<_>>>()?;
    let front = Delegated::start("gateway-forged", Asserts::FrontProxy, None, server, certificates).await?;
    let other = Delegated::start("gateway-forged-too", Asserts::Impersonation, None, server, certificates).await?;
    let ways = [
        Way { name: "plain", base: &front.plain, how: Protocol::Http1, gateway: &front.gateway },
        Way { name: "TLS", base: &front.secure, how: Protocol::Http1, gateway: &front.gateway },
        Way { name: "HTTP/2", base: &front.secure, how: Protocol::Http2, gateway: &front.gateway },
        Way { name: "impersonating, HTTP/2", base: &other.secure, how: Protocol::Http2, gateway: &other.gateway },
    ];
    for delegated in [&front, &other] {
        delegated.warm().await?;
    }
    for way in &ways {
        let callers = Callers::new(users.clone(), way.base, certificates, way.how)?;
        let tried = attempts.iter().zip(&direct).filter(|(attempt, _)| way.carries(attempt));
        let tried = tried.map(|(attempt, direct)| try_it(attempt, direct, way, &callers));
        let tallies: Vec<_> = stream::iter(tried).buffered(AT_ONCE).collect().await;
        for tried in tallies {
            tally.merge(tried.with_context(|| way.name)?);
        }
    }
    raw::run(server, &[&front, &other], certificates, &mut tally).await?;
    Ok(tally)
}

fn attempts() -> Result<Vec<Attempt>> {
    let mut attempts = Vec::new();
    for row in FORGERIES.lines().map(str::trim_start).filter(|row| !row.is_empty()) {
        let user = User::forger(row)?;
        let asks = WANTED.iter().map(|path| Ask::get(*path)).chain([requests::whoami()?]);
        attempts.extend(asks.map(|ask| Attempt { user: user.clone(), ask }));
    }
    for (row, path) in paths::all() {
        attempts.push(Attempt { user: User::forger(row)?, ask: Ask::get(path) });
    }
    Ok(attempts)
}

impl Way<'_> {
    /// A certificate requires TLS, and connection headers require HTTP/1.1.
    fn carries(&self, attempt: &Attempt) -> bool {
        !(self.base.starts_with("http:") && attempt.user.is_verified()
            || self.how == Protocol::Http2 && attempt.user.shows("connection"))
    }
}

async fn answer(attempt: &Attempt, callers: &Callers) -> Result<Answer> {
    Ok(requests::settled(callers.send(&attempt.user, &attempt.ask).await.with_context(|| attempt.what())?))
}

async fn try_it(attempt: &Attempt, direct: &Answer, way: &Way<'_>, callers: &Callers) -> Result<Tally> {
    let agent = unique_agent("forged");
    let ask = attempt.ask.clone().header("user-agent", &agent);
    let actual = callers.send(&attempt.user, &ask).await.with_context(|| attempt.what())?;
    let outcome = way.gateway.outcome(&agent).await?;
    let mut tally = Tally::default();
    tally.answered(&outcome);
    let found = gains(attempt, direct, &requests::settled(actual), &outcome);
    tally.compared(&format!("{}, {}", attempt.what(), way.name), found);
    Ok(tally)
}

/// The differences from the direct response. A refusal by the gateway with a reason is no difference for requests that
/// it need not forward.
fn gains(attempt: &Attempt, direct: &Answer, actual: &Answer, outcome: &Outcome) -> Vec<String> {
    let is_refused = outcome.by == "rejected" && (400..500).contains(&actual.status);
    if is_refused && attempt.user.may_be_refused() {
        return Vec::new();
    }
    let mut found = differences(Rules { any_order: true, any_version: true }, direct, actual);
    if outcome.by == "served" && !matches!(direct.status, 200 | 404) {
        found.push(format!("served, though directly it is {}", direct.status));
    }
    if let Some(last) = found.last_mut() {
        last.push_str(&format!("\n    ({} directly, {} by {outcome:?})", direct.status, actual.status));
    }
    found
}

impl Attempt {
    fn what(&self) -> String {
        format!("{}: {}", self.user.name, self.ask.path)
    }
}
