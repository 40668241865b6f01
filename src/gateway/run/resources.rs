//! Asks the API servers of a configuration whether they answer, and about the resources that it names.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    RunError, peers,
    rights::{self, Asker, Right, RightState},
    scopes::{self, Reach},
    trusting,
};
use crate::{
    cacher::{AGGREGATED, NO_SUCH_GROUP, NO_SUCH_RESOURCE, NOT_WATCHABLE},
    connector::{BuildError, Connector, TroubleKind, Usage, Verdict},
    peers::PeerTroubleKind,
    upstream::{Discovery, ResourceListWatch, ServedBy, Upstream},
};
use base::{
    apimachinery::{CollectionScope, Encoding, GroupResource, GroupVersionResource},
    config::{
        CacheConfig, CacheScope, ClientsConfig, Config, DEFAULT_EXCLUDE, FallbackConfig, IdentityConfig,
        MetricsAuthorization, PemFile, Prewarm, Problem, ServerAddress, UpstreamConfig, meant,
    },
    lifecycle::Tasks,
    telemetry::Chain,
};
use engine::reflector::has_watch_list;

/// What the API servers of a configuration have shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    pub problems: Vec<Problem>,
    /// What is worth knowing though it is no problem.
    pub notes: Vec<Problem>,
}

/// The servers in place of the address of a kubeconfig.
#[derive(Clone, Copy, Debug, Default)]
struct Listed<'a> {
    servers: &'a [ServerAddress],
    fallback: Option<&'a FallbackConfig>,
}

impl<'a> Listed<'a> {
    fn of(config: &'a Config) -> Self {
        Self { servers: &config.servers, fallback: config.fallback.as_ref() }
    }

    /// The field that has the address of a server, by its place among all.
    fn field(&self, index: usize) -> String {
        // With a fallback alone, the address of the kubeconfig is the first one.
        let others = self.servers.len().max(1);
        match index.checked_sub(others) {
            Some(index) => format!("upstream.fallback.servers[{index}]"),
            None if self.servers.is_empty() => "upstream.kubeconfig".to_owned(),
            None => format!("upstream.servers[{index}]"),
        }
    }
}

/// An API server that answers.
#[derive(Clone)]
struct Reached {
    connector: Connector,
    upstream: Upstream,
    /// The gateway's own, or that of the kubeconfig's context.
    namespace: String,
    asker: Asker,
}

/// Asks every API server of the configuration for its version, as the gateway does at its start, and whether the
/// gateway may do there what it has to do; and the upstream about the resources of `cache.prewarm` and `cache.exclude`
/// (those that it does not have, or that cannot be kept warm) and about the certificate of
/// `clients.identity.frontProxy`.
///
/// # Errors
/// There is no kubeconfig.
pub async fn look_up(config: &Config) -> Result<LookedUp, RunError> {
    let mut found = LookedUp::default();
    let upstream = found.reached("upstream.kubeconfig", &config.upstream, Listed::of(config)).await?;
    if let ClientsConfig::Delegated(delegated) = &config.clients {
        let reviews = [
            ("authentication", &delegated.authentication.reviews, rights::TOKEN_REVIEWS),
            ("authorization", &delegated.authorization.reviews, rights::ACCESS_REVIEWS),
        ];
        for (section, reviewer, right) in reviews {
            let reviewer = match reviewer {
                Some(reviewer) => {
                    found.reached(&format!("clients.{section}.kubeconfig"), reviewer, Listed::default()).await?
                }
                None => upstream.clone(),
            };
            if let Some(reviewer) = reviewer {
                found.require(&format!("clients.{section}"), &reviewer, &right).await;
            }
        }
    }
    if let Some(reached) = upstream {
        found.problems.extend(unusable_resources(config, reached.upstream.clone()).await);
        found.may_cache(config, &reached).await;
        found.asks_peers(config, &reached).await?;
        if let ClientsConfig::Delegated(delegated) = &config.clients
            && let Some(identity) = &delegated.identity
        {
            found.may_assert(identity, &reached).await;
        }
    }
    Ok(found)
}

impl LookedUp {
    /// The API server that a field leads to; `None` if there is none, which becomes a problem of the field.
    async fn reached(
        &mut self,
        field: &str,
        config: &UpstreamConfig,
        listed: Listed<'_>,
    ) -> Result<Option<Reached>, RunError> {
        let access = config.resolve().await.map_err(RunError::UpstreamConfig)?;
        let access = trusting(access, listed.fallback).await?;
        let connector = match Connector::to_servers(&access, listed.servers, listed.fallback, None) {
            Ok(connector) => connector,
            Err(error) => {
                self.problems.push(problem(field, unusable_access(config, &error)));
                return Ok(None);
            }
        };
        let upstream = Upstream::new(connector.clone());
        upstream.check_servers_once().await;
        let states = upstream.servers();
        for (index, state) in states.iter().enumerate() {
            if !matches!(state.state, Usage::InUse | Usage::Standby) {
                self.problems.push(problem(&listed.field(index), format!("{}: {}", state.server, state.error)));
            }
        }
        if !states.is_empty() && states.iter().all(|state| state.state != Usage::InUse) {
            return Ok(None);
        }
        upstream.probe_once().await;
        let mut is_reached = true;
        for trouble in upstream.troubles() {
            let error = if trouble.error.is_empty() { "no reason was given" } else { &trouble.error };
            let told = problem(field, format!("{}: {}: {error}", trouble.server, trouble.kind.advice()));
            // The gateway does without a version, as it does without any other document that it may not get.
            if trouble.kind == TroubleKind::Forbidden {
                self.notes.push(told);
            } else {
                self.problems.push(told);
                is_reached = false;
                // The others follow from the worst one.
                break;
            }
        }
        if !is_reached {
            return Ok(None);
        }
        let gateways = upstream.gateways_above();
        if gateways > 0 {
            let found = format!("a gateway answers there; the API server is behind {gateways} in all");
            self.notes.push(problem(field, found));
        }
        let asker = Asker::of(&upstream, config.user().as_deref()).await;
        Ok(Some(Reached { connector, upstream, namespace: access.default_namespace, asker }))
    }

    /// Lists and watches for the caches, and the documents that the gateway looks at for them.
    async fn may_cache(&mut self, config: &Config, reached: &Reached) {
        for (index, prewarm) in config.cache.prewarm.iter().enumerate() {
            let GroupResource { group, resource } = &prewarm.resource;
            for scope in prewarm.scopes() {
                for verb in ["list", "watch"] {
                    let right = Right::new(verb, group, resource).within(scope.namespace.as_deref());
                    self.require(&format!("cache.prewarm[{index}]"), reached, &right).await;
                }
            }
        }
        let missing = self.notes.len();
        for (right, effect) in rights::OF_DOCUMENTS {
            self.advise("upstream", reached, &right, effect).await;
        }
        let missing = &self.notes[missing..];
        let looks_for_itself = missing.is_empty();
        let reads_definitions = !missing.iter().any(|note| note.found.contains(rights::DEFINITIONS));
        if !reads_definitions {
            self.never_filled(&config.cache);
        }
        self.tell_scopes(&config.cache, reached, looks_for_itself).await;
        self.tell_watch_lists(&config.cache, &reached.upstream).await;
        if config.admin.metrics_authorization == MetricsAuthorization::Delegated {
            for right in [rights::TOKEN_REVIEWS, rights::ACCESS_REVIEWS] {
                self.require("admin.metricsAuthorization", reached, &right).await;
            }
        }
    }

    /// What will not be prewarmed by a gateway that may not read definitions.
    fn never_filled(&mut self, config: &CacheConfig) {
        let is_trusted = |group: &str| group.is_empty() || config.trusted_groups.iter().any(|it| it == group);
        for (index, prewarm) in config.prewarm.iter().enumerate() {
            if !is_trusted(&prewarm.resource.group) {
                let found = format!(
                    "{prewarm} is never filled, and the gateway never ready, unless it may get {}, or \
                     cache.trustedGroups has the group",
                    rights::DEFINITIONS
                );
                self.problems.push(problem(&format!("cache.prewarm[{index}]"), found));
            }
        }
    }

    /// What caches will cover, and which groups have to be trusted for that unless the gateway looks for itself.
    async fn tell_scopes(&mut self, config: &CacheConfig, reached: &Reached, looks_for_itself: bool) {
        let namespace = &reached.namespace;
        let Some(reach) = Reach::in_namespace(&reached.upstream, namespace).await else { return };
        if config.scope == CacheScope::Cluster {
            if !reach.namespace.is_empty() {
                let narrow = scopes::names(&reach.namespace);
                let found = format!(
                    "nothing is cached of {narrow}, which the gateway may list and watch in single namespaces only; \
                     write auto"
                );
                self.notes.push(problem("cache.scope", found));
            }
            return;
        }
        if !reach.namespace.is_empty() {
            let whole = scopes::names(&reach.cluster);
            let whole = if whole.is_empty() { "nothing".to_owned() } else { whole };
            let narrow = scopes::names(&reach.namespace);
            let until = if config.scope == CacheScope::Auto {
                ", until it may list and watch these in the cluster"
            } else {
                ""
            };
            let found = format!(
                "by the gateway's rights, a cache covers the cluster for {whole}; and single namespaces, such as \
                 {namespace:?}, for {narrow}{until}"
            );
            self.notes.push(problem("cache.scope", found));
        }
        let untrusted = reach.groups().into_iter().filter(|group| !config.trusted_groups.iter().any(|it| it == group));
        let untrusted: Vec<_> = untrusted.collect();
        if !looks_for_itself && !untrusted.is_empty() {
            let found = format!(
                "to cache resources of {0} without these rights, and if the API server itself serves them and their \
                 definitions do not change, write trustedGroups: [{0}]",
                untrusted.join(", ")
            );
            self.notes.push(problem("cache.trustedGroups", found));
        }
    }

    /// Whether upstream cannot do watch-lists of a resource of `cache.prewarm`, or of config maps, which every API
    /// server has.
    async fn tell_watch_lists(&mut self, config: &CacheConfig, upstream: &Upstream) {
        let of_prewarm = |prewarm: &Prewarm| (prewarm.resource.clone(), prewarm.scopes().swap_remove(0));
        let mut asked: Vec<_> = config.prewarm.iter().map(of_prewarm).collect();
        if asked.is_empty() {
            let config_maps = GroupResource { group: "".into(), resource: "configmaps".into() };
            asked.push((config_maps, CollectionScope::CLUSTER));
        }
        for (resource, scope) in asked {
            if lacks_watch_list(upstream, &resource, scope).await == Some(true) {
                let found = format!(
                    "the API server does not support watch-lists of {resource}, or something in between does not pass \
                     on the bookmark that ends them; some requests are forwarded then (the manual's chapter \
                     `old_upstreams`)"
                );
                self.notes.push(problem("upstream", found));
                // The others may be as slow to show it.
                return;
            }
        }
    }

    /// Whether peers can be told to be of the cluster, and what they answer. That they cannot be reached is no problem:
    /// at the first installation there are none yet.
    async fn asks_peers(&mut self, config: &Config, reached: &Reached) -> Result<(), RunError> {
        let field = "cache.peers";
        if config.cache.peers.is_none() {
            let effect = "without, a cluster that is replaced behind one address may go unnoticed";
            self.advise("upstream", reached, &rights::CLUSTER, effect).await;
            return Ok(());
        }
        self.require(field, reached, &rights::CLUSTER).await;
        let access = config.upstream.resolve().await.map_err(RunError::UpstreamConfig)?;
        let connect = |access: &_| Connector::new(access).map_err(RunError::Upstream);
        let found = match peers::connected(&config.cache, &access, &reached.upstream, connect).await {
            Ok(found) => found,
            Err(error) => {
                self.problems.push(problem(field, Chain(&error).to_string()));
                return Ok(());
            }
        };
        let standings = match found {
            Some(peers) => peers.ask_each().await,
            None => Vec::new(),
        };
        for (index, standing) in standings.into_iter().enumerate() {
            let Some(trouble) = standing.trouble else { continue };
            let because = if trouble.error.is_empty() { String::new() } else { format!(": {}", trouble.error) };
            let ca = config.cache.peers.as_ref().and_then(|peers| peers.ca.as_ref());
            let by = match (trouble.kind, ca) {
                (PeerTroubleKind::Unverified, Some(PemFile(file))) => format!(" with {}", file.display()),
                _ => String::new(),
            };
            let found = format!("{}: {}{by}{because}", standing.address, trouble.kind.in_words());
            let told = problem(&format!("{field}.addresses[{index}]"), found);
            let is_absent = matches!(trouble.kind, PeerTroubleKind::Unreachable | PeerTroubleKind::TimedOut);
            if is_absent { self.notes.push(told) } else { self.problems.push(told) }
        }
        Ok(())
    }

    /// What the gateway needs to name its clients to upstream.
    async fn may_assert(&mut self, identity: &IdentityConfig, reached: &Reached) {
        match identity {
            IdentityConfig::Impersonation => {
                for right in rights::OF_IMPERSONATION {
                    let effect = "clients that are not among those that it may impersonate are refused when forwarded";
                    self.advise("clients.identity.impersonation", reached, &right, effect).await;
                }
            }
            IdentityConfig::FrontProxy(config) => {
                let tasks = Tasks::new();
                let field = "clients.identity.frontProxy";
                match reached.connector.as_front_proxy(&config.files, config.headers.clone(), &tasks) {
                    Err(error) => self.problems.push(problem(field, Chain(&error).to_string())),
                    Ok(proxy) => {
                        for verdict in proxy.probe().await {
                            match verdict {
                                Verdict::Accepted => {}
                                Verdict::Refused(error) => self.problems.push(problem(field, error.to_string())),
                                Verdict::Doubtful(why) | Verdict::Undecided(why) => {
                                    let note = format!("not known whether the API server accepts it: {why}");
                                    self.notes.push(problem(field, note));
                                }
                            }
                        }
                    }
                }
                tasks.token().cancel();
            }
        }
    }

    /// A right without which the gateway does not work as configured.
    async fn require(&mut self, field: &str, reached: &Reached, right: &Right<'_>) {
        match right.ask(&reached.upstream, &reached.asker).await {
            RightState::Missing(why) => self.problems.push(problem(field, why)),
            RightState::Unknown(why) => self.notes.push(problem(field, why)),
            RightState::Granted => {}
        }
    }

    /// A right without which it does less.
    async fn advise(&mut self, field: &str, reached: &Reached, right: &Right<'_>, effect: &str) {
        if let RightState::Missing(why) = right.ask(&reached.upstream, &reached.asker).await {
            self.notes.push(problem(field, format!("{why}; {effect}")));
        }
    }
}

/// Time limit for reading what the server has, to suggest a name.
const SUGGESTION_MAX: Duration = Duration::from_secs(10);
/// The longest name of a group (RFC 1123), and a resource.
const NAME_MAX: usize = 2 * 253;

async fn unusable_resources(config: &Config, upstream: Upstream) -> Vec<Problem> {
    let discovery = Discovery::new(upstream.clone());
    let mut problems = Vec::new();
    let mut cacheable = None;
    for (place, name) in config.named_resources() {
        // An API server for custom resources alone has no events, and they are excluded by default.
        if DEFAULT_EXCLUDE.contains(&name.to_string().as_str()) {
            continue;
        }
        let mut found = match unusable(&upstream, &discovery, name).await {
            // What is not cached may be excluded.
            Ok(None) => continue,
            Ok(Some(NOT_WATCHABLE | AGGREGATED)) if place.starts_with("cache.exclude") => continue,
            Ok(Some(found)) => found.to_owned(),
            // The others would most likely fail alike, each after its time limit.
            Err(error) => {
                problems.push(problem(&place, format!("\"{name}\": the API server cannot be asked about it: {error}")));
                break;
            }
        };
        if [NO_SUCH_GROUP, NO_SUCH_RESOURCE].contains(&found.as_str()) {
            if cacheable.is_none() {
                // A suggestion is worth no long wait, and no long names.
                cacheable = Some(timeout(SUGGESTION_MAX, discovery.cacheable()).await.unwrap_or_default());
            }
            let known = cacheable.iter().flatten().map(|known| (&*known.group, &*known.resource));
            let known = known.filter(|(group, resource)| group.len() + resource.len() <= NAME_MAX);
            if let Some(meant) = meant(name, known) {
                found = format!("{found}; {meant} may be meant");
            }
        }
        problems.push(problem(&place, format!("\"{name}\": {found}")));
    }
    problems
}

/// Why no connection can be set up, with the user if it is about the credentials.
fn unusable_access(config: &UpstreamConfig, error: &BuildError) -> String {
    let is_address = matches!(error, BuildError::Address(_) | BuildError::Proxy(_) | BuildError::ServerName(_));
    match config.user().filter(|user| !is_address && !user.is_empty()) {
        Some(user) => format!("the user {user:?}: {}", Chain(error)),
        None => Chain(error).to_string(),
    }
}

fn problem(field: &str, found: String) -> Problem {
    Problem { field: field.to_owned(), found, allowed: String::new(), at: None }
}

/// Why it is no resource to cache.
///
/// # Errors
/// Upstream gave no usable answer: the error with its causes.
async fn unusable(
    upstream: &Upstream,
    discovery: &Discovery,
    name: &GroupResource,
) -> Result<Option<&'static str>, String> {
    let version = upstream.preferred_version(&name.group).await.map_err(|error| Chain(&error).to_string())?;
    let Some(version) = version else { return Ok(Some(NO_SUCH_GROUP)) };
    let resource = GroupVersionResource::new(&name.group, &version, &name.resource);
    let known = discovery.resource(&resource).await.map_err(|error| Chain(&error).to_string())?;
    Ok(match known {
        None => Some(NO_SUCH_RESOURCE),
        Some(resource) if resource.served_by == ServedBy::Another => Some(AGGREGATED),
        Some(resource) if !resource.is_watchable() => Some(NOT_WATCHABLE),
        Some(_) => None,
    })
}

/// Whether upstream cannot do watch-lists of a resource; `None` if it does not say.
async fn lacks_watch_list(upstream: &Upstream, resource: &GroupResource, scope: CollectionScope) -> Option<bool> {
    let version = upstream.preferred_version(&resource.group).await.ok()??;
    let resource = GroupVersionResource::new(&resource.group, &version, &resource.resource);
    let known = Discovery::new(upstream.clone()).resource(&resource).await.ok()??;
    let asked = ResourceListWatch::new(upstream.clone(), resource, scope, known.namespaced, Encoding::Json, None);
    has_watch_list(&asked).await.map(|has| !has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Response, StatusCode};
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use crate::connector::test_server::{TestServer, full};
    use base::config::Overrides;

    /// A server of pods, which denies what is in `denied`: `VERB RESOURCE`.
    async fn looked_up(fields: &str, denied: &'static [&'static str]) -> (Vec<String>, Vec<String>) {
        let server = TestServer::start(move |request| async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let resource =
                |name: &str| json!({"name": name, "namespaced": true, "kind": "", "verbs": ["list", "watch"]});
            // Secrets are excluded by default.
            let resources = ["pods", "secrets"].map(resource);
            let document = match path.as_str() {
                "/version" => json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"}),
                "/api/v1/namespaces/kube-system" => json!({"metadata": {"uid": "the uid"}}),
                "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
                // Of an agent that drops bookmarks.
                "/api/v1/namespaces/kube-fanout./pods" if denied.contains(&"bookmarks") => {
                    return Response::new(full(""));
                }
                "/api/v1" => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}),
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                    let mut review: Value = serde_json::from_slice(&body).unwrap();
                    let asked = &review["spec"]["resourceAttributes"];
                    let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
                    let is_denied = denied.contains(&format!("{} {}", text("verb"), text("resource")).as_str());
                    review["status"] = json!({"allowed": !is_denied, "reason": ""});
                    review
                }
                // Of an account with a Role.
                "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews" if denied.contains(&"list configmaps") => {
                    let rule = |group: &str, resource: &str| {
                        json!({"verbs": ["list", "watch"], "apiGroups": [group], "resources": [resource]})
                    };
                    let rules = [("", "configmaps"), ("", "pods"), ("apps", "deployments"), ("example.com", "widgets")];
                    let rules = rules.map(|(group, resource)| rule(group, resource));
                    let rules = json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false});
                    json!({"spec": {}, "status": rules})
                }
                _ => {
                    let mut answer = Response::new(full("404 page not found"));
                    *answer.status_mut() = StatusCode::NOT_FOUND;
                    return answer;
                }
            };
            Response::new(full(document.to_string()))
        })
        .await;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let cluster = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.config.cluster_url.to_string()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        });
        std::fs::write(&kubeconfig, cluster.to_string()).unwrap();
        let text = format!(
            "apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\nupstream: {{kubeconfig: '{}'}}\n{fields}",
            kubeconfig.display()
        );
        let config = Config::parse(&text, &Overrides::default()).unwrap();
        let LookedUp { problems, notes } = look_up(&config).await.unwrap();
        let lines = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect();
        (lines(problems), lines(notes))
    }

    #[tokio::test]
    async fn credentials_that_cannot_be_used_are_problems_of_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let made = |name: &str| {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let [cert, key] = ["crt", "key"].map(|kind| folder.path().join(format!("{name}.{kind}")));
            std::fs::write(&cert, made.cert.pem()).unwrap();
            std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
            [cert, key].map(|path| path.display().to_string())
        };
        let ([cert, _], [_, other]) = (made("one"), made("two"));
        let server = "https://127.0.0.1:1";
        for (user, expected) in [
            (
                json!({"exec": {"command": "/none", "interactiveMode": "Never"}}),
                "the user \"jane\": cannot start the credential plugin \"/none\"",
            ),
            (
                json!({"tokenFile": "/none/tok"}),
                "the user \"jane\": cannot use the token of the kubeconfig's user: cannot read the token file \
                 /none/tok",
            ),
            (
                json!({"client-certificate": cert, "client-key": other}),
                "the user \"jane\": cannot use the client certificate",
            ),
            (
                json!({"client-certificate": cert}),
                "the user \"jane\": cannot use the client certificate: the kubeconfig's user has client-certificate \
                 without its counterpart: add client-key",
            ),
        ] {
            let document = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "jane"}}],
                "users": [{"name": "jane", "user": user}],
            });
            std::fs::write(&kubeconfig, document.to_string()).unwrap();
            let upstream = UpstreamConfig { kubeconfig: Some(kubeconfig.clone()), context: None };
            let config = Config { upstream, ..Config::defaults(&Overrides::default()).unwrap() };
            let LookedUp { problems, .. } = look_up(&config).await.unwrap();
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert_eq!(problem.field, "upstream.kubeconfig");
            assert!(problem.found.contains(expected), "{problem}");
        }
    }

    #[tokio::test]
    async fn rights_without_which_nothing_works_are_problems() {
        let delegated = "clients: {mode: delegated, authentication: {clientCAFile: /ca}, \
                         identity: {impersonation: {}}}\ncache: {prewarm: [pods]}";
        assert_eq!(looked_up(delegated, &[]).await, (Vec::new(), Vec::new()));
        let denied = &["watch pods", "create tokenreviews", "create subjectaccessreviews"];
        let (problems, notes) = looked_up(delegated, denied).await;
        let not_let = "the API server does not let the gateway";
        assert_eq!(
            problems,
            [
                format!("clients.authentication: {not_let} create tokenreviews.authentication.k8s.io"),
                format!("clients.authorization: {not_let} create subjectaccessreviews.authorization.k8s.io"),
                format!("cache.prewarm[0]: {not_let} watch pods"),
            ]
        );
        assert_eq!(notes, [""; 0]);
        let (problems, _) = looked_up("cache: {prewarm: [pods]}", denied).await;
        assert_eq!(problems, [format!("cache.prewarm[0]: {not_let} watch pods")]);
        let (problems, _) = looked_up("admin: {metricsAuthorization: delegated}", denied).await;
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[tokio::test]
    async fn rights_without_which_less_works_are_notes() {
        let delegated =
            "clients: {mode: delegated, authentication: {clientCAFile: /ca}, identity: {impersonation: {}}}";
        let denied = &["list apiservices", "get customresourcedefinitions", "impersonate users", "impersonate groups"];
        let (problems, notes) = looked_up(delegated, denied).await;
        assert_eq!(problems, [""; 0]);
        for (note, (field, words)) in notes.iter().zip([
            ("upstream: ", "list apiservices.apiregistration.k8s.io; without, only the core group"),
            ("upstream: ", "get customresourcedefinitions.apiextensions.k8s.io; without, only resources"),
            ("clients.identity.impersonation: ", "impersonate users; clients that"),
            ("clients.identity.impersonation: ", "impersonate groups; clients that"),
        ]) {
            assert!(note.starts_with(field) && note.contains(words), "{note}");
        }
        assert_eq!(notes.len(), 4, "{notes:?}");
    }

    #[tokio::test]
    async fn watch_lists_that_do_not_end_are_told() {
        let (problems, notes) = looked_up("cache: {prewarm: [pods]}", &["bookmarks"]).await;
        assert_eq!(problems, [""; 0]);
        let told = "upstream: the API server does not support watch-lists of pods, or something in between";
        assert!(notes.len() == 1 && notes[0].starts_with(told), "{notes:?}");
    }

    #[tokio::test]
    async fn what_a_cache_covers_with_a_role_is_told() {
        let denied = &[
            "list configmaps",
            "watch deployments",
            "watch widgets",
            "list apiservices",
            "get customresourcedefinitions",
        ];
        let scope = "cache.scope: by the gateway's rights, a cache covers the cluster for pods; and single namespaces, \
                     such as \"default\", for configmaps, deployments.apps, widgets.example.com";
        for (fields, groups) in [
            ("", Some("apps, example.com")),
            ("cache: {trustedGroups: [apps]}", Some("example.com")),
            ("cache: {trustedGroups: [apps, example.com], scope: requested}", None),
        ] {
            let (problems, notes) = looked_up(fields, denied).await;
            assert_eq!(problems, [""; 0]);
            // Those about the documents come before.
            let told: Vec<_> = notes.iter().filter(|note| note.starts_with("cache.")).collect();
            assert!(told[0].starts_with(scope), "{told:?}");
            let groups = groups.map(|groups| format!("write trustedGroups: [{groups}]"));
            assert_eq!(told.len(), if groups.is_some() { 2 } else { 1 }, "{told:?}");
            assert!(groups.is_none_or(|groups| told[1].ends_with(&groups)), "{told:?}");
        }
        let (_, notes) = looked_up("cache: {scope: cluster}", denied).await;
        let of_scope: Vec<_> = notes.iter().filter(|note| note.starts_with("cache.")).collect();
        let expected = "cache.scope: nothing is cached of configmaps, deployments.apps, widgets.example.com";
        assert!(of_scope.len() == 1 && of_scope[0].starts_with(expected), "{notes:?}");
        for (trusted, count) in [("[]", 1), ("[apps]", 0)] {
            let prewarm = "prewarm: [{resource: replicasets.apps, namespaces: [default]}]";
            let (problems, _) = looked_up(&format!("cache: {{{prewarm}, trustedGroups: {trusted}}}"), denied).await;
            let is_told = |problem: &&String| problem.contains("is never filled") && problem.contains("trustedGroups");
            assert_eq!(problems.iter().filter(is_told).count(), count, "{problems:?}");
        }
    }

    #[tokio::test]
    async fn peers_are_asked_and_need_a_right() {
        let other = TestServer::start(|_| async { Response::new(full("{}")) }).await;
        let (absent, other) = ("http://127.0.0.1:1", other.config.cluster_url.to_string());
        let fields = format!("cache: {{peers: {{addresses: ['{absent}', '{other}']}}}}");
        let (problems, notes) = looked_up(&fields, &["get namespaces"]).await;
        let missing = "cache.peers: the API server does not let the gateway get namespaces kube-system";
        assert_eq!(problems[0], missing);
        let foreign =
            format!("cache.peers.addresses[1]: {}: what answers is not a gateway", other.trim_end_matches('/'));
        assert!(problems[1].starts_with(&foreign) && problems.len() == 2, "{problems:?}");
        let unreachable = format!("cache.peers.addresses[0]: {absent}: cannot connect to the peer: ");
        assert!(notes[0].starts_with(&unreachable) && notes.len() == 1, "{notes:?}");
    }

    #[tokio::test]
    async fn an_authority_that_does_not_verify_peers_is_a_problem() {
        let (peer, folder) =
            (TestServer::start_tls(|_| async { Response::new(full("{}")) }).await, tempfile::tempdir().unwrap());
        let (url, ca) = (peer.config.cluster_url.to_string(), folder.path().join("ca.crt"));
        std::fs::write(&ca, base::test_certificates::authority("another").pem()).unwrap();
        let fields = format!("cache: {{peers: {{addresses: ['{url}'], caFile: '{}'}}}}", ca.display());
        let (problems, notes) = looked_up(&fields, &[]).await;
        let told = format!(
            "cache.peers.addresses[0]: {}: the peer's certificate cannot be verified with {}: ",
            url.trim_end_matches('/'),
            ca.display()
        );
        assert!(problems.len() == 1 && problems[0].starts_with(&told), "{problems:?}");
        assert!(
            problems[0].contains("an authority that is not configured") && notes.is_empty(),
            "{problems:?} {notes:?}"
        );
    }
}
