"""The chart, rendered: objects of given values, and what the API of a Kubernetes version says of them."""

import copy
import json
import os
import re
import subprocess
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import yaml
from helm_python import _native

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "helm"
NAME, NAMESPACE = "kube-fanout", "gateways"
# The oldest that the validator knows, one in between, the newest.
API_VERSIONS = ("1.25", "1.31", "1.37")
# Kinds that are no part of Kubernetes.
MONITORING = "monitoring.coreos.com/v1"
CERTIFICATES = "cert-manager.io/v1"
FOREIGN = (MONITORING, CERTIFICATES)

CHART = helm.Chart.load(FOLDER)


def ways_of_use() -> dict[str, dict]:
    """The values files of helm/ci by their name, and the defaults."""
    files = sorted(FOLDER.glob("ci/*-values.yaml"))
    return {"defaults": {}} | {file.name: yaml.safe_load(file.read_text()) for file in files}


def render(values: dict, version: str = API_VERSIONS[-1], chart=CHART) -> list[dict]:
    """All objects. Raises helm.HelmError for values that are refused, by the schema or by a template."""
    options = {"name": NAME, "namespace": NAMESPACE, "kube_version": f"v{version}.0"}
    rendered = _native.call_string("helm_render", chart._raw(), json.dumps(values), json.dumps(options))
    texts = [text for name, text in json.loads(rendered).items() if not name.endswith("NOTES.txt")]
    return [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def one(objects: list[dict], kind: str) -> dict | None:
    found = [item for item in objects if item["kind"] == kind]
    return found[0] if found else None


def layers(objects: list[dict]) -> list[list[dict]]:
    """The objects of the replicas, and those of the gateways on nodes; all of them, if there is one layer."""
    workloads = [one(objects, kind) for kind in ("Deployment", "DaemonSet")]
    if not all(workloads):
        return [objects]
    of_nodes = re.compile(rf"{workloads[1]['metadata']['name']}([-:].*)?")
    parts: list[list[dict]] = [[], []]
    for item in objects:
        parts[bool(of_nodes.fullmatch(item["metadata"]["name"]))].append(item)
    return parts


def pod_of(objects: list[dict]) -> dict | None:
    """The pod template of the workload."""
    workload = one(objects, "Deployment") or one(objects, "DaemonSet")
    return workload and workload["spec"]["template"]


def invalid(objects: list[dict], version: str) -> list[str]:
    """What the API of a version would refuse."""
    problems = []
    for item in objects:
        if item["apiVersion"] in FOREIGN:
            continue
        try:
            kubernetes_validate.validate(item, version, strict=True)
        except Exception as error:  # the validator's errors have no base of their own
            problems.append(f"{item['kind']} {item['metadata']['name']} in {version}: {str(error).splitlines()[0]}")
    return problems


def invalid_foreign(renderings: dict[str, list[dict]]) -> list[str]:
    """What the Prometheus operator and cert-manager would refuse, by the name of the rendering: according to models that are
    generated from their definitions. One call for all, since Node.js starts slowly."""
    items = {name: [item for item in objects if item["apiVersion"] in FOREIGN] for name, objects in renderings.items()}
    script = """
const models = {};
for (const [version, path] of Object.entries(JSON.parse(process.env.MODELS))) models[version] = await import(path);
for (const [name, items] of Object.entries(JSON.parse(process.env.ITEMS))) for (const item of items) {
  try { new models[item.apiVersion][item.kind](item).validate(); }
  catch (error) { console.log(`${name}: ${item.kind} ${item.metadata.name}: ${error.message}`); }
}"""
    packages = {MONITORING: "prometheus-operator", CERTIFICATES: "cert-manager"}
    modules = f"{os.environ['NODE_PATH']}/@kubernetes-models"
    models = {version: f"{modules}/{package}/{version}/index.js" for version, package in packages.items()}
    variables = os.environ | {"MODELS": json.dumps(models), "ITEMS": json.dumps(items)}
    ran = subprocess.run(["node", "--input-type=module", "-e", script], env=variables, capture_output=True, text=True)
    return ran.stdout.splitlines() + ran.stderr.splitlines()


def merged(*values: dict) -> dict:
    """Values over values, as Helm lays them."""
    result: dict = {}
    for over in values:
        for key, value in over.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result


def nested(path: str, value) -> dict:
    """`a.b` as a tree."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value
