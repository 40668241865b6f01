"""Lint, the ways of use, and what has to be refused."""

import helm_python as helm
import yaml

from chart import API_VERSIONS, FOLDER, ROOT, invalid, invalid_foreign, nested, one, render, ways_of_use

# From this severity on a finding is a warning.
WARNING = 2

# Values that the schema refuses, by the word of its message that names the place.
AGAINST_THE_SCHEMA = [
    ("replicaCout", 2, "replicaCout"),
    ("kind", "StatefulSet", "kind"),
    ("image.tags", "x", "tags"),
    ("image.digest", "sha256:12", "digest"),
    ("ports.https", 0, "https"),
    ("ports.admin", "9090", "admin"),
    ("config.color", "red", "color"),
    ("config.clients.mode", "open", "mode"),
    ("config.clients.identity", {}, "identity"),
    ("config.clients.identity", {"impersonation": {}, "frontProxy": {"certFile": "/c", "keyFile": "/k"}}, "identity"),
    ("config.clients.authentication.clientCaFile", "/x", "clientCaFile"),
    ("config.cache.exclude", ["Pods"], "exclude"),
    ("config.cache.history.age", "5 minutes", "age"),
    ("config.cache.idleTimeout", 10, "idleTimeout"),
    ("config.cache.history.bytes", "256MB", "bytes"),
    ("config.limits.connections", 0, "connections"),
    ("config.drain.timeout", "soon", "timeout"),
    ("config.listeners", [], "listeners"),
    ("rbac.resources", ["deployments/apps"], "resources"),
    ("rbac.scope", "namespace", "scope"),
    ("rbac.namespaces", ["a.b"], "namespaces"),
    ("service.internalTrafficPolicy", "Node", "internalTrafficPolicy"),
    ("podDisruptionBudget.minAvailable", "half", "minAvailable"),
    ("metrics.podMonitor.interval", "often", "interval"),
    ("commonLabels.a", 1, "commonLabels"),
    ("nodes.kind", "DaemonSet", "propertyName"),
    ("nodes.nodes", {"enabled": True}, "propertyName"),
    ("nodes.config.cache.scope", "node", "scope"),
    ("nodes.tolerations", {}, "tolerations"),
]

# Values that a template refuses, by words of the reason.
AGAINST_A_RULE = [
    ({"config": {"clients": {"mode": "trusted"}}}, "serves only clients on the same machine"),
    ({"kind": "DaemonSet", "config": {"clients": {"mode": "trusted"}}}, "no process on the node can reach it"),
    ({"kind": "Sidecar"}, "a sidecar serves its own pod"),
    ({"hostSocket": {"enabled": True}}, "cannot share a socket"),
    ({"hostNetwork": True}, "cannot share ports"),
    ({"tls": {"selfSigned": {"enabled": False}}}, "there is no certificate"),
    ({"tls": {"existingSecret": "a", "certManager": {"enabled": True, "issuerRef": {"name": "b"}}}}, "use one"),
    ({"tls": {"certManager": {"enabled": True}}}, "issuerRef.name is missing"),
    ({"configSecret": {"create": True}}, "configSecret.name is missing"),
    ({"peers": {"enabled": True}, "kind": "DaemonSet", "hostSocket": {"enabled": True}, "config": {"clients": {"mode": "trusted"}}},
     "cannot reach each other"),
    ({"peers": {"enabled": True}, "tls": {"selfSigned": {"enabled": False}},
      "config": {"listeners": [{"address": "0.0.0.0:8443", "tls": {"certFile": "/c", "keyFile": "/k"}}]}}, "know each other by the ca.crt"),
    (nested("nodes.enabled", True) | {"kind": "DaemonSet"}, "kind must be Deployment"),
    (nested("nodes.enabled", True) | nested("service.enabled", False), "reach the replicas by their Service"),
    ({"config": {"listeners": [{"address": "0.0.0.0:6443"}]}}, "no listener in config.listeners has port 8443"),
    ({"config": {"clients": {"mode": "delegated", "acceptHosts": ["gateway"]}}},
     "config.clients.acceptHosts is not allowed"),
    ({"kind": "Sidecar", "config": {"clients": {"mode": "trusted", "identity": {"impersonation": {}}}}},
     "config.clients.identity is not allowed"),
    ({"config": {"clients": {"mode": "delegated", "authentication": {"clientCAFile": "/ca.crt"}}}},
     "config.clients.identity is missing"),
    ({"config": {"admin": {"metricsAuthorization": "delegated"}}}, "config.admin.tls is missing"),
    ({"config": {"cache": {"prewarm": ["secrets"]}}}, "prewarm contains secrets"),
    ({"config": {"cache": {"exclude": ["pods"], "prewarm": ["pods"]}}}, "prewarm contains pods"),
    ({"rbac": {"namespaces": ["a"]}}, "set rbac.scope to namespaces"),
    ({"rbac": {"scope": "namespaces"}, "config": {"cache": {"prewarm": ["nodes"]}}}, "prewarm contains nodes"),
    ({"rbac": {"scope": "namespaces"}, "config": {"cache": {"scope": "cluster"}}}, "Roles do not suffice"),
    ({"config": {"cache": {"prewarm": [{"resource": "secrets", "namespaces": ["a"]}]}}}, "prewarm contains secrets"),
    ({"config": {"cache": {"staleWatches": "end"}}}, "config.cache.maxStaleness is missing"),
    ({"config": {"audit": {"mode": "blocking"}}}, "config.audit.path is missing"),
    ({"ports": {"admin": 8443}}, "are both 8443"),
    ({"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}, "scraped twice"),
    ({"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}, "use one"),
    ({"autoscaling": {"enabled": True, "minReplicas": 9}}, "is above autoscaling.maxReplicas"),
    ({"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0}}, "without a target"),
    ({"terminationGracePeriodSeconds": 25}, "raise it, or shorten the drain"),
    ({"terminationGracePeriodSeconds": 60, "config": {"drain": {"timeout": "1m"}}}, "raise it, or shorten the drain"),
]


def lint() -> list[str]:
    problems = []
    for name, values in ways_of_use().items():
        report = helm.lint(FOLDER, values, strict=True)
        found = [f"{one['path']}: {one['error']}" for one in report["messages"] if one["severity"] >= WARNING]
        problems += [f"{name}: {one}" for one in found]
    return problems


def ways_of_use_are_valid() -> list[str]:
    problems = []
    for version in API_VERSIONS:
        for name, values in ways_of_use().items():
            problems += [f"{name}: {one}" for one in invalid(render(values, version), version)]
    rendered = {name: render(values) for name, values in ways_of_use().items()}
    # That the validators can fail.
    wrong = nested("metrics.podMonitor", {"enabled": True, "relabelings": [{"sourceLabels": 1}]})
    broken = render(wrong | nested("podSecurityContext.runAsUser", "root"), API_VERSIONS[0])
    certificate = one(render(nested("tls.certManager", {"enabled": True, "issuerRef": {"name": "x"}})), "Certificate")
    certificate["spec"]["duration"] = 1
    taken = [objects for objects in (broken, [certificate]) if not invalid_foreign({"broken": objects})]
    if not invalid(broken, API_VERSIONS[0]) or taken:
        problems.append("a broken rendering is taken for a valid one")
    return problems + invalid_foreign(rendered)


def bad_values_are_refused() -> list[str]:
    cases = [(nested(path, value), word, "schema") for path, value, word in AGAINST_THE_SCHEMA]
    cases += [(values, words, "execution error") for values, words in AGAINST_A_RULE]
    problems = []
    for values, words, by in cases:
        try:
            render(values)
            problems.append(f"{values} is taken")
        except helm.HelmError as error:
            if words not in str(error) or by not in str(error):
                problems.append(f"{values} is refused for another reason: {error}")
    return problems


def manifests_of_the_tree() -> list[str]:
    """Objects of Kubernetes in config/."""
    problems = []
    for path in sorted((ROOT / "config").glob("*.yaml")):
        objects = [one for one in yaml.safe_load_all(path.read_text()) if one]
        objects = [one for one in objects if not one["apiVersion"].startswith("kube-fanout.io/") and one["kind"] != "Config"]
        problems += [f"{path.name}: {one}" for version in API_VERSIONS for one in invalid(objects, version)]
    return problems
