"""A release on a real API server: install, upgrade, rollback, uninstall; every way of use by server-side dry-run.

No controller runs there: objects are accepted and stored, and no pod ever starts.
"""

import base64
import datetime
import ipaddress
import json
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import helm_python as helm
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import manifests
import serving
import sidecar
from chart import CHART, NAME, NAMESPACE, merged, nested, render, ways_of_use
from ports import free_ports

READY_WITHIN = 120
TOKEN = "chart-checks"
# Needs definitions of other projects, which no server of these checks has.
UNDEFINED = merged(
    nested("metrics", {kind: {"enabled": False} for kind in ("serviceMonitor", "podMonitor", "prometheusRule")}),
    nested("tls.certManager.enabled", False),
)
# What a server of 1.20 does not have either.
NOT_THERE = merged(
    UNDEFINED,
    nested("service.internalTrafficPolicy", "Cluster"),
    nested("nodes.service.internalTrafficPolicy", "Cluster"),
)
# Since then a server has everything that the chart renders.
ALL_THERE = (1, 26)
# The version that the chart is written for: if it is not tried, that is said.
CURRENT = (1, 36)

# The versions of the servers that were given every object.
tried: list[str] = []


def sign(name: str, key, issuer, authority) -> x509.Certificate:
    """A certificate of a key for loopback, of an authority's name and key; of an authority itself, if they are its own."""
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)]) for common in (name, issuer)]
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), True)
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("kubernetes")])
    return builder.add_extension(loopback, False).sign(authority, hashes.SHA256())


def write_certificates(folder: Path) -> dict[str, bytes]:
    """What kubeadm has in its `pki`, under the same names, and tokens.csv. apiserver.key signs tokens of service accounts, too."""
    authority, key, front_authority, front = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(4))
    pem = serialization.Encoding.PEM

    def private(key) -> bytes:
        return key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())

    pki = {
        "ca.crt": sign("authority", authority, "authority", authority).public_bytes(pem),
        "apiserver.crt": sign("server", key, "authority", authority).public_bytes(pem),
        "apiserver.key": private(key),
        "front-proxy-ca.crt": sign("front", front_authority, "front", front_authority).public_bytes(pem),
        "front-proxy-client.crt": sign("front-proxy-client", front, "front", front_authority).public_bytes(pem),
        "front-proxy-client.key": private(front),
    }
    for name, content in pki.items():
        (folder / name).write_bytes(content)
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    return pki


class Server:
    """An API server and its etcd, ended with the block."""

    def __init__(self, binaries: Path, folder: Path):
        self.pki = write_certificates(folder)
        self.authority = authority = self.pki["ca.crt"]
        port, storage, peer = free_ports(3)
        self.port = port
        self.url = f"https://127.0.0.1:{port}"
        self.context = ssl.create_default_context(cadata=authority.decode())
        cluster = {"server": self.url, "certificate-authority-data": base64.b64encode(authority).decode()}
        self.kubeconfig = yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "users": [{"name": "it", "user": {"token": TOKEN}}],
        })
        client, peers = f"http://127.0.0.1:{storage}", f"http://127.0.0.1:{peer}"
        etcd = {"data-dir": folder / "etcd", "listen-client-urls": client, "advertise-client-urls": client,
                "listen-peer-urls": peers, "initial-advertise-peer-urls": peers, "initial-cluster": f"default={peers}"}
        server = {"etcd-servers": client, "secure-port": port, "bind-address": "127.0.0.1", "authorization-mode": "RBAC",
                  "tls-cert-file": folder / "apiserver.crt", "tls-private-key-file": folder / "apiserver.key",
                  "client-ca-file": folder / "ca.crt", "requestheader-client-ca-file": folder / "front-proxy-ca.crt",
                  "requestheader-allowed-names": "front-proxy-client", "requestheader-username-headers": "X-Remote-User",
                  "requestheader-group-headers": "X-Remote-Group", "requestheader-extra-headers-prefix": "X-Remote-Extra-",
                  "token-auth-file": folder / "tokens.csv", "service-account-key-file": folder / "apiserver.key",
                  "service-account-signing-key-file": folder / "apiserver.key",
                  "service-account-issuer": "https://kubernetes.default.svc", "service-cluster-ip-range": "10.0.0.0/16",
                  "disable-admission-plugins": "ServiceAccount"}
        self.processes = []
        for name, flags in (("etcd", etcd), ("kube-apiserver", server)):
            log = (folder / f"{name}.log").open("wb")
            command = [binaries / name, *(f"--{flag}={value}" for flag, value in flags.items())]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))

    def __enter__(self):
        started = time.monotonic()
        while True:
            try:
                self.get("/readyz")
                return self
            except OSError:
                if time.monotonic() - started > READY_WITHIN or any(one.poll() is not None for one in self.processes):
                    self.__exit__()
                    raise
                time.sleep(0.1)

    def __exit__(self, *_):
        for process in reversed(self.processes):
            # Its data is not used again.
            process.kill()
            process.wait()

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
            return answer.read()

    @property
    def version(self) -> str:
        """Such as 1.20."""
        version = json.loads(self.get("/version"))
        return f"{version['major']}.{version['minor'].rstrip('+')}"

    def serves(self, path: str) -> bool:
        try:
            self.get(path)
            return True
        except urllib.error.HTTPError:
            return False

    def accepts(self, item: dict) -> str:
        """What the server says to an object by a dry run; empty if it takes it."""
        group = "/api/v1" if item["apiVersion"] == "v1" else f"/apis/{item['apiVersion']}"
        namespace = item["metadata"].get("namespace")
        kind = item["kind"].lower()
        plural = kind[:-1] + "ies" if kind.endswith("y") else kind + "s"
        path = f"{group}/namespaces/{namespace}/{plural}" if namespace else f"{group}/{plural}"
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}?dryRun=All", json.dumps(item).encode(), headers)
        try:
            urllib.request.urlopen(request, context=self.context, timeout=60).close()
            return ""
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["message"]

    def create(self, path: str, item: dict) -> dict:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(item).encode(), headers)
        with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
            return json.loads(answer.read())

    def token_of(self, account: str) -> str:
        """A token of a service account, with the API server's own audience."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        return self.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})["status"]["token"]

    def kubeconfig_of(self, token: str) -> str:
        return self.kubeconfig.replace(TOKEN, token)

    def names(self, path: str) -> set[str]:
        """Names of the objects of a list that are the release's."""
        items = json.loads(self.get(f"{path}?labelSelector=app.kubernetes.io/instance%3D{NAME}"))["items"]
        return {item["metadata"]["name"] for item in items}


def life_of_a_release() -> list[str]:
    binaries = Path(sys.argv[1])
    if not (binaries / "kube-apiserver").is_file():
        return [f"{binaries} has no kube-apiserver: run .ci/upstreams v1.20"]
    with tempfile.TemporaryDirectory() as folder, Server(binaries, Path(folder)) as server:
        with helm.Config(kubeconfig_content=server.kubeconfig, namespace=NAMESPACE) as config:
            return release(config, server) + dry_runs(server)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def dry_runs(server: Server) -> list[str]:
    """Each object of each way of use, as this server's version of the chart's objects, by server-side dry run."""
    problems = []
    tried.append(server.version)
    if not server.serves(f"/api/v1/namespaces/{NAMESPACE}"):
        server.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    left_out = UNDEFINED if numbers(server.version) >= ALL_THERE else NOT_THERE
    for name, values in ways_of_use().items():
        for item in render(merged(values, left_out), server.version):
            refused = server.accepts(item)
            problems += [f"{server.version}: {name}: {item['kind']}: {refused}"] * bool(refused)
    # Shows that a dry run can refuse an object.
    if not server.accepts(merged(render({}, server.version)[0], {"metadata": {"name": "No Name"}})):
        problems.append("an object with an impossible name is taken")
    return problems


def dry_runs_on_other_servers() -> list[str]:
    """The same on every further server that is named. A version that could not be tried is printed, and is no problem."""
    problems = []
    first, *others = dict.fromkeys(Path(folder).resolve() for folder in sys.argv[1:])
    for binaries in others:
        if not all((binaries / name).is_file() for name in ("kube-apiserver", "etcd")):
            continue
        with tempfile.TemporaryDirectory() as folder, Server(binaries, Path(folder)) as server:
            if server.version not in tried:
                problems += dry_runs(server)
    print(f"cluster: server-side dry runs of every rendered object on {', '.join(tried) or 'no server'}", flush=True)
    if not any(numbers(version) >= CURRENT for version in tried):
        wanted, line = ".".join(map(str, CURRENT)), "!" * 80
        folders = ", ".join(str(folder) for folder in (first, *others))
        print(f"{line}\nNOT TRIED: server-side dry runs on a whole API server of {wanted}: there is no kube-apiserver of that version "
              f"with an etcd in\n{folders}; set KUBEBUILDER_ASSETS to a folder with both\n{line}", flush=True)
    return problems


def readable(server: Server) -> list[int]:
    """What the gateway's account gets for the namespace that names the cluster, as it asks for it, and for others."""
    headers = {"Authorization": f"Bearer {server.token_of(NAME)}"}
    codes = []
    for path in ("/kube-system", "?fieldSelector=metadata.name%3Dkube-system", "/default", ""):
        request = urllib.request.Request(f"{server.url}/api/v1/namespaces{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=server.context, timeout=60) as answer:
                codes.append(answer.status)
        except urllib.error.HTTPError as error:
            codes.append(error.code)
    return codes


def release(config: helm.Config, server: Server) -> list[str]:
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}-tls"
    problems = []

    def expect(what: str, found, wanted) -> None:
        if found != wanted:
            problems.append(f"{what}: {found}, not {wanted}")

    def replicas() -> int:
        return json.loads(server.get(f"{deployment}/{NAME}"))["spec"]["replicas"]

    config.install(CHART, NAME, {}, namespace=NAMESPACE, create_namespace=True)
    expect("replicas installed", replicas(), 2)
    problems += serving.clients_are_served(server, Path(sys.argv[1]))
    certificate = json.loads(server.get(secret))["data"]
    config.upgrade(CHART, NAME, {"replicaCount": 3, "metrics": {"service": {"enabled": True}}}, namespace=NAMESPACE)
    expect("replicas after the upgrade", replicas(), 3)
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    expect("services after the upgrade", server.names(services), {NAME, f"{NAME}-metrics"})
    expect("the certificate stays", json.loads(server.get(secret))["data"] == certificate, True)
    config.rollback(NAME, version=1)
    expect("replicas after the rollback", replicas(), 2)
    expect("services after the rollback", server.names(services), {NAME})
    daemons = deployment.replace("deployments", "daemonsets")
    https, admin, node_https, node_admin = free_ports(4)
    ports = {"ports": {"https": https, "admin": admin}, "service": {"port": https}}
    ports_of_nodes = nested("nodes.ports", {"https": node_https, "admin": node_admin})
    tree = merged(ways_of_use()["tree-values.yaml"], NOT_THERE, ports, ports_of_nodes)
    config.upgrade(CHART, NAME, tree, namespace=NAMESPACE)
    expect("a layer more", (server.names(deployment), server.names(daemons)), ({NAME}, {f"{NAME}-node"}))
    problems += [f"tree: {problem}" for problem in manifests.tree(server, Path(sys.argv[1]))]
    # Without any values, Helm would take the last ones.
    config.upgrade(CHART, NAME, {"replicaCount": 2}, namespace=NAMESPACE)
    expect("a layer less", (server.names(deployment), server.names(daemons)), ({NAME}, set()))
    expect("the certificate is the first one", json.loads(server.get(secret))["data"] == certificate, True)
    named = {"kind": "DaemonSet", "peers": {"enabled": True}, "rbac": {"resources": []}, "config": {"upstream": {"servers": ["a:1"]}}}
    config.upgrade(CHART, NAME, named, namespace=NAMESPACE)
    expect("rights of peers and servers", readable(server), [200, 200, 403, 403])
    expect("deployments of a DaemonSet", server.names(deployment), set())
    https, admin, beside, beside_admin, *static = free_ports(6)
    node_local = merged(ways_of_use()["node-local-values.yaml"], NOT_THERE, {"ports": {"https": https, "admin": admin}})
    config.upgrade(CHART, NAME, node_local, namespace=NAMESPACE)
    problems += [f"DaemonSet: {problem}" for problem in manifests.daemon(server, Path(sys.argv[1]))]
    beside_it, _ = sidecar.application({"ports": {"sidecar": beside, "admin": beside_admin}})
    problems += [f"sidecar: {problem}" for problem in manifests.sidecar(server, Path(sys.argv[1]), beside_it)]
    problems += [f"static pod: {problem}" for problem in manifests.static_pod(server, Path(sys.argv[1]), *static)]
    config.uninstall(NAME)
    policy = next(path for path in ("/apis/policy/v1", "/apis/policy/v1beta1") if server.serves(path))
    left = [path for path in (
        deployment, daemons, services, f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        f"/api/v1/namespaces/{NAMESPACE}/secrets", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        f"{policy}/namespaces/{NAMESPACE}/poddisruptionbudgets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ) if server.names(path)]
    expect("left behind", left, [])
    return problems
