//! Tables 1.1, 1.2 and 1.4 of the read path, selectors, unusual parameters and paths.

use std::collections::HashMap;

use anyhow::Result;
use serde_json::Value;

use crate::{
    Side,
    cases::{self, Case},
    client::version_of,
    gateway::Gateway,
    report::Tally,
    servers::Server,
    wire,
};

/// A collection to read, one of its objects, and a namespace's part of it if it is namespaced.
pub(crate) struct Collection {
    pub(crate) all: &'static str,
    pub(crate) part: &'static str,
    pub(crate) object: &'static str,
}

pub(crate) const BUILTIN: [Collection; 9] = [
    Collection { all: "/api/v1/pods", part: "/api/v1/namespaces/conf/pods", object: "pod-00" },
    Collection { all: "/api/v1/configmaps", part: "/api/v1/namespaces/conf/configmaps", object: "cm-00" },
    Collection { all: "/api/v1/secrets", part: "/api/v1/namespaces/conf/secrets", object: "secret-0" },
    Collection { all: "/api/v1/services", part: "/api/v1/namespaces/conf/services", object: "svc-0" },
    Collection { all: "/api/v1/nodes", part: "/api/v1/nodes", object: "node-0" },
    Collection { all: "/api/v1/namespaces", part: "/api/v1/namespaces", object: "conf" },
    Collection {
        all: "/apis/apps/v1/deployments",
        part: "/apis/apps/v1/namespaces/conf/deployments",
        object: "deploy-0",
    },
    Collection { all: "/apis/batch/v1/jobs", part: "/apis/batch/v1/namespaces/conf/jobs", object: "job-0" },
    Collection {
        all: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        part: "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        object: "admin",
    },
];

pub(crate) const CUSTOM: [Collection; 4] = [
    Collection {
        all: "/apis/conf.example.com/v1/widgets",
        part: "/apis/conf.example.com/v1/namespaces/conf/widgets",
        object: "w-00",
    },
    Collection {
        all: "/apis/conf.example.com/v1beta1/widgets",
        part: "/apis/conf.example.com/v1beta1/namespaces/conf/widgets",
        object: "w-00",
    },
    Collection { all: "/apis/conf.example.com/v1/zones", part: "/apis/conf.example.com/v1/zones", object: "z-0" },
    Collection {
        all: "/apis/conf.example.com/v1beta1/zones",
        part: "/apis/conf.example.com/v1beta1/zones",
        object: "z-0",
    },
];

/// For every collection: all combinations of version, match, limit and continue.
const GENERIC: &str = "
    = {c}?resourceVersion=0
    = {p}?resourceVersion=0
    = {c}?resourceVersion=0&limit=2
    = {c}?resourceVersion=0&resourceVersionMatch=NotOlderThan
    = {p}?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=3
    = {c}?resourceVersion={g}
    = {p}?resourceVersion={g}
    = {c}?resourceVersion={o}
    = {c}?resourceVersion={g}&resourceVersionMatch=NotOlderThan
    = {c}?resourceVersion={g}&limit=1000
    = {c}?resourceVersion={g}&limit=2
    = {p}?resourceVersion={g}&limit=1
    = {c}?resourceVersion={g}&limit=2&labelSelector=app
    = {c}?resourceVersion=0&limit=-1
    = {c}?resourceVersion=0&limit=0
    = {c}?resourceVersion=0&timeoutSeconds=5&allowWatchBookmarks=true&unknown=1
    = {c}/?resourceVersion=0
    ~ {c}?resourceVersion=0&pretty=true
    = {c}?resourceVersion=0&pretty=0
    = {c}?resourceVersion=0&pretty=abc
    ~ {c}?resourceVersion=0 | user-agent: curl/8.0
    ~ {c}?resourceVersion=0 | user-agent: Wget/1
    ~ {c}?resourceVersion=0 | user-agent: Mozilla/5.0
    = {c}?resourceVersion=0&pretty=false | user-agent: curl/8.0
    = {c}?resourceVersion=0 | accept: application/json
    = {c}?resourceVersion=0 | accept: */*
    = {c}?resourceVersion=0&resourceVersion=abc
    ~ {c}
    ~ {p}
    ~ {c}?limit=2
    ~ {p}?limit=1
    ~ {c}?resourceVersion=
    ~ {c}?resourceVersion=0 | accept: application/yaml
    ~ {c}?resourceVersion=0 | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    = {c}?resourceVersion=0 | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    ~ {c}?resourceVersion=0 | accept: text/html
    ~ {c}?resourceVersion=0 | accept: application/*
    ~ {c}?resourceVersion=0 | accept: application/yaml;q=0.5, application/json;q=0.9
    ~ {c}?resourceVersion=0 | accept: application/json;pretty=1
    ~ {c}?resourceVersion=abc
    ~ {c}?resourceVersion=-1
    ~ {c}?resourceVersion=18446744073709551616
    ~ {c}?resourceVersion=00
    ~ {c}?resourceVersion=0&resourceVersionMatch=Exact
    ~ {c}?resourceVersionMatch=Exact
    ~ {c}?resourceVersionMatch=NotOlderThan
    ~ {c}?resourceVersion={g}&resourceVersionMatch=foo
    ~ {c}?resourceVersion=0&sendInitialEvents=true
    ~ {c}?limit=abc
    ~ {c}?resourceVersion=0&limit=99999999999999999999
    ~ {c}?resourceVersion=0&timeoutSeconds=abc
    ~ {c}?resourceVersion=0&timeout=abc
    ~ {c}?resourceVersion=0&timeout=5s
    ~ {c}?continue=abc
    ~ {c}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJhXHUwMDAwIn0
    ~ {c}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9&limit=2
    ~ {c}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0
    ~ {c}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9&resourceVersion={g}
    ~ {c}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9&resourceVersionMatch=Exact
    ~ HEAD {c}
    ~ OPTIONS {c}
    ~ PUT {c}
    = {p}/{name}?resourceVersion=0
    = {p}/{name}?resourceVersion={g}
    = {p}/{name}?resourceVersion={o}
    = {p}/{name}/?resourceVersion=0
    ~ {p}/{name}?resourceVersion=0&pretty=true
    = {p}/{name}?resourceVersion=0&watch=1
    = {p}/{name}?resourceVersion=0&limit=abc&labelSelector=!!&fieldSelector=x
    ~ {p}/{name}?resourceVersion=0 | user-agent: curl/7
    = {p}/nope?resourceVersion=0
    ~ {p}/nope?resourceVersion=0&pretty=1
    ~ {p}/{name}
    ~ {p}/nope
    ~ {p}/{name}?resourceVersion=abc
    ~ {p}/{name}?export=1
    ~ {p}/{name}?export=0&resourceVersion=0
    ~ {p}/{name}?resourceVersion=0 | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    = {p}/{name}?resourceVersion=0 | accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io
    ~ {p}/a%2Fb?resourceVersion=0
    ~ {p}/%2E%2E?resourceVersion=0
    ~ {p}//?resourceVersion=0
    ~ {p}/{name}/nope?resourceVersion=0
    ~ {p}/{name}/status?resourceVersion=0
    ~ {p}/{name}/scale?resourceVersion=0
    ~ HEAD {p}/{name}?resourceVersion=0
    ~ OPTIONS {p}/{name}
    = {c}?resourceVersion=0&labelSelector=app=web
    = {c}?resourceVersion=0&labelSelector=app!=web
    = {c}?resourceVersion=0&labelSelector=app%3D%3Dweb,canary
    = {c}?resourceVersion=0&labelSelector=!canary
    = {c}?resourceVersion=0&labelSelector=app+in+(web,db),number+notin+(1,2,3)
    = {c}?resourceVersion=0&labelSelector=number>5
    = {c}?resourceVersion=0&labelSelector=number<3
    = {c}?resourceVersion=0&labelSelector=tier=
    = {c}?resourceVersion=0&labelSelector=tier+in+()
    = {c}?resourceVersion=0&labelSelector=color=red
    = {p}?resourceVersion=0&labelSelector=nothing=here
    = {c}?resourceVersion=0&labelSelector=
    ~ {c}?resourceVersion=0&labelSelector=a%3D%3D%3Db
    ~ {c}?resourceVersion=0&labelSelector=a+in
    ~ {c}?resourceVersion=0&labelSelector=!!
    ~ {c}?resourceVersion=0&labelSelector=-bad=x
    ~ {c}?resourceVersion=0&labelSelector=a=-bad-
    ~ {c}?resourceVersion=0&labelSelector=number>x
    ~ {c}?resourceVersion=0&labelSelector=,
    = {c}?resourceVersion=0&fieldSelector=
    = {c}?resourceVersion=0&fieldSelector=metadata.name={name}
    = {p}?resourceVersion=0&fieldSelector=metadata.name={name}
    = {p}?resourceVersion=0&fieldSelector=metadata.name={name}&limit=1
    = {p}?resourceVersion=0&fieldSelector=metadata.name=nope
    = {p}?resourceVersion=0&fieldSelector=metadata.name%3D%3D{name},metadata.name!=nope
    = {c}?resourceVersion=0&fieldSelector=metadata.name!={name}
    ~ {c}?resourceVersion=0&fieldSelector=metadata.namespace=conf
    ~ {c}?resourceVersion={g}&limit=1&fieldSelector=metadata.namespace=conf
    ~ {p}?resourceVersion=0&fieldSelector=metadata.namespace=other
    ~ {p}?resourceVersion=0&fieldSelector=metadata.name=a,metadata.name=b
    ~ {p}?resourceVersion={g}&fieldSelector=metadata.name={name}
    ~ {p}?resourceVersion={g}&limit=1&fieldSelector=metadata.name={name}
    ~ {p}?resourceVersion={g}&resourceVersionMatch=Exact&fieldSelector=metadata.name={name}
    ~ {c}?resourceVersion=0&fieldSelector=foo=bar
    ~ {c}?resourceVersion=0&fieldSelector=foo
    ~ {c}?resourceVersion=0&fieldSelector=metadata.name+in+(a)
    ~ {c}?resourceVersion=0&fieldSelector=,
    ~ {c}?resourceVersion=0&fieldSelector=metadata.name=a%5C
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1
    = {p}?watch=true&resourceVersion=0&timeoutSeconds=1&labelSelector=app=web
    = {c}?watch=1&resourceVersion={g}&timeoutSeconds=1
    = {c}?watch=1&resourceVersion={g}&timeoutSeconds=1&limit=1
    = {c}?watch=1&resourceVersion=99999999&timeoutSeconds=1
    > {c}?watch=1&resourceVersion=1&timeoutSeconds=1
    = {c}?watch&resourceVersion=0&timeoutSeconds=1
    = {c}?watch=no&resourceVersion=0&timeoutSeconds=1&pretty=true
    = {p}?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name={name}
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: application/json;stream=watch
    = {c}?watch=false&resourceVersion=0
    ~ {c}?watch=1&timeoutSeconds=1
    ~ {c}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name={name}
    ~ {c}?watch=1&resourceVersion=abc
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=abc
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&labelSelector=!!
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=foo=bar
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: application/yaml
    ~ {c}?watch=1&resourceVersion={g}&resourceVersionMatch=Exact&timeoutSeconds=1
    ~ {c}?watch=1&resourceVersion=0&resourceVersionMatch=NotOlderThan&timeoutSeconds=1
    ~ {c}?watch=1&resourceVersion={g}&continue=x&timeoutSeconds=1
    ~ HEAD {c}?watch=1&resourceVersion=0&timeoutSeconds=1
";

/// Representations that custom resources do not have.
const PROTOBUF: &str = "
    = {c}?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf
    = {c}?resourceVersion=0&limit=2 | accept: application/vnd.kubernetes.protobuf, application/json
    = {p}?resourceVersion=0&labelSelector=app=web | accept: application/vnd.kubernetes.protobuf
    = {p}?resourceVersion=0&fieldSelector=metadata.name={name} | accept: application/vnd.kubernetes.protobuf
    = {p}/{name}?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf
    = {p}/nope?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: application/vnd.kubernetes.protobuf;stream=watch
    = {c}?watch=1&resourceVersion={g}&timeoutSeconds=1 | accept: application/vnd.kubernetes.protobuf
";

/// Requests that only the current library supports.
const CURRENT: &str = "
    = {p}/nope?resourceVersion=0&pretty=1
    = {p}/{name}?resourceVersion=0 | user-agent: curl/7
    = {p}/{name}?resourceVersion=0&pretty=true
    = {c}?resourceVersion=0 | user-agent: Mozilla/5.0
    = {c}?resourceVersion=0 | user-agent: Wget/1
    = {c}?resourceVersion=0 | user-agent: curl/8.0
    = {c}?resourceVersion=0&pretty=true
    = {c}?resourceVersion={g}&resourceVersionMatch=Exact
    = {c}?resourceVersion={g}&resourceVersionMatch=Exact&limit=2
    = {p}?resourceVersion={g}&resourceVersionMatch=Exact&limit=1&labelSelector=color
    = {c}?resourceVersion={g}&resourceVersionMatch=NotOlderThan&limit=2
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true
    = {c}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true
    = {c}?watch=1&timeoutSeconds=1
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
    = {c}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
    = {c}?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=color=red
    = {c}?watch=1&resourceVersion={g}&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
    = {c}?watch=1&resourceVersion=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan
    = {c}?watch=1&resourceVersion=0&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan
    = {c}?watch=1&resourceVersion={g}&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan
    ~ {c}?watch=1&timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&sendInitialEvents=true
    ~ {c}?watch=1&resourceVersion=0&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=Exact
    ~ {c}?watch=1&resourceVersion=0&continue=x&timeoutSeconds=1
    ~ {c}?watch=1&resourceVersion={g}&timeoutSeconds=-1
    ~ {c}?watch=1&timeoutSeconds=99999999999999999999
";

/// Reads for which the server waits three seconds: not sent for every collection.
const SLOW: &str = "
    ~ {c}?resourceVersion=99999999
    ~ {c}?resourceVersion=99999999&resourceVersionMatch=NotOlderThan&limit=2
    ~ {p}/{name}?resourceVersion=99999999
";

/// Rows for individual resources.
const BUILTIN_ONLY: &str = "
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=node-1
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName=
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName!=node-1,status.phase=Running
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.restartPolicy=Never
    = /api/v1/pods?resourceVersion=0&fieldSelector=spec.schedulerName=default-scheduler
    = /api/v1/pods?resourceVersion=0&fieldSelector=status.phase=Pending
    = /api/v1/pods?resourceVersion=0&fieldSelector=status.phase!=Running
    = /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=status.podIP=10.1.0.3
    = /api/v1/namespaces/conf-b/pods?resourceVersion=0&fieldSelector=status.phase=Succeeded
    = /api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=spec.nodeName=node-2
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=spec.host=node-1
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=status.podIPs=
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=status.podIPs!=x
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=spec.serviceAccountName=default
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=spec.hostNetwork=false
    ~ /api/v1/pods?resourceVersion=0&fieldSelector=status.nominatedNodeName=
    = /api/v1/secrets?resourceVersion=0&fieldSelector=type=Opaque
    = /api/v1/secrets?resourceVersion=0&fieldSelector=type!=Opaque
    = /api/v1/nodes?resourceVersion=0&fieldSelector=spec.unschedulable=true
    = /api/v1/nodes?resourceVersion=0&fieldSelector=spec.unschedulable=false
    = /api/v1/namespaces?resourceVersion=0&fieldSelector=status.phase=Active
    = /api/v1/namespaces?resourceVersion=0&fieldSelector=status.phase=Terminating
    ~ /api/v1/nodes?resourceVersion=0&fieldSelector=metadata.namespace=
    ~ /apis/rbac.authorization.k8s.io/v1/clusterroles?resourceVersion=0&fieldSelector=metadata.namespace=
    ~ /apis/rbac.authorization.k8s.io/v1/clusterroles?resourceVersion=0&fieldSelector=metadata.namespace=x
    = /apis/batch/v1/jobs?resourceVersion=0&fieldSelector=status.successful=2
    = /apis/batch/v1/jobs?resourceVersion=0&fieldSelector=status.successful=0
    ~ /api/v1/services?resourceVersion=0&fieldSelector=spec.type=NodePort
    ~ /api/v1/services?resourceVersion=0&fieldSelector=spec.clusterIP=None
    > /api/v1/events?resourceVersion=0
    > /api/v1/events?resourceVersion=0&limit=2
    > /api/v1/events?fieldSelector=involvedObject.name=pod-01
    > /api/v1/events?fieldSelector=source=conf
    > /api/v1/events?watch=1&timeoutSeconds=1&resourceVersion=0
    > /apis/events.k8s.io/v1/events?fieldSelector=regarding.name=pod-01
    > /api/v1/nope?resourceVersion=0
    > /api/v1/nope
    > /api/v1/namespaces/conf/nope/x?resourceVersion=0
    > /apis/apps/v9/deployments?resourceVersion=0
    > /apis/nope/v1/things?resourceVersion=0
    > /apis/conf.example.com/v1/nope?resourceVersion=0
    > /apis/conf.example.com/v9/widgets?resourceVersion=0
    > /api/v1/Pods?resourceVersion=0
    > //api/v1/pods?resourceVersion=0
    > /api/v1//pods?resourceVersion=0
    ~ /api/v1/namespaces//pods?resourceVersion=0
    > /api/v1/namespaces/conf/../pods?resourceVersion=0
    = /api/v1/namespaces/unknown/pods?resourceVersion=0
    = /api/v1/namespaces/UPPER/pods?resourceVersion=0
    = /api/v1/namespaces/conf/pods/UPPER?resourceVersion=0
    > /api/v1/namespaces/conf/nodes?resourceVersion=0
    > /api/v1/namespaces/conf/nodes/node-0?resourceVersion=0
    > /api/v1/pods/pod-00?resourceVersion=0
    > /api/v1/componentstatuses?resourceVersion=0 | accept: application/yaml
    > /api
    > /apis
    > /api/v1
    > /apis/apps
    > /apis/apps/v1
    > /version
    > /healthz
    > /openapi/v2 | accept: application/json
    > /metrics/nope
    > /nope
    > /api/v1/namespaces/conf/pods/pod-00/log
    > /api/v1/namespaces/conf/pods/pod-00/status
    > /apis/apps/v1/namespaces/conf/deployments/deploy-0/scale
    > POST /api/v1/pods
    > DELETE /api/v1/namespaces/conf/pods/nope
    > PATCH /api/v1/namespaces/conf/pods/nope
    > TRACE /api/v1/pods
    = /api/v1/watch/pods?resourceVersion=0&timeoutSeconds=1
    = /api/v1/watch/namespaces/conf/pods?resourceVersion={g}&timeoutSeconds=1
    ~ /api/v1/watch/namespaces/conf/pods/pod-00?resourceVersion=0&timeoutSeconds=1
    ~ /api/v1/watch/namespaces/conf/pods/pod-00?resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name=x
    > /api/v1/pods?resourceVersion=0 | impersonate-user: somebody
    = /api/v1/pods?resourceVersion=0 | x-remote-user: outsider
    = /api/v1/pods?resourceVersion=0 | if-none-match: \"x\"
";

/// Custom resources with several versions.
const CUSTOM_ONLY: &str = "
    ~ HEAD /apis/conf.example.com/v1/widgets
    ~ OPTIONS /apis/conf.example.com/v1/widgets
    > /apis/conf.example.com/v1/nope?resourceVersion=0
    > /apis/conf.example.com/v9/widgets?resourceVersion=0
    > /apis/conf.example.com/v1/namespaces/conf/widgets/w-00/status
    > /apis/conf.example.com/v1/namespaces/conf/zones?resourceVersion=0
    > /apis/conf.example.com/v1/widgets/w-00?resourceVersion=0
    > /apis/conf.example.com/v1
    = /apis/conf.example.com/v1/namespaces/unknown/widgets?resourceVersion=0
    > /apis/conf.example.com/v1/widgets?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf
    > /apis/conf.example.com/v1/widgets?watch=1&resourceVersion=0&timeoutSeconds=1 | accept: application/vnd.kubernetes.protobuf;stream=watch
    ~ /apis/conf.example.com/v1/widgets?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf, application/json
    ~ /apis/conf.example.com/v1/widgets?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1
";

/// Fields that a definition makes selectable in one of its versions.
const SELECTABLE: &str = "
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.color=red
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.color!=red,metadata.namespace=conf
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.size=4
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.size=
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.on=true
    = /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.on=false
    = /apis/conf.example.com/v1/zones?resourceVersion=0&fieldSelector=spec.color=green
    = /apis/conf.example.com/v1/widgets?watch=1&timeoutSeconds=1&resourceVersion=0&fieldSelector=spec.color=red
    ~ /apis/conf.example.com/v1beta1/widgets?resourceVersion=0&fieldSelector=spec.color=red
    ~ /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=spec.text=x
    ~ /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=.spec.color=red
";

/// Every built-in type and custom resources.
pub(crate) async fn builtin(side: &Side) -> Result<Tally> {
    let mut cases = Vec::new();
    for collection in BUILTIN.iter().chain(&CUSTOM) {
        let values = values(side, collection).await?;
        cases.extend(cases::table(GENERIC, &values)?);
        if !collection.all.contains("conf.example.com") {
            cases.extend(cases::table(PROTOBUF, &values)?);
        }
        if side.server.has_watch_list {
            cases.extend(cases::table(CURRENT, &values)?);
        }
        if collection.object == "pod-00" {
            cases.extend(cases::table(SLOW, &values)?);
            cases.extend(cases::table(BUILTIN_ONLY, &values)?);
        }
    }
    cases.extend(cases::table(CUSTOM_ONLY, &HashMap::new())?);
    if side.server.has_watch_list {
        cases.extend(cases::table(SELECTABLE, &HashMap::new())?);
    }
    cases::compare_all(cases, &side.server.endpoint, &side.gateway, !side.server.has_watch_list).await
}

/// Those of these resources that have one of the namespace `conf`, about that alone.
pub(crate) async fn of_namespace(
    server: &Server,
    gateway: &Gateway,
    collections: impl Iterator<Item = &Collection>,
) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for collection in collections.filter(|collection| collection.all != collection.part) {
        let is_custom = collection.all.contains("conf.example.com");
        let values = values_at(server, gateway, collection, collection.part).await?;
        cases.extend(cases::table(GENERIC, &values)?);
        if !is_custom {
            cases.extend(cases::table(PROTOBUF, &values)?);
        }
        if server.has_watch_list {
            cases.extend(cases::table(CURRENT, &values)?);
        }
    }
    Ok(cases)
}

/// Custom resources on the current library.
pub(crate) async fn custom(side: &Side) -> Result<Tally> {
    let mut cases = Vec::new();
    for collection in &CUSTOM {
        let values = values(side, collection).await?;
        cases.extend(cases::table(GENERIC, &values)?);
        cases.extend(cases::table(CURRENT, &values)?);
        if collection.all == CUSTOM[0].all {
            cases.extend(cases::table(SLOW, &values)?);
        }
    }
    cases.extend(cases::table(CUSTOM_ONLY, &HashMap::new())?);
    cases.extend(cases::table(SELECTABLE, &HashMap::new())?);
    cases::compare_all(cases, &side.server.endpoint, &side.gateway, false).await
}

async fn values(side: &Side, collection: &Collection) -> Result<HashMap<&'static str, String>> {
    values_at(&side.server, &side.gateway, collection, collection.all).await
}

/// The values for rows about the collection at that path: all of it, or a namespace's part.
async fn values_at(
    server: &Server,
    gateway: &Gateway,
    collection: &Collection,
    path: &str,
) -> Result<HashMap<&'static str, String>> {
    gateway.warm(path).await?;
    // Custom resources are answered in JSON, once the gateway knows that they have no protobuf.
    gateway.warm_as(path, &format!("{}, application/json", wire::CONTENT)).await?;
    let list: Value = gateway.endpoint.json(&format!("{path}?resourceVersion=0")).await?;
    let object = server.endpoint.json(&format!("{}/{}", collection.part, collection.object)).await?;
    Ok(HashMap::from([
        ("c", path.to_owned()),
        ("p", collection.part.to_owned()),
        ("name", collection.object.to_owned()),
        ("g", version_of(&list).to_string()),
        ("o", version_of(&object).to_string()),
    ]))
}
