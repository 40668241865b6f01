"""What the gateway itself says of configurations: `kube-fanout check`."""

import base64
import datetime
import os
import re
import subprocess
import tempfile
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chart import ROOT, layers, render, ways_of_use

BINARY = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/kube-fanout"

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: gateway
clusters:
- name: gateway
  cluster: {server: "https://127.0.0.1:6443", tls-server-name: kubernetes, certificate-authority-data: AUTHORITY}
contexts: [{name: gateway, context: {cluster: gateway, user: gateway}}]
users: [{name: gateway, user: {token: x}}]
"""


def certificate(name: str) -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), private


def problems_of(text: str) -> list[str]:
    """What `check` says of a configuration, when every file and every directory that it names is there."""
    with tempfile.TemporaryDirectory() as folder:
        # Paths of files, as in `certFile: /etc/...`: moved below the folder.
        paths = dict.fromkeys(re.findall(r"(?:File|kubeconfig): \"?(/[^\s\"}]+)", text))
        pairs = {}
        for path in paths:
            here = Path(folder + path)
            here.parent.mkdir(parents=True, exist_ok=True)
            # A certificate and its key share a path up to the extension.
            pair = pairs.setdefault(path.rsplit(".", 1)[0], certificate(path))
            if path.endswith((".kubeconfig", ".conf", "/kubeconfig")):
                here.write_text(KUBECONFIG.replace("AUTHORITY", base64.b64encode(pair[0]).decode()))
            else:
                here.write_bytes(pair[path.endswith(".key")])
            text = re.sub(rf"(File|kubeconfig): (\"?){re.escape(path)}(?=[\s\"}},]|$)", rf"\1: \g<2>{here}", text)
        # Those of sockets and of the audit log need only their directory.
        for path in dict.fromkeys(re.findall(r"(?:unix:|\bpath: )\"?(/[^\s\"},]+)", text)):
            here = Path(folder + path)
            here.parent.mkdir(parents=True, exist_ok=True)
            text = re.sub(rf"(unix:|\bpath: )(\"?){re.escape(path)}(?=[\s\"}},]|$)", rf"\1\g<2>{here}", text)
        file = Path(folder) / "gateway.yaml"
        file.write_text(text)
        ran = subprocess.run([BINARY, "check", "--config", file], capture_output=True, text=True)
        return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()


def text_of(objects: list[dict]) -> str:
    """The configuration among rendered objects."""
    for item in objects:
        data = item.get("data") or item.get("stringData") or {}
        if "gateway.yaml" in data:
            return data["gateway.yaml"]
    raise LookupError("no gateway.yaml was rendered")


def configurations() -> list[str]:
    if not BINARY.is_file():
        return [f"{BINARY} does not exist: run cargo test, or cargo build, first"]
    problems = []
    for name, values in ways_of_use().items():
        problems += [f"{name}: {one}" for layer in layers(render(values)) for one in problems_of(text_of(layer))]
    for path in sorted((ROOT / "config").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["apiVersion"].startswith("kube-fanout.io/"):
                problems += [f"{path.name}: {one}" for one in problems_of(yaml.safe_dump(document))]
    # That the check above can fail.
    if not problems_of(text_of(render({})).replace("20s", "2 days")):
        problems.append("a drain of 2 days is taken")
    return problems
