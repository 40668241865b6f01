"""The gateway as an installed release would run it: with the rendered configuration and certificate, as its own service account,
with the rights of the chart and no others; and clients of it."""

import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

from chart import NAME, NAMESPACE, ROOT, one, render
from gateway import BINARY
from ports import free_ports

WITHIN = 120
HOST = f"{NAME}.{NAMESPACE}.svc"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


class Gateway:
    """The process, ended with the block."""

    def __init__(self, server, folder: Path):
        objects = f"/api/v1/namespaces/{NAMESPACE}"
        config = json.loads(server.get(f"{objects}/configmaps/{NAME}"))["data"]["gateway.yaml"]
        for file, content in json.loads(server.get(f"{objects}/secrets/{NAME}-tls"))["data"].items():
            (folder / file).write_bytes(base64.b64decode(content))
        self.ports = free_ports(2)
        for port, free in zip(("8443", "9090"), self.ports):
            config = config.replace(f"0.0.0.0:{port}", f"127.0.0.1:{free}")
        (folder / "gateway.yaml").write_text(config.replace("/etc/kube-fanout/tls", str(folder)))
        (folder / "kubeconfig").write_text(server.kubeconfig_of(server.token_of(NAME)))
        # What clients are given.
        client = json.loads(server.get(f"{objects}/configmaps/{NAME}-client"))["data"]
        self.context = ssl.create_default_context(cadata=client["ca.crt"])
        self.client_kubeconfig = client["kubeconfig"]
        command = [BINARY, "run", "--config", folder / "gateway.yaml", "--kubeconfig", folder / "kubeconfig"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self):
        started = time.monotonic()
        while True:
            try:
                self.admin("/readyz")
                return self
            except OSError:
                if time.monotonic() - started > WITHIN or self.process.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.1)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WITHIN)

    def admin(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[1]}{path}", timeout=60) as answer:
            return answer.read().decode()

    def status(self, path: str, token: str) -> int:
        """Of a request to the Service's name, whose certificate is verified."""
        connection = http.client.HTTPSConnection(HOST, timeout=60)
        plain = socket.create_connection(("127.0.0.1", self.ports[0]), timeout=60)
        connection.sock = self.context.wrap_socket(plain, server_hostname=HOST)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def kubectl(self, binaries: Path, folder: Path, token: str, *arguments: str) -> subprocess.CompletedProcess:
        """With the kubeconfig that pods are given, only led to this machine's port and the token's file."""
        (folder / "token").write_text(token)
        place = f"server: https://127.0.0.1:{self.ports[0]}\n    tls-server-name: {HOST}"
        kubeconfig = self.client_kubeconfig.replace(f"server: https://{HOST}:443", place)
        kubeconfig = kubeconfig.replace("/var/run/secrets/kubernetes.io/serviceaccount/token", str(folder / "token"))
        (folder / "client").write_text(kubeconfig)
        command = [binaries / "kubectl", "--kubeconfig", folder / "client", "--cache-dir", folder / "cache", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def served(self, resource: str) -> int:
        """Lists from memory."""
        lines = re.findall(rf'^kube_fanout_requests_total{{(?=.*verb="list")(?=.*resource="{resource}").*outcome="served".*}} (\d+)',
                           self.admin("/metrics"), re.M)
        return sum(map(int, lines))


def clients_are_served(server, binaries: Path) -> list[str]:
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    roles = "/apis/rbac.authorization.k8s.io/v1"
    for account in ("reader", "stranger"):
        server.create(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    rules = [{"apiGroups": ["", "apps"], "resources": ["pods", "secrets", "deployments"], "verbs": ["get", "list", "watch"]}]
    server.create(f"{roles}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    server.create(f"{roles}/clusterrolebindings", {"metadata": {"name": "reader"}, "roleRef": role, "subjects": subjects})
    reader, stranger = server.token_of("reader"), server.token_of("stranger")
    problems = []
    with tempfile.TemporaryDirectory() as folder, Gateway(server, Path(folder)) as gateway:
        # A custom resource's group would show that definitions and aggregated APIs can be read; so does any but the core group.
        for resource, path in (("pods", "/api/v1/pods"), ("deployments.apps", "/apis/apps/v1/deployments")):
            started, found = time.monotonic(), 0
            while not gateway.served(resource) and time.monotonic() - started < WITHIN:
                found = gateway.status(f"{path}?resourceVersion=0", reader)
                time.sleep(0.1)
            if found != 200 or not gateway.served(resource):
                problems.append(f"lists of {resource} are never served from memory: {found}; {log_of(folder)}")
            found = gateway.status(f"{path}?resourceVersion=0", stranger)
            if found != 403:
                problems.append(f"a stranger's list of {resource} is {found}, not 403")
        found = [gateway.status("/api/v1/secrets?resourceVersion=0", token) for token in (reader, stranger)]
        if found != [200, 403] or gateway.served("secrets"):
            problems.append(f"lists of Secrets are {found}, {gateway.served('secrets')} from memory")
        ran = gateway.kubectl(binaries, Path(folder), reader, "get", "deployments", "--all-namespaces", "--output", "name")
        if ran.stdout != f"deployment.apps/{NAME}\n":
            problems.append(f"kubectl with the kubeconfig of pods says: {ran.stdout}{ran.stderr}")
        problems += helm_test(gateway, Path(folder), server.token_of(NAME))
        problems += plugin(gateway, binaries, Path(folder))
        metrics = gateway.admin("/metrics")
    ran = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True)
    if ran.returncode != 0:
        problems += (ran.stdout + ran.stderr).splitlines()
    if gateway.process.returncode != 0:
        problems.append(f"the gateway ends with {gateway.process.returncode}")
    return problems


def helm_test(gateway: Gateway, folder: Path, token: str) -> list[str]:
    """The pod of `helm test`, with its command as it is rendered: only its two files and the address are those of this machine."""
    container = one(render({}), "Pod")["spec"]["containers"][0]
    places = {"/var/run/secrets/kubernetes.io/serviceaccount/token": "test-token", "/etc/gateway/ca.crt": "ca.crt"}
    command = [*container["command"], *container["args"]]
    for place, file in places.items():
        if place not in command[-1]:
            return [f"the pod of helm test does not use {place}"]
        command[-1] = command[-1].replace(place, str(folder / file))
    (folder / ".curlrc").write_text(f"connect-to = {HOST}:443:127.0.0.1:{gateway.ports[0]}\n")

    def run(token: str, *command: str) -> subprocess.CompletedProcess:
        (folder / "test-token").write_text(token)
        variables = os.environ | {"CURL_HOME": str(folder), "no_proxy": "*"}
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)

    passed, refused = run(token, *command), run("invented", *command[:-1], command[-1].replace("--retry 5", "--retry 0"))
    problems = [f"helm test fails: {passed.stdout}{passed.stderr}"] * (passed.returncode != 0)
    return problems + ["helm test passes with an invented token"] * (refused.returncode == 0)


def plugin(gateway: Gateway, binaries: Path, folder: Path) -> list[str]:
    """`kubectl fanout status`, as the manual says: by a link of that name."""
    (folder / "kubectl-fanout").symlink_to(BINARY)
    variables = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    problems = []
    cases = [(["--admin", str(gateway.ports[1])], f"kube-fanout {VERSION}, ready,"), (["--help"], "Usage: kubectl fanout status")]
    for arguments, words in cases:
        command = [binaries / "kubectl", "fanout", "status", *arguments]
        ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
        if ran.returncode != 0 or words not in ran.stdout:
            problems.append(f"kubectl fanout status {' '.join(arguments)}: {ran.returncode}: {ran.stdout}{ran.stderr}")
    return problems


def log_of(folder: str) -> str:
    return (Path(folder) / "log").read_text()[-2000:]
