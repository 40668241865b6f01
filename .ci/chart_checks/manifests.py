"""The manifests as a kubelet runs them: the arguments, user and files of their containers in a root of their own, where their volumes
are mounted; and clients that find the gateway as they find an API server in a pod: by KUBERNETES_SERVICE_HOST and mounted files, or by
KUBECONFIG."""

import base64
import copy
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import yaml

from chart import NAME, NAMESPACE, ROOT, one
from gateway import BINARY

INFORMER = BINARY.parent / "examples/informer"
WITHIN = 120
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Where programs of this machine are inside of a root.
PROGRAMS = "/programs"


class Root:
    """A file system for one container: the libraries and programs of this machine, and otherwise only what is written there."""

    def __init__(self, folder: Path, programs: dict[str, Path]):
        folder.mkdir(parents=True)
        self.folder = folder
        self.binds = {"/usr": "/usr", "/dev": "/dev", "/proc": "/proc"}
        self.binds |= {f"{PROGRAMS}/{name}": path for name, path in programs.items()}
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                (folder / name).symlink_to(os.readlink(f"/{name}"))
            elif Path("/", name).exists():
                self.binds[f"/{name}"] = f"/{name}"
        self.write("/etc/hosts", f"127.0.0.1 localhost {NAME}.{NAMESPACE}.svc {NAME}-node.{NAMESPACE}.svc\n")
        self.write("/tmp/.keep", "")

    def write(self, path: str, content: str | bytes) -> None:
        here = Path(f"{self.folder}{path}")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(content if isinstance(content, bytes) else content.encode())

    def account(self, token: str, authority: str | bytes) -> None:
        """What a kubelet mounts for a service account."""
        for name, content in {"token": token, "ca.crt": authority, "namespace": NAMESPACE}.items():
            self.write(f"{ACCOUNT}/{name}", content)

    def start(self, command: list[str], user: int, environment: dict, log: Path) -> subprocess.Popen:
        script = ["set -e"]
        for target, source in self.binds.items():
            here = f"{self.folder}{target}"
            made = f"mkdir -p '{here}'" if Path(source).is_dir() else f"mkdir -p '{Path(here).parent}' && touch '{here}'"
            script.append(f"{made} && mount --rbind '{source}' '{here}'")
        script.append(f"chmod -R a+rX '{self.folder}/etc' '{self.folder}/var' 2>/dev/null || true")
        words = " ".join(f"'{word}'" for word in command)
        script.append(f"exec chroot --userspec={user}:{user} '{self.folder}' {words}")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"} | environment
        with log.open("wb") as out:
            return subprocess.Popen(["unshare", "--mount", "sh", "-c", "\n".join(script)], stdout=out, stderr=out, env=environment)


def place(host: str, port: int) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}


class Container:
    """The gateway of a pod's manifest, ended with the block."""

    def __init__(self, spec: dict, root: Root, environment: dict, log: Path):
        [container] = spec["containers"]
        user = spec["securityContext"]["runAsUser"]
        os.chmod(root.folder, 0o755)
        self.log = log
        self.probe = container["readinessProbe"]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        self.admin = ports.get(self.probe["port"], self.probe["port"])
        self.process = root.start([f"{PROGRAMS}/kube-fanout", *container["args"]], user, environment, log)

    def __enter__(self):
        started = time.monotonic()
        while True:
            try:
                self.get(self.probe["path"])
                return self
            except OSError:
                if time.monotonic() - started > WITHIN or self.process.poll() is not None:
                    self.__exit__()
                    raise RuntimeError(f"the gateway is not ready: {self.log.read_text()[-2000:]}") from None
                time.sleep(0.1)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WITHIN)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=60) as answer:
            return answer.read().decode()

    def requests(self, verb: str, outcome: str) -> int:
        pattern = rf'^kube_fanout_requests_total{{(?=.*verb="{verb}")(?=.*resource="pods").*outcome="{outcome}".*}} (\d+)'
        return sum(map(int, re.findall(pattern, self.get("/metrics"), re.M)))


def clients(container: Container, server, binaries: Path, where: dict, authority: str | bytes, folder: Path, files={},
            namespace="") -> list[str]:
    """kubectl and an informer of kube-rs, each in a pod of a service account that may read pods, with these files mounted;
    they read one namespace if it is given."""
    if not INFORMER.is_file():
        return [f"{INFORMER} does not exist: run cargo test, or cargo build --examples, first"]
    problems, late = [], f"late-{uuid.uuid4()}"
    root = Root(folder / "client", {"kubectl": binaries / "kubectl", "informer": INFORMER})
    os.chmod(folder / "client", 0o755)
    root.account(server.token_of("reader"), authority)
    for path, content in files.items():
        root.write(path, content)
    where_from = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    get = [f"{PROGRAMS}/kubectl", "get", "pods", *where_from, "--output", "name"]
    ran = root.start(get, 65532, where, folder / "kubectl.log")
    code, said = ran.wait(WITHIN), (folder / "kubectl.log").read_text()
    if code != 0:
        problems.append(f"kubectl ends with {code}: {said}")
    # What is not prewarmed is cached on demand: a watch that begins before that is forwarded.
    path = f"/api/v1/{f'namespaces/{namespace}/' if namespace else ''}pods?resourceVersion=0"
    root.start([f"{PROGRAMS}/kubectl", "get", "--raw", path], 65532, where, folder / "warm.log").wait(WITHIN)
    log = folder / "informer.log"
    informer = root.start([f"{PROGRAMS}/informer", late, *([namespace] if namespace else [])], 65532, where, log)
    started = time.monotonic()
    while "synced" not in log.read_text() and informer.poll() is None and time.monotonic() - started < WITHIN:
        time.sleep(0.1)
    pod = {"metadata": {"name": late}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    server.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    try:
        if informer.wait(WITHIN) != 0:
            problems.append(f"the informer ends with {informer.returncode}: {log.read_text()}")
    except subprocess.TimeoutExpired:
        informer.kill()
        problems.append(f"the informer is not told of a pod: {log.read_text()}")
    ran = root.start(get, 65532, where, folder / "kubectl.log")
    if ran.wait(WITHIN) != 0 or f"pod/{late}" not in (folder / "kubectl.log").read_text():
        problems.append(f"kubectl does not see the pod: {(folder / 'kubectl.log').read_text()}")
    if not container.requests("list", "forwarded") + container.requests("list", "served"):
        problems.append("no list of pods went through the gateway")
    if not container.requests("watch", "served"):
        problems.append("the informer's watch did not come from memory")
    return problems


def spec_of(server, plural: str, name: str) -> dict:
    """The pod of a workload as the API server has it."""
    return json.loads(server.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{plural}/{name}"))["spec"]["template"]["spec"]


def mounted(server, spec: dict, folder: Path) -> Root:
    """A root with the volumes and the service account of a pod."""
    root = Root(folder, {"kube-fanout": BINARY})
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    for volume in spec["volumes"]:
        if "configMap" in volume:
            source, data = volume["configMap"], data_of(server, "configmaps", volume["configMap"]["name"])
        else:
            source, data = volume["secret"], data_of(server, "secrets", volume["secret"]["secretName"])
            data = {key: base64.b64decode(value) for key, value in data.items()}
        wanted = [item["key"] for item in source.get("items", [])] or data
        for key in wanted:
            root.write(f"{mounts[volume['name']]}/{key}", data[key])
    root.account(server.token_of(spec["serviceAccountName"]), server.authority)
    return root


def data_of(server, plural: str, name: str) -> dict:
    return json.loads(server.get(f"/api/v1/namespaces/{NAMESPACE}/{plural}/{name}"))["data"]


def reached(spec: dict, name: str) -> dict[str, str]:
    """Where clients find a gateway by its Service's name."""
    ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
    return place(f"{name}.{NAMESPACE}.svc", ports["https"])


def daemon(server, binaries: Path) -> list[str]:
    """The DaemonSet of a release as the API server has it."""
    spec = spec_of(server, "daemonsets", NAME)
    with tempfile.TemporaryDirectory() as folder:
        root = mounted(server, spec, Path(folder) / "gateway")
        authority = data_of(server, "configmaps", f"{NAME}-client")["ca.crt"]
        with Container(spec, root, place("127.0.0.1", server.port), Path(folder) / "log") as container:
            return clients(container, server, binaries, reached(spec, NAME), authority, Path(folder))


def tree(server, binaries: Path) -> list[str]:
    """A replica, a gateway on a node that knows only the replica, and clients of that."""
    above, spec = spec_of(server, "deployments", NAME), spec_of(server, "daemonsets", f"{NAME}-node")
    with tempfile.TemporaryDirectory() as folder:
        roots = [mounted(server, one, Path(folder) / name) for one, name in ((above, "replica"), (spec, "gateway"))]
        authority = data_of(server, "configmaps", f"{NAME}-node-client")["ca.crt"]
        with Container(above, roots[0], place("127.0.0.1", server.port), Path(folder) / "replica.log") as replica:
            with Container(spec, roots[1], place("127.0.0.1", 1), Path(folder) / "log") as container:
                problems = clients(container, server, binaries, reached(spec, f"{NAME}-node"), authority, Path(folder))
                if not re.search(r'^kube_fanout_watchers{.*resource="pods".*} [1-9]', replica.get("/metrics"), re.M):
                    problems.append("the gateway on the node follows no replica")
                return problems


def sidecar(server, binaries: Path, objects: list[dict]) -> list[str]:
    """The gateway beside an application, with the application's service account and the Role of the chart; clients find it by
    KUBECONFIG, as the application does."""
    objects = copy.deepcopy(objects)
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    server.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "application"}})
    # Not by the names of the release's, which are tried later.
    for kind, plural in (("Role", "roles"), ("RoleBinding", "rolebindings")):
        item = one(objects, kind) | {"metadata": {"name": "application"}}
        if "roleRef" in item:
            item["roleRef"]["name"] = "application"
        server.create(f"{roles}/{plural}", item)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    # Started first, and asked for its startup probe.
    [gateway], [application] = pod["initContainers"], pod["containers"]
    spec = {"containers": [gateway], "securityContext": {"runAsUser": 65532}}
    [mount] = application["volumeMounts"]
    files = {f"{mount['mountPath']}/{key}": content for key, content in one(objects, "ConfigMap")["data"].items()}
    where = {variable["name"]: variable["value"] for variable in application["env"]}
    # kube-rs requires authorities even over plain HTTP, and the image of an application may have none.
    where["SSL_CERT_FILE"] = f"{ACCOUNT}/ca.crt"
    with tempfile.TemporaryDirectory() as folder:
        root = Root(Path(folder) / "gateway", {"kube-fanout": BINARY})
        for path, content in files.items():
            root.write(path, content)
        root.account(server.token_of(pod["serviceAccountName"]), server.authority)
        with Container(spec, root, place("127.0.0.1", server.port), Path(folder) / "log") as container:
            return clients(container, server, binaries, where, server.authority, Path(folder), files, NAMESPACE)


def static_pod(server, binaries: Path, port: int, admin: int) -> list[str]:
    """The manifest for a control-plane node, with the API server's own certificates where kubeadm puts them. Only ports differ."""
    text = (ROOT / "config/static-pod.yaml").read_text().replace("9099", str(admin))
    spec = yaml.safe_load(text)["spec"]
    config = (ROOT / "config/control-plane.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        root = Root(Path(folder) / "gateway", {"kube-fanout": BINARY})
        root.write("/etc/kubernetes/kube-fanout/gateway.yaml", config.replace("7443", str(port)).replace("9099", str(admin)))
        kubeconfig = yaml.safe_load(server.kubeconfig)
        kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes"
        root.write("/etc/kubernetes/kube-fanout.conf", yaml.safe_dump(kubeconfig))
        for name, content in server.pki.items():
            root.write(f"/etc/kubernetes/pki/{name}", content)
        with Container(spec, root, {}, Path(folder) / "log") as container:
            return clients(container, server, binaries, place("127.0.0.1", port), server.authority, Path(folder))
