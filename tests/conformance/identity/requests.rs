//! The requests: the columns of the matrix.

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::Method;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::client::{Answer, Ask};

/// The rights of each user: `outsider` has only those of every authenticated user; `guest` is anonymous and may read
/// pods, as may `reader`; `staff` may also list config maps, which is all that a `clerk` may; `named` may read one pod
/// of a namespace; `wide` may read pods, and secrets of one name in all namespaces; `keeper` may do everything that
/// there are cells for.
pub(super) const RIGHTS: [&str; 9] =
    ["anonymous", "guest", "outsider", "reader", "clerk", "staff", "named", "wide", "keeper"];

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) name: &'static str,
    /// Whether memory answers it for every user who is allowed.
    pub(super) from_memory: bool,
    /// Whether memory may answer it, depending on what it holds.
    pub(super) from_either: bool,
    /// The statuses of the response, in the order of [`RIGHTS`].
    pub(super) statuses: [u16; RIGHTS.len()],
    pub(super) ask: Ask,
}

/// Name; `=` from memory, `>` from upstream, or `~` from either; the statuses in the order of [`RIGHTS`]; the request.
const BUILTIN: &str = "
    get      = 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods/pod-00?resourceVersion=0
    get.now  ~ 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods/pod-00
    absent   = 403 404 403 404 403 404 403 403 404 GET /api/v1/namespaces/conf/pods/absent?resourceVersion=0
    list     = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0
    list.now ~ 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods
    name     = 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00
    name.and = 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=spec.nodeName%3D,metadata.name%3Dpod-00&labelSelector=app
    name.2   = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-03
    name.bad > 403 400 403 400 403 400 403 403 400 GET /api/v1/namespaces/conf/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00&limit=abc
    watch    = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=1
    watch.nm = 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    watch.pt = 403 200 403 200 403 200 200 200 200 GET /api/v1/watch/namespaces/conf/pods/pod-00?resourceVersion=0&timeoutSeconds=1
    other.ns = 403 403 403 403 403 403 403 403 200 GET /api/v1/namespaces/other/pods?resourceVersion=0
    cluster  = 403 403 403 403 403 403 403 403 200 GET /api/v1/pods?resourceVersion=0
    clu.ns   = 403 403 403 403 403 403 403 403 200 GET /api/v1/pods?resourceVersion=0&fieldSelector=metadata.namespace%3Dconf
    name.all = 403 403 403 403 403 403 403 200 200 GET /api/v1/pods?resourceVersion=0&fieldSelector=metadata.name%3Dpod-00
    watch.na = 403 403 403 403 403 403 403 200 200 GET /api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dpod-00
    get.path > 403 403 403 403 403 403 403 404 404 GET /api/v1/pods/pod-00?resourceVersion=0
    w.path   > 403 403 403 403 403 403 403 404 404 GET /api/v1/watch/pods/pod-00?resourceVersion=0&timeoutSeconds=1
    w.secret > 403 403 403 403 403 403 403 404 404 GET /api/v1/watch/secrets/secret-0?resourceVersion=0&timeoutSeconds=1
    w.s.ns   = 403 403 403 403 403 403 403 200 200 GET /api/v1/watch/namespaces/conf/secrets/secret-0?resourceVersion=0&timeoutSeconds=1
    w.s.all  = 403 403 403 403 403 403 403 403 200 GET /api/v1/watch/secrets?resourceVersion=0&timeoutSeconds=1
    s.all    = 403 403 403 403 403 403 403 200 200 GET /api/v1/secrets?resourceVersion=0&fieldSelector=metadata.name%3Dsecret-0
    s.path   > 403 403 403 403 403 403 403 404 404 GET /api/v1/secrets/secret-0?resourceVersion=0
    w.all    = 403 403 403 403 403 403 403 403 200 GET /api/v1/watch/pods?resourceVersion=0&timeoutSeconds=1
    w.ns     = 403 200 403 200 403 200 403 403 200 GET /api/v1/watch/namespaces/conf/pods?resourceVersion=0&timeoutSeconds=1
    secrets  = 403 403 403 403 403 403 403 403 200 GET /api/v1/namespaces/conf/secrets?resourceVersion=0
    secret   = 403 403 403 403 403 403 403 200 200 GET /api/v1/namespaces/conf/secrets/secret-0?resourceVersion=0
    maps     = 403 403 403 403 200 200 403 403 200 GET /api/v1/namespaces/conf/configmaps?resourceVersion=0
    ns       = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf?resourceVersion=0
    ns.name  = 403 403 403 403 403 403 403 403 200 GET /api/v1/namespaces?resourceVersion=0&fieldSelector=metadata.name%3Dconf
    nodes    = 403 403 403 403 403 403 403 403 200 GET /api/v1/nodes?resourceVersion=0
    table    ~ 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0 | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    partial  = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0 | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    protobuf = 403 200 403 200 403 200 403 403 200 GET /api/v1/namespaces/conf/pods?resourceVersion=0 | accept: application/vnd.kubernetes.protobuf
    yaml     > 403 200 403 200 403 200 200 200 200 GET /api/v1/namespaces/conf/pods/pod-00?resourceVersion=0 | accept: application/yaml
    log      > 403 204 403 204 403 204 403 403 204 GET /api/v1/namespaces/conf/pods/pod-00/log
    status   > 403 403 403 403 403 403 403 403 200 GET /api/v1/namespaces/conf/pods/pod-00/status
    version  > 200 200 200 200 200 200 200 200 200 GET /version
    healthz  > 200 200 200 200 200 200 200 200 200 GET /healthz
    foo      > 403 403 403 403 403 403 403 403 403 GET /foo
    unknown  > 403 403 403 403 403 403 403 403 403 GET /api/v1/namespaces/conf/unknowns?resourceVersion=0
    no.group > 403 403 403 403 403 403 403 403 403 GET /apis/absent.example/v1/things?resourceVersion=0
    discover > 403 403 200 200 200 200 200 200 200 GET /api/v1
    groups   > 403 403 200 200 200 200 200 200 200 GET /apis
    create   > 403 403 403 403 403 403 403 403 201 POST /api/v1/namespaces/conf/configmaps?dryRun=All&fieldManager=conf
    delete   > 403 403 403 403 403 403 403 403 200 DELETE /api/v1/namespaces/conf/configmaps/cm-00?dryRun=All
    whoami   > 201 201 201 201 201 201 201 201 201 POST /apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All&fieldManager=conf
";

/// The same for custom resources.
const CUSTOM: &str = "
    get      = 403 200 403 200 403 200 200 200 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets/w-00?resourceVersion=0
    get.now  ~ 403 200 403 200 403 200 200 200 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets/w-00
    absent   = 403 404 403 404 403 404 403 403 404 GET /apis/conf.example.com/v1/namespaces/conf/widgets/absent?resourceVersion=0
    list     = 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0
    list.now ~ 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets
    name     = 403 200 403 200 403 200 200 200 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0&fieldSelector=metadata.name%3Dw-00
    name.2   = 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0&fieldSelector=metadata.name%3Dw-03
    name.bad > 403 400 403 400 403 400 403 403 400 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0&fieldSelector=metadata.name%3Dw-00&limit=abc
    name.sel > 403 400 403 400 403 400 403 403 400 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0&fieldSelector=metadata.name%3Dw-00&labelSelector=!!
    watch    = 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?watch=1&resourceVersion=0&timeoutSeconds=1
    watch.nm = 403 200 403 200 403 200 200 200 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dw-00
    other.ns = 403 403 403 403 403 403 403 403 200 GET /apis/conf.example.com/v1/namespaces/other/widgets?resourceVersion=0
    cluster  = 403 403 403 403 403 403 403 403 200 GET /apis/conf.example.com/v1/widgets?resourceVersion=0
    name.all = 403 403 403 403 403 403 403 200 200 GET /apis/conf.example.com/v1/widgets?resourceVersion=0&fieldSelector=metadata.name%3Dw-00
    watch.na = 403 403 403 403 403 403 403 200 200 GET /apis/conf.example.com/v1/widgets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=metadata.name%3Dw-00
    get.path > 403 403 403 403 403 403 403 404 404 GET /apis/conf.example.com/v1/widgets/w-00?resourceVersion=0
    w.path   > 403 403 403 403 403 403 403 200 200 GET /apis/conf.example.com/v1/watch/widgets/w-00?resourceVersion=0&timeoutSeconds=1
    w.all    ~ 403 403 403 403 403 403 403 403 200 GET /apis/conf.example.com/v1/watch/widgets?resourceVersion=0&timeoutSeconds=1
    zones    = 403 403 403 403 403 403 403 403 200 GET /apis/conf.example.com/v1/zones?resourceVersion=0
    table    ~ 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0 | accept: application/json;as=Table;v=v1;g=meta.k8s.io
    partial  = 403 200 403 200 403 200 403 403 200 GET /apis/conf.example.com/v1/namespaces/conf/widgets?resourceVersion=0 | accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io
    status   > 403 403 403 403 403 403 403 403 403 GET /apis/conf.example.com/v1/namespaces/conf/widgets/w-00/status
    version  > 200 200 200 200 200 200 200 200 200 GET /version
    healthz  > 200 200 200 200 200 200 200 200 200 GET /healthz
    foo      > 403 403 403 403 403 403 403 403 403 GET /foo
    unknown  > 403 403 403 403 403 403 403 403 403 GET /apis/conf.example.com/v1/namespaces/conf/unknowns?resourceVersion=0
    discover > 403 403 200 200 200 200 200 200 200 GET /apis/conf.example.com/v1
    delete   > 403 403 403 403 403 403 403 403 200 DELETE /apis/conf.example.com/v1/namespaces/conf/widgets/w-00?dryRun=All
";

/// All columns for a server with built-in types.
pub(super) fn builtin() -> Result<Vec<Request>> {
    parse(BUILTIN)
}

/// All columns for a server of custom resources.
pub(super) fn custom() -> Result<Vec<Request>> {
    parse(CUSTOM)
}

fn parse(table: &'static str) -> Result<Vec<Request>> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry"}, "data": {"a": "b"}});
    let whoami = whoami()?.body;
    let mut requests = Vec::new();
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (request, header) = row.split_once(" | ").map_or((row, None), |(request, header)| (request, Some(header)));
        let words: Vec<_> = request.split_whitespace().collect();
        let [name, mark, ref statuses @ .., method, path] = words[..] else { anyhow::bail!("row: {row}") };
        let statuses = statuses.iter().map(|status| status.parse()).collect::<Result<Vec<u16>, _>>()?;
        let statuses = statuses.try_into().map_err(|_| anyhow::anyhow!("statuses: {row}"))?;
        let mut ask = Ask { method: method.parse()?, ..Ask::get(path) };
        if let Some((name, value)) = header.and_then(|header| header.split_once(": ")) {
            ask = ask.header(name, value);
        }
        ask.body = match name {
            "create" => Bytes::from(map.to_string()),
            "whoami" => whoami.clone(),
            _ => Bytes::new(),
        };
        if !ask.body.is_empty() {
            ask = ask.header("content-type", "application/json");
        }
        requests.push(Request { name, from_memory: mark == "=", from_either: mark == "~", statuses, ask });
    }
    Ok(requests)
}

/// A CertificateSigningRequest: the server returns it with the name, the groups and the extras of its creator.
pub(super) fn whoami() -> Result<Ask> {
    let request = CertificateParams::new(Vec::new())?.serialize_request(&KeyPair::generate()?)?;
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "whoami"},
        "spec": {"request": BASE64.encode(request.pem()?),
            "signerName": "conf.example.com/none", "usages": ["client auth"]},
    });
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All&fieldManager=conf";
    Ok(Ask { method: Method::POST, body: Bytes::from(body.to_string()), ..Ask::get(path) })
}

/// The user that the server identified, in the format of the table of users.
pub(super) fn seen_as(answer: &Answer) -> Result<String> {
    if !(200..300).contains(&answer.status) {
        return Ok(answer.status.to_string());
    }
    let mut request: Value = serde_json::from_slice(&answer.body).context("whoami")?;
    let words =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let groups = words(&request["spec"]["groups"]);
    let mut who = format!("{} [{groups}]", request["spec"]["username"].as_str().unwrap_or_default());
    if let Some(extra) = request["spec"]["extra"].as_object_mut().filter(|extra| !extra.is_empty()) {
        who.push(' ');
        extra.sort_keys();
        who.push_str(&Value::Object(extra.clone()).to_string());
    }
    Ok(who)
}

/// The response without values that are generated for each: a dry run's uid and times.
pub(super) fn settled(mut answer: Answer) -> Answer {
    let Ok(text) = std::str::from_utf8(&answer.body) else { return answer };
    if !text.contains("\"whoami\"") && !text.contains("\"dry\"") {
        return answer;
    }
    let mut text = text.to_owned();
    // The first uid is that of the object, another one that of the user.
    for (field, times) in [("\"uid\":\"", 1), ("\"creationTimestamp\":\"", 1), ("\"time\":\"", usize::MAX)] {
        for (start, _) in text.clone().match_indices(field).take(times) {
            let start = start + field.len();
            let length = text[start..].find('"').unwrap_or_default();
            text.replace_range(start..start + length, &"*".repeat(length));
        }
    }
    // Servers since 1.32 add it themselves; for an older one it is an ordinary extra.
    if let Some(start) = text.find(",\"extra\":{\"authentication.kubernetes.io/credential-id\"")
        && let Some(length) = text[start..].find("]}").map(|end| end + 2)
    {
        text.replace_range(start..start + length, "");
    }
    answer.body = text.into();
    answer
}
