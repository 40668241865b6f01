"""What holds of every rendering: each toggle alone, all together, and pairs of them."""

import base64
import itertools
import json
import random

import helm_python as helm
import yaml
from cryptography import x509

from chart import (
    API_VERSIONS, CERTIFICATES, NAME, NAMESPACE, ROOT, invalid, invalid_foreign, layers, merged, nested, one, pod_of, render,
    ways_of_use,
)
from gateway import problems_of, text_of

DELEGATED_DAEMON = {"kind": "DaemonSet"}

# Each is one change of the defaults. Those that go with few others bring what they need.
ADMIN_TLS = nested("config.admin.tls", {"certFile": "/etc/kube-fanout/tls/tls.crt", "keyFile": "/etc/kube-fanout/tls/tls.key"})

TOGGLES = {
    "daemon": DELEGATED_DAEMON,
    "autoscaling": {"autoscaling": {"enabled": True, "targetWatchersPerReplica": 5000}},
    "no budget": nested("podDisruptionBudget.enabled", False),
    "budget in percent": nested("podDisruptionBudget.minAvailable", "50%"),
    "peers": nested("peers.enabled", True),
    "own peers": nested("config.cache.peers", {"addresses": ["https://gateways.example:8443"], "caFile": "/etc/kube-fanout/tls/ca.crt"}),
    "servers": nested("config.upstream.servers", ["10.0.0.1:6443", "10.0.0.2:6443"]),
    "no service": nested("service.enabled", False),
    "local": nested("service.internalTrafficPolicy", "Local"),
    "load balancer": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}, "labels": {"c": "d"}, "loadBalancerClass": "e/f",
                                  "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["10.0.0.0/8"]}},
    "containers": {"initContainers": [{"name": "first", "image": "i"}], "extraContainers": [{"name": "beside", "image": "i"}],
                   "annotations": {"z": "3"}},
    "resolver": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}},
    "policy": {"networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}], "egress": {"enabled": True}}},
    "traces": nested("config.tracing", {"endpoint": "collector.example:14317", "samplingRatePerMillion": 100}),
    "service monitor": nested("metrics.serviceMonitor", {"enabled": True, "interval": "30s", "additionalLabels": {"r": "p"}}),
    "pod monitor": nested("metrics.podMonitor", {"enabled": True, "namespace": "monitoring", "scrapeTimeout": "5s"}),
    "rules": nested("metrics.prometheusRule", {"enabled": True, "disabled": ["KubeFanoutReadsForwarded"]}),
    "dashboard": nested("metrics.dashboards", {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "Kubernetes"}}),
    "metrics service": nested("metrics.service.enabled", True),
    "cert-manager": nested("tls.certManager", {"enabled": True, "issuerRef": {"name": "i"}, "dnsNames": ["gateway.example"]}),
    "own certificate": nested("tls.existingSecret", "serving"),
    "config in a secret": nested("configSecret", {"create": True, "name": "gateway-config"}),
    "config of another": nested("configSecret.name", "theirs"),
    "account of another": nested("serviceAccount", {"create": False, "name": "theirs"}),
    "no rights": nested("rbac.create", False),
    "all resources": nested("rbac.resources", ["*"]),
    "namespaces": {"rbac": {"scope": "namespaces", "namespaces": ["a", "b"]},
                   "config": {"cache": {"prewarm": ["pods", {"resource": "configmaps", "namespaces": ["a"]}]}}},
    "long drain": nested("config.drain.timeout", "2m500ms"),
    "no sleep": nested("lifecycle.preStop.sleep.seconds", 0),
    "grace": {"terminationGracePeriodSeconds": 300},
    "no spread": {"topologySpreadConstraints": []},
    "own spread": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
                                                   "labelSelector": {"matchLabels": {"a": "b"}}}]},
    "names": {"nameOverride": "gw", "fullnameOverride": "g" * 63, "namespaceOverride": "elsewhere"},
    "labels": {"commonLabels": {"team": "a"}, "podLabels": {"team": "b", "x": "1"}, "podAnnotations": {"y": "2"}},
    "image": {"image": {"registry": "r.example", "tag": "9", "digest": "sha256:" + "a" * 64}, "imagePullSecrets": [{"name": "s"}]},
    "large numbers": nested("config.limits", {"connections": 1000000, "watchesPerClient": 10000000}),
    "extras": {"extraArgs": ["--context", "0"], "extraEnv": [{"name": "A", "value": "1"}],
               "volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
               "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}},
                                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}\n"]},
    "placing": {"priorityClassName": "p", "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {}}, "updateStrategy": {"type": "RollingUpdate"}, "resources": {}},
    "no contexts": {"podSecurityContext": {}, "securityContext": {}},
    "other ports": {"ports": {"https": 10443, "admin": 10090}, "service": {"port": 6443}},
    "own listener": nested("config.listeners", [{"address": "[::]:8443", "tls": {"certFile": "/etc/kube-fanout/tls/tls.crt",
                                                                                   "keyFile": "/etc/kube-fanout/tls/tls.key"}}]),
    "socket": merged(DELEGATED_DAEMON, nested("hostSocket.enabled", True)),
    "admin by TLS": merged(
        ADMIN_TLS,
        nested("metrics.podMonitor.endpoint", {"tlsConfig": {"insecureSkipVerify": True}}),
        nested("config.admin.metricsAuthorization", "delegated")),
    "host network": merged(DELEGATED_DAEMON, {"hostNetwork": True}),
    "trusted socket": merged(DELEGATED_DAEMON, nested("hostSocket.enabled", True), nested("config.clients.mode", "trusted")),
    "nodes": nested("nodes.enabled", True),
    "nodes with all": {"nodes": {
        "enabled": True, "hostSocket": {"enabled": True}, "ports": {"https": 11443},
        "tls": {"certManager": {"enabled": False}, "selfSigned": {"dnsNames": ["gateway.example"]}},
        "service": {"port": 6443, "annotations": {"a": "c"}}, "serviceAccount": {"create": False, "name": "theirs"},
        "config": {"cache": {"idleTimeout": "1m"}, "clients": {"awayTTL": "1m"}}, "networkPolicy": {"enabled": False},
        "volumes": [{"name": "w", "emptyDir": {}}], "volumeMounts": [{"name": "w", "mountPath": "/w"}], "tolerations": [],
        "memory": "1Gi"}},
}

# What a pair of toggles may be refused for.
RULES = ("use one", "scraped twice", "kind must be DaemonSet", "no listener in config.listeners",
         "peers.enabled: ", "nodes.enabled: ")


# How many of some thousand pairs are looked at, the same ones each time.
PAIRS = 300


def toggles() -> list[str]:
    every = {"all": merged(*(values for name, values in TOGGLES.items() if name not in EXCLUSIVE))}
    every["all, as daemon"] = merged(every["all"], TOGGLES["trusted socket"], nested("nodes.enabled", False))
    problems, rendered = [], {}
    # Each alone in one version, by turns; all together in every one.
    for (name, values), turn in zip((TOGGLES | every).items(), itertools.cycle(API_VERSIONS)):
        rendered[name] = objects = render(values)
        problems += [f"{name}: {problem}" for problem in laws(objects)]
        for version in API_VERSIONS if name in every else [turn]:
            problems += [f"{name}: {one}" for one in invalid(render(values, version), version)]
        for layer in filter(has_config, layers(objects)):
            problems += [f"{name}: {problem}" for problem in problems_of(text_of(layer))]
    return problems + invalid_foreign(rendered)


def pairs_of_toggles() -> list[str]:
    # Ordered: where both change one field, the second wins. A certificate made by Helm takes a tenth of a second.
    quick = merged(nested("tls.existingSecret", "serving"), nested("nodes.tls.existingSecret", "serving"))
    pairs = random.Random(1).sample(list(itertools.permutations(TOGGLES, 2)), PAIRS)
    problems, refused = [], 0
    for a, b in pairs:
        try:
            objects = render(merged(quick, TOGGLES[a], TOGGLES[b]))
        except helm.HelmError as error:
            refused += 1
            problems += [f"{a} + {b}: {error}"] * (not any(rule in str(error) for rule in RULES))
            continue
        problems += [f"{a} + {b}: {problem}" for problem in laws(objects)]
    if refused > PAIRS // 5:
        problems.append(f"{refused} of {PAIRS} pairs were refused: little was looked at")
    return problems


# Not together with all others.
EXCLUSIVE = {"peers", "pod monitor", "own certificate", "no service", "own listener", "config of another", "no rights", "socket", "daemon",
             "host network", "trusted socket", "no contexts"}


def laws(objects: list[dict]) -> list[str]:
    """What holds of every rendering that has a workload."""
    problems = [problem for layer in layers(objects) for problem in laws_of_layer(layer, objects)]
    names = [(item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    problems += [f"{name} is there twice" for name in set(names) if names.count(name) > 1]
    problems += [f"the name {name[-1]} is too long" for name in names if len(name[-1]) > 63 and "/" not in name[-1]
                 and "Role" not in name[1]]
    return problems


def laws_of_layer(objects: list[dict], rendered: list[dict]) -> list[str]:
    """What holds of the objects of one layer, among all that are rendered."""
    pod = pod_of(objects)
    problems = selectors(objects, pod, rendered) + references(objects, pod, rendered)
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if spec["terminationGracePeriodSeconds"] <= sleep + 20:
        problems.append("a pod is killed before its drain is over")
    # A configuration in an existing Secret is not known here.
    for probe in ("startupProbe", "livenessProbe", "readinessProbe") if has_config(objects) else ():
        is_tls = "tls" in yaml.safe_load(text_of(objects))["admin"]
        if (container[probe]["httpGet"]["scheme"] == "HTTPS") != is_tls:
            problems.append(f"{probe} asks by another scheme than the admin port has")
        if container[probe]["httpGet"]["port"] not in [port["name"] for port in container["ports"]]:
            problems.append(f"{probe} asks a port that is not there")
    return problems


def places() -> list[str]:
    """What these values say stands in the object, and the gateway stays the first container."""
    objects = render(merged(TOGGLES["load balancer"], TOGGLES["containers"], TOGGLES["resolver"]))
    spec, service = pod_of(objects)["spec"], one(objects, "Service")["spec"]
    plain = one(render({"service": {"externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["10.0.0.0/8"]}}), "Service")["spec"]
    on_node = pod_of(render(TOGGLES["host network"]))["spec"]
    facts = [
        ([one["name"] for one in spec["initContainers"] + spec["containers"]] == ["first", "kube-fanout", "beside"], "containers"),
        ((spec["dnsPolicy"], spec["dnsConfig"]) == ("None", {"nameservers": ["10.0.0.10"]}), "the resolver"),
        (on_node["dnsPolicy"] == "ClusterFirstWithHostNet", "the resolver on the node's network"),
        (one(objects, "Deployment")["metadata"]["annotations"] == {"z": "3"}, "annotations"),
        ((service["externalTrafficPolicy"], service["loadBalancerClass"]) == ("Local", "e/f"), "the load balancer"),
        (service["loadBalancerSourceRanges"] == ["10.0.0.0/8"], "its clients"),
        (not {"externalTrafficPolicy", "loadBalancerSourceRanges"} & set(plain), "a Service within the cluster"),
    ]
    return [f"{what} is not as the values say" for holds, what in facts if not holds]


def has_config(objects: list[dict]) -> bool:
    return any("gateway.yaml" in (item.get("data") or item.get("stringData") or {}) for item in objects)


def selectors(objects: list[dict], pod: dict, rendered: list[dict]) -> list[str]:
    """Every selector finds the gateway's pods, and those of a test or of another layer it does not."""
    labels = pod["metadata"]["labels"]
    others = [item["metadata"]["labels"] for item in rendered if item["kind"] == "Pod"]
    others += [pod_of(layer)["metadata"]["labels"] for layer in layers(rendered) if pod_of(layer) != pod]
    problems = []
    for item in objects:
        spec = item.get("spec", {})
        found = spec.get("selector") if item["kind"] != "ServiceMonitor" else None
        found = spec.get("podSelector", found)
        if not found:
            continue
        wanted = found.get("matchLabels", found)
        if not wanted.items() <= labels.items():
            problems.append(f"{item['kind']} selects {wanted}, and pods have {labels}")
        if any(wanted.items() <= other.items() for other in others):
            problems.append(f"{item['kind']} selects the pod of a test, or of another layer")
    monitor = one(objects, "ServiceMonitor")
    if monitor:
        wanted = monitor["spec"]["selector"]["matchLabels"]
        services = [item for item in rendered if item["kind"] == "Service"]
        chosen = [item for item in services if wanted.items() <= item["metadata"]["labels"].items()]
        if [item["metadata"]["name"] for item in chosen] != [monitor["metadata"]["name"] + "-metrics"]:
            problems.append(f"the ServiceMonitor selects {len(chosen)} Services")
        elif monitor["spec"]["endpoints"][0]["port"] not in [port["name"] for port in chosen[0]["spec"]["ports"]]:
            problems.append("the ServiceMonitor names a port that is not there")
    return problems


def references(objects: list[dict], pod: dict, rendered: list[dict]) -> list[str]:
    """Every reference leads to a rendered object, or to one that the values name as existing."""
    theirs = {"serving", "theirs"}
    there = {(item["kind"], item["metadata"]["name"]) for item in rendered}
    there |= {("Secret", item["spec"]["secretName"]) for item in rendered if item["kind"] == "Certificate"}
    spec = pod["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    problems = []
    for volume in volumes.values():
        for kind, key, field in [("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")]:
            name = volume.get(key, {}).get(field)
            if name and name not in theirs and (kind, name) not in there:
                problems.append(f"the volume {volume['name']} names the {kind} {name}, which is not rendered")
    mounts = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    if mounts != set(volumes):
        problems.append(f"mounted are {mounts}, volumes are {set(volumes)}")
    account = spec["serviceAccountName"]
    if account not in theirs and ("ServiceAccount", account) not in there:
        problems.append(f"the service account {account} is not rendered")
    for binding in (item for item in objects if item["kind"].endswith("RoleBinding")):
        if [subject["name"] for subject in binding["subjects"]] != [account]:
            problems.append(f"the rights are {binding['subjects']}'s, the pod runs as {account}")
        role = binding["roleRef"]
        if (role["kind"], role["name"], binding["metadata"].get("namespace")) not in [
            (item["kind"], item["metadata"]["name"], item["metadata"].get("namespace")) for item in objects
        ]:
            problems.append(f"{binding['kind']} {binding['metadata']} binds a role that is not rendered")
    service = next((item for item in objects if item["kind"] == "Service" and item["spec"].get("clusterIP") != "None"), None)
    if service and service["spec"]["ports"][0]["targetPort"] not in [port["name"] for port in spec["containers"][0]["ports"]]:
        problems.append("the Service leads to a port that is not there")
    return problems


def granted(values: dict, namespace: str | None = None) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of the ClusterRole, or of the Role in a namespace; of a rule with names, `resource/name`."""
    roles = [item for item in render(values) if item["kind"] in ("ClusterRole", "Role")]
    return set().union(*(rights_of(role) for role in roles if role["metadata"].get("namespace") == namespace))


def rights_of(role: dict) -> set[tuple[str, str, str]]:
    found = set()
    for rule in role["rules"]:
        names = [f"/{name}" for name in rule.get("resourceNames", [])] or [""]
        resources = [resource + name for resource in rule["resources"] for name in names]
        found.update(itertools.product(rule["apiGroups"], resources, rule["verbs"]))
    return found


def peers() -> list[str]:
    """Replicas reach each other: by an address that their certificate has, with its authority, and past a policy that lets in and
    out little else."""
    closed = {"networkPolicy": {"enabled": True, "clients": [{"ipBlock": {"cidr": "10.9.0.0/16"}}], "egress": {"enabled": True}}}
    problems = []
    for others, by_clients_service in ({}, True), (TOGGLES["other ports"], True), (TOGGLES["local"], False), (TOGGLES["no service"], False):
        objects = render(merged(closed, nested("peers.enabled", True), others))
        port = pod_of(objects)["spec"]["containers"][0]["ports"][0]["containerPort"]
        own = one(objects, "Deployment")["spec"]["selector"]
        spec = one(objects, "NetworkPolicy")["spec"]
        for direction, peer in (("ingress", "from"), ("egress", "to")):
            rule = {"ports": [{"port": port, "protocol": "TCP"}], peer: [{"podSelector": own}]}
            if rule not in spec[direction]:
                problems.append(f"{direction} among replicas is not allowed: {spec[direction]}")
        found = yaml.safe_load(text_of(objects))["cache"]["peers"]
        services = [item for item in objects if item["kind"] == "Service"]
        # Ready replicas are asked first.
        services.sort(key=lambda service: service["spec"].get("publishNotReadyAddresses", False))
        if not by_clients_service:
            services = services[-1:]
        hosts = [f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc" for service in services]
        ports = [service["spec"]["ports"][0]["port"] for service in services]
        if found["addresses"] != [f"https://{host}:{port}" for host, port in zip(hosts, ports)]:
            problems.append(f"peers are asked at {found['addresses']}")
        if [service["spec"].get("publishNotReadyAddresses", False) for service in services] != [False, True][-len(services):]:
            problems.append("replicas that are not ready cannot be found")
        if any(service["spec"].get("clusterIP") == "None" or service["spec"]["ports"][0]["targetPort"] != "https" for service in services):
            problems.append("the address of a Service does not lead to a random replica")
        secret = next(item for item in objects if item["kind"] == "Secret")
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
        mount = next(one["mountPath"] for one in pod_of(objects)["spec"]["containers"][0]["volumeMounts"] if one["name"] == "kube-fanout-tls")
        folder, file = found["caFile"].rsplit("/", 1)
        if not set(hosts) <= set(names) or folder != mount or file not in secret["data"]:
            problems.append(f"peers cannot be verified: {found['caFile']}, {names}")
    without = one(render(closed), "NetworkPolicy")["spec"]
    if any("podSelector" in peer for rule in without["ingress"] for peer in rule.get("from", [])):
        problems.append("without peers, replicas are let in")
    return problems


# Of the replicas alone: values that change nothing on nodes.
OF_REPLICAS = (
    "autoscaling", "budget in percent", "peers", "own peers", "servers", "local", "load balancer", "containers", "traces",
    "own certificate", "config in a secret", "config of another", "account of another", "all resources", "long drain",
    "own spread", "large numbers", "extras", "placing", "admin by TLS", "own listener",
)


def tree() -> list[str]:
    """With `nodes.enabled`: the gateways on nodes reach the replicas past both policies, and know them. Nothing else of the
    replicas is theirs."""
    on_nodes = TOGGLES["nodes"]
    policy = {"enabled": True, "clients": [{"ipBlock": {"cidr": "10.9.0.0/16"}}], "egress": {"enabled": True}}
    problems = []

    def expect(what: str, found, wanted) -> None:
        if found != wanted:
            problems.append(f"{what}: {found}, not {wanted}")

    replicas, nodes = layers(render(merged(on_nodes, {"networkPolicy": policy}, TOGGLES["other ports"])))
    above, below = one(replicas, "Deployment")["spec"]["selector"], one(nodes, "DaemonSet")["spec"]["selector"]
    components = [selector["matchLabels"]["app.kubernetes.io/component"] for selector in (above, below)]
    expect("components", components, ["gateway", "node"])
    port = [{"port": 10443, "protocol": "TCP"}]
    into, out_of = one(replicas, "NetworkPolicy")["spec"]["ingress"], one(nodes, "NetworkPolicy")["spec"]["egress"]
    expect("nodes are let in", {"ports": port, "from": [{"podSelector": below}]} in into, True)
    expect("nodes may leave", {"ports": port, "to": [{"podSelector": above}]} in out_of, True)
    left_for = [[each["port"] for each in rule["ports"]] for rule in out_of]
    expect("nodes may reach the API server", [443, 6443] in left_for, True)
    config = next(item for item in nodes if item["kind"] == "ConfigMap" and "gateway.yaml" in item["data"])["data"]
    cluster = yaml.safe_load(config["kubeconfig"])["clusters"][0]["cluster"]
    expect("the replicas' address", cluster["server"], f"https://{NAME}.{NAMESPACE}.svc:6443")
    upstream = yaml.safe_load(config["gateway.yaml"])["upstream"]
    expect("it is used", upstream, {"kubeconfig": "/etc/kube-fanout/config/kubeconfig"})
    expect("watches of all nodes", yaml.safe_load(text_of(replicas))["limits"], {"watchesPerClient": 100000})
    limits = merged(on_nodes, nested("config.limits.watchesPerClient", 5))
    expect("watches as given", yaml.safe_load(text_of(render(limits)))["limits"], {"watchesPerClient": 5})
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    for values, source in (({}, {"configMap": {"name": f"{NAME}-client", "items": items}}),
                           (TOGGLES["own certificate"], {"secret": {"secretName": "serving", "items": items}}),
                           (TOGGLES["cert-manager"], {"secret": {"secretName": f"{NAME}-tls", "items": items}})):
        objects = render(merged(on_nodes, values))
        spec = pod_of(layers(objects)[1])["spec"]
        expect("the authority", spec["volumes"][-1], {"name": "kube-fanout-replicas"} | source)
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        expect("its file", f"{mounts['kube-fanout-replicas']}/ca.crt", cluster["certificate-authority"])
        issued = [item["metadata"]["name"] for item in objects if item["apiVersion"] == CERTIFICATES]
        expect("certificates", issued, [NAME, f"{NAME}-node"] * (values == TOGGLES["cert-manager"]))
    elsewhere = layers(render(merged(on_nodes, nested("nodes.config.upstream.kubeconfig", "/other/kubeconfig"))))[1]
    volumes = [volume["name"] for volume in pod_of(elsewhere)["spec"]["volumes"]]
    expect("volumes for another upstream", volumes, ["kube-fanout-config", "kube-fanout-tls"])
    followed = {resource for _, resource, verb in rights_of(one(nodes, "ClusterRole")) if verb == "watch"}
    expect("what nodes follow", followed, {"pods", "nodes", "namespaces"})
    # Certificates are made anew by each rendering.
    plain = merged(on_nodes, nested("nodes.tls.existingSecret", "of-nodes"))
    wanted = layers(render(plain))[1]
    for name in OF_REPLICAS:
        found = layers(render(merged(plain, TOGGLES[name])))[1]
        if name in ("own certificate", "own listener"):
            volumes = pod_of(found)["spec"]["volumes"]
            volumes[:] = pod_of(wanted)["spec"]["volumes"]
        changed = [item["kind"] for item, other in itertools.zip_longest(found, wanted) if item != other]
        problems += [f"{name} changes the {', '.join(map(str, changed))} of nodes"] * bool(changed)
    return problems


def roles() -> list[str]:
    """With `rbac.scope: namespaces`: in each namespace what can be read there, in the cluster what the mode cannot do without."""
    reviews = {("authentication.k8s.io", "tokenreviews", "create"), ("authorization.k8s.io", "subjectaccessreviews", "create")}
    pods = {("", "pods", "list"), ("", "pods", "watch")}
    known = {("", "namespaces/kube-system", "get")}
    logs = [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]
    two = {"rbac": {"scope": "namespaces", "namespaces": ["a", "b"], "resources": ["pods", "nodes"]}}
    sidecar = {"kind": "Sidecar", "config": {"clients": {"mode": "trusted"}}, "rbac": {"resources": ["pods", "nodes"]}}
    # values, the namespaces, the rights in each of them, and in the cluster
    cases = [
        (two, ["a", "b"], pods, reviews),
        (merged(two, nested("rbac.extraRules", logs)), ["a", "b"], pods | {("", "pods/log", "get")}, reviews),
        (merged(two, nested("rbac.namespaces", [])), [NAMESPACE], pods, reviews),
        (merged(two, nested("rbac.resources", []), TOGGLES["servers"]), [], set(), reviews | known | {("", "namespaces/kube-system", "list")}),
        (merged(two, nested("peers.enabled", True)), ["a", "b"], pods, reviews | known),
        (merged(two, nested("rbac.resources", ["*"])), ["a", "b"], {("*", "*", "list"), ("*", "*", "watch")}, reviews),
        (merged(two, nested("config.clients.identity.impersonation", {})), ["a", "b"], pods,
         reviews | {("", "users", "impersonate"), ("", "groups", "impersonate")}),
        (sidecar, [NAMESPACE], pods, set()),
        (merged(sidecar, nested("config.cache.prewarm", [{"resource": "configmaps", "namespaces": ["c"]}])), [NAMESPACE],
         pods | {("", "configmaps", "list"), ("", "configmaps", "watch")}, set()),
    ]
    problems = []
    for values, namespaces, in_each, in_cluster in cases:
        found = [item["metadata"]["namespace"] for item in render(values) if item["kind"] == "Role"]
        problems += [f"{values}: Roles in {found}"] * (found != namespaces)
        problems += [f"{values}: {sorted(granted(values, one) ^ in_each)} in {one}" for one in namespaces if granted(values, one) != in_each]
        problems += [f"{values}: {sorted(granted(values) ^ in_cluster)}"] * (granted(values) != in_cluster)
    # Of the default resources, a Role has just those with a namespace.
    served = json.loads((ROOT / "tests/data/golden/upstream/discovery-apis.json").read_text())["items"]
    served += json.loads((ROOT / "tests/data/golden/upstream/discovery-api.json").read_text())["items"]
    without = {(group["metadata"].get("name", ""), resource["resource"]) for group in served for version in group["versions"]
               for resource in version["resources"] if resource["scope"] == "Cluster"}
    followed, in_role = ({(group, resource) for group, resource, verb in rights if verb == "watch"}
                         for rights in (granted({}), granted(nested("rbac.scope", "namespaces"), NAMESPACE)))
    if in_role != followed - without:
        problems.append(f"a Role grants {in_role ^ (followed - without)}, by whether they have a namespace")
    # What the gateway is told: to cache what the Roles grant, and which groups it need not look at.
    cache = yaml.safe_load(text_of(render(merged(two, TOGGLES["namespaces"]))))["cache"]
    if cache["prewarm"] != [{"resource": "pods", "namespaces": ["a", "b"]}, {"resource": "configmaps", "namespaces": ["a"]}]:
        problems.append(f"prewarmed is {cache['prewarm']}")
    unknown = set(cache["trustedGroups"]) - {group["metadata"].get("name") for group in served}
    if unknown or "apps" not in cache["trustedGroups"]:
        problems.append(f"trusted are {cache['trustedGroups']}")
    given = yaml.safe_load(text_of(render(merged(two, nested("config.cache.trustedGroups", ["example.com"])))))["cache"]
    if given["trustedGroups"] != ["example.com"] or "trustedGroups" in text_of(render({})):
        problems.append("trusted groups are not those of the values")
    test = one(render(merged(two, nested("service.enabled", True))), "Pod")["spec"]["containers"][0]["args"][0]
    if "/api/v1/namespaces/a/pods?" not in test:
        problems.append("the pod of helm test asks for what it may not read")
    return problems


def rights() -> list[str]:
    """Exactly what a mode needs, and the resources that are listed."""
    always = {
        ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
        ("apiregistration.k8s.io", "apiservices", "list"),
        ("", "namespaces/kube-system", "get"),
    }
    delegated = {("authentication.k8s.io", "tokenreviews", "create"), ("authorization.k8s.io", "subjectaccessreviews", "create")}
    impersonation = {("", "users", "impersonate"), ("", "groups", "impersonate")}
    pods = {("", "pods", "list"), ("", "pods", "watch")}
    scales = {("apps", "deployments", "list"), ("apps", "deployments", "watch")}
    everything = {("*", "*", "list"), ("*", "*", "watch")}
    member = {("", "namespaces/kube-system", "list")}
    none, trusted = nested("rbac.resources", []), merged(DELEGATED_DAEMON, TOGGLES["trusted socket"])
    by_impersonation = nested("config.clients.identity.impersonation", {})
    cases = [
        (none, always | delegated),
        (merged(none, trusted), always),
        (merged(trusted, nested("rbac.resources", ["pods"])), always | pods),
        (nested("rbac.resources", ["pods", "deployments.apps"]), always | delegated | pods | scales),
        (merged(none, nested("config.cache.prewarm", ["pods"])), always | delegated | pods),
        (merged(none, trusted, ADMIN_TLS, nested("config.admin.metricsAuthorization", "delegated")), always | delegated),
        (nested("rbac.resources", ["*"]), always | delegated | everything),
        (merged(none, nested("peers.enabled", True)), always | delegated),
        (merged(none, trusted, TOGGLES["own peers"]), always),
        (merged(none, TOGGLES["servers"]), always | delegated | member),
        (merged(none, by_impersonation), always | delegated | impersonation),
        (merged(none, by_impersonation, nested("rbac.impersonate", {"uids": True, "extraKeys": ["scopes"]})),
         always | delegated | impersonation
         | {("authentication.k8s.io", name, "impersonate") for name in ("uids", "userextras/scopes")}),
        (merged(none, nested("rbac.extraRules", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])),
         always | delegated | {("", "pods", "get")}),
    ]
    problems = [f"{values}: {sorted(granted(values) ^ wanted)}" for values, wanted in cases if granted(values) != wanted]
    without_chart = [item for item in yaml.safe_load_all((ROOT / "config/rbac.yaml").read_text()) if item]
    if rights_of(one(without_chart, "ClusterRole")) != granted({}):
        problems.append(f"config/rbac.yaml differs from the chart: {sorted(rights_of(one(without_chart, 'ClusterRole')) ^ granted({}))}")
    for name, values in ways_of_use().items():
        if any(resource in ("secrets", "*") for _, resource, _ in granted(values) | granted(values, NAMESPACE)):
            problems.append(f"{name} may read Secrets")
    named = merged(by_impersonation, nested("rbac.impersonate", {"users": ["a"], "groups": ["g"]}))
    rules = [rule for rule in one(render(named), "ClusterRole")["rules"] if "impersonate" in rule["verbs"]]
    if [rule.get("resourceNames") for rule in rules] != [["a"], ["g"]]:
        problems.append(f"users and groups are named, and the rules are {rules}")
    return problems
