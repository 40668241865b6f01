"""What is written in more than one place agrees: README, schema, manual, alerts."""

import itertools
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import promql_parser
import yaml

from chart import CHART, FOLDER, NAME, ROOT, nested, one, render, ways_of_use

OPERATIONS = ROOT / "src/manual/operations.md"
ALERTS = ROOT / "src/manual/alerts.md"
METRICS = ROOT / "src/base/telemetry/metrics.rs"


def readme_table() -> list[str]:
    """The table of values in the chart's README is what the generator makes of values.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(shutil.copy(FOLDER / "README.md", folder))
        command = ["readme-generator", "--values", FOLDER / "values.yaml", "--readme", made]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            return (ran.stdout + ran.stderr).splitlines()
        if made.read_text() != (FOLDER / "README.md").read_text():
            return ["helm/README.md differs: readme-generator --values helm/values.yaml --readme helm/README.md"]
    return []


def readme_installs() -> list[str]:
    """The README installs each values file, and makes the objects that it refers to; its values of a sidecar are taken."""
    text = (FOLDER / "README.md").read_text()
    problems = []
    for file, values in ways_of_use().items():
        if f"-f helm/ci/{file} " not in text and file not in ("defaults", "sidecar-values.yaml"):
            problems.append(f"helm/README.md does not install {file}")
        volumes = values.get("volumes", [])
        named = [("configmap", volume["configMap"]["name"]) for volume in volumes if "configMap" in volume]
        named += [(r"secret \w+", volume["secret"]["secretName"]) for volume in volumes if "secret" in volume]
        named += [(r"secret \w+", name) for name in [values.get("tls", {}).get("existingSecret")] if name]
        problems += [f"helm/README.md does not make {name}, to which {file} refers" for kind, name in named
                     if not re.search(f"create {kind} {name} ", text)]
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(# values.yaml of.*?)```", text, re.S)]
    if [one(render(block["kube-fanout"]), "RoleBinding")["subjects"][0]["name"] for block in blocks] != ["application"]:
        problems.append("helm/README.md's values of a sidecar are not for the application's account")
    return problems


def fields(schema: dict, definitions: dict, path: str = "") -> set[str]:
    """Paths of the fields of a schema, as the manual writes them."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    if schema.get("properties"):
        below = [fields(one, definitions, f"{path}.{name}".strip(".")) for name, one in schema["properties"].items()]
        return set().union(*below)
    items = schema.get("items", {})
    if "properties" in items:
        return fields(items, definitions, f"{path}[]")
    if "anyOf" in items:
        long = [fields(one, definitions, f"{path}[]") for one in items["anyOf"] if "properties" in one]
        return {path}.union(*long)
    return {path}


def documented() -> set[str]:
    """Paths of the fields in the manual's table of the configuration; `.b` after `x.a` is `x.b`."""
    text = OPERATIONS.read_text()
    table = text[text.index("## Configuration") : text.index("Unknown fields are problems")]
    found = set()
    for row in re.findall(r"^\| (`[^|]*`) \|", table, re.M):
        names = re.findall(r"`([^`]+)`", row)
        parent = names[0].rsplit(".", 1)[0]
        found.update(parent + name if name.startswith(".") else name for name in names)
    return found


def schema_knows_every_field() -> list[str]:
    schema = CHART.schema
    known = fields(schema["properties"]["config"], schema["definitions"])
    problems = [f"helm/values.schema.json lacks {field}, which the manual has" for field in sorted(documented() - known)]
    problems += [f"{OPERATIONS.name} lacks {field}, which helm/values.schema.json has" for field in sorted(known - documented())]
    return problems


def versions() -> list[str]:
    """The chart installs the version that is in the tree."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    places = {
        "helm/Chart.yaml": yaml.safe_load((FOLDER / "Chart.yaml").read_text())["appVersion"],
        "config/static-pod.yaml": re.findall(r"image: kube-fanout:(\S+)", (ROOT / "config/static-pod.yaml").read_text())[0],
    }
    return [f"{place} has version {found}, Cargo.toml {version}" for place, found in places.items() if found != version]


def alerts() -> list[str]:
    """promtool takes them, the manual explains each, and each asks for metrics that there are."""
    problems = []
    for command in (["check", "rules", FOLDER / "files/alerts.yaml"], ["test", "rules", FOLDER / "ci/alerts-test.yaml"]):
        ran = subprocess.run(["promtool", *command], capture_output=True, text=True)
        if ran.returncode != 0:
            problems += (ran.stdout + ran.stderr).splitlines()
    groups = yaml.safe_load((FOLDER / "files/alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    metrics, manual, tests = METRICS.read_text(), ALERTS.read_text(), (FOLDER / "ci/alerts-test.yaml").read_text()
    for rule in rules:
        for metric in re.findall(r"kube_fanout_\w+", rule["expr"]):
            if f'"{metric}"' not in metrics:
                problems.append(f"{rule['alert']} asks for {metric}, which does not exist")
        if f"`{rule['alert']}`" not in manual:
            problems.append(f"{ALERTS.name} says nothing of {rule['alert']}")
        if f"alertname: {rule['alert']}\n" not in tests:
            problems.append(f"ci/alerts-test.yaml does not test {rule['alert']}")
    rendered = one(render(nested("metrics.prometheusRule.enabled", True)), "PrometheusRule")
    if rendered["spec"]["groups"] != groups:
        problems.append("the PrometheusRule is not what files/alerts.yaml says")
    return problems + layers_in_alerts()


def layers_in_alerts() -> list[str]:
    """With gateways on nodes there is one rule, whose alerts have the layer of the pod in a label."""
    rules = [item for item in render(ways_of_use()["tree-values.yaml"]) if item["kind"] == "PrometheusRule"]
    if len(rules) != 1:
        return [f"a tree has {len(rules)} PrometheusRules"]
    pods = {f"{NAME}-node-x2b4z": {"layer": "nodes"}, f"{NAME}-7c9f8d6b5-x2b4z": {"layer": "replicas"}, "other-0": {}}
    groups, name = rules[0]["spec"]["groups"], "KubeFanoutConfigNeedsRestart"
    rule = next(rule for group in groups for rule in group["rules"] if rule["alert"] == name)
    summary = "1 fields of the changed configuration of {} need a restart."
    wanted = [{"exp_labels": {"severity": "info", "pod": pod, **layer},
               "exp_annotations": rule["annotations"] | {"summary": summary.format(pod)}} for pod, layer in pods.items()]
    series = [{"series": f'kube_fanout_config_fields_needing_restart{{pod="{pod}"}}', "values": "1x90"} for pod in pods]
    fires = [{"alertname": name, "eval_time": "70m", "exp_alerts": wanted}]
    test = {"interval": "1m", "input_series": series, "alert_rule_test": fires}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        (Path(folder) / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
        ran = subprocess.run(["promtool", "test", "rules", Path(folder) / "test.yaml"], capture_output=True, text=True)
        return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).splitlines()


def dashboard() -> list[str]:
    """Every expression of the dashboard is PromQL over metrics that there are; panels do not lie on each other."""
    text = (FOLDER / "files/dashboard.json").read_text()
    panels, metrics = json.loads(text)["panels"], METRICS.read_text()
    problems, taken = [], {}
    for panel in panels:
        place = panel["gridPos"]
        for cell in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])):
            if taken.setdefault(cell, panel["id"]) != panel["id"]:
                problems.append(f"the panel {panel['title']} lies on another")
                break
        for target in panel.get("targets", []):
            # Grafana puts in what stands for an interval.
            expression = target["expr"].replace("$__rate_interval", "5m")
            try:
                promql_parser.parse(expression)
            except ValueError as error:
                problems.append(f"{panel['title']}: {error}: {expression}")
            for metric in re.findall(r"kube_fanout_\w+", expression):
                if f'"{metric.removesuffix("_bucket")}"' not in metrics:
                    problems.append(f"{panel['title']} asks for {metric}, which does not exist")
    rendered = [item for item in render(nested("metrics.dashboards.enabled", True)) if item["metadata"]["name"].endswith("-dashboard")]
    if json.loads(rendered[0]["data"]["kube-fanout.json"]) != json.loads(text):
        problems.append("the ConfigMap is not what files/dashboard.json says")
    return problems
