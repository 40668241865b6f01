"""The templates for sidecars, as the chart of an application includes them."""

import shutil
import tempfile
from pathlib import Path

import helm_python as helm
import yaml

from chart import API_VERSIONS, FOLDER, invalid, merged, one, render

# As templates/_sidecar.tpl and the README say it.
APPLICATION = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: application, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: application}}
  template:
    metadata: {labels: {app: application}}
    spec:
      serviceAccountName: application
      initContainers:
      - {{ include "kube-fanout.sidecar.container" (index .Subcharts "kube-fanout") | nindent 8 | trim }}
      containers:
      - name: application
        image: application
        env:
        - {{ include "kube-fanout.sidecar.env" (index .Subcharts "kube-fanout") | nindent 10 | trim }}
        volumeMounts:
        - {{ include "kube-fanout.sidecar.mount" (index .Subcharts "kube-fanout") | nindent 10 | trim }}
      volumes:
      {{- include "kube-fanout.sidecar.volumes" (index .Subcharts "kube-fanout") | nindent 6 }}
"""
# `restartPolicy: Always` of an init container is known from 1.28 on: not in the first of these.
SINCE = API_VERSIONS[1:]


def application(values: dict, versions=()) -> tuple[list[dict], list[str]]:
    """The objects of an application with the chart below it, and what the API of these versions would refuse."""
    with tempfile.TemporaryDirectory() as folder:
        chart_of = Path(folder) / "application"
        (chart_of / "templates").mkdir(parents=True)
        shutil.copytree(FOLDER, chart_of / "charts/kube-fanout")
        dependency = {"name": "kube-fanout", "version": "*", "repository": "", "condition": "kube-fanout.enabled"}
        described = {"apiVersion": "v2", "name": "application", "version": "1.0.0", "dependencies": [dependency]}
        (chart_of / "Chart.yaml").write_text(yaml.safe_dump(described))
        (chart_of / "templates/deployment.yaml").write_text(APPLICATION)
        sidecar = yaml.safe_load((FOLDER / "ci/sidecar-values.yaml").read_text())
        with helm.Chart.load(chart_of) as chart:
            values = {"kube-fanout": merged(sidecar, values, {"enabled": True}), "global": {"a": 1}}
            problems = [problem for version in versions for problem in invalid(render(values, version, chart), version)]
            return render(values, chart=chart), problems


def in_an_application() -> list[str]:
    objects, problems = application({}, SINCE)
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    gateway = spec["initContainers"][0]
    config = one(objects, "ConfigMap")
    kubeconfig = yaml.safe_load(config["data"]["kubeconfig"])
    listener = yaml.safe_load(config["data"]["gateway.yaml"])["listeners"][0]["address"]
    facts = [
        (gateway["restartPolicy"] == "Always", "the sidecar is no native one"),
        (gateway["startupProbe"]["httpGet"]["path"] == "/readyz", "the application does not wait for warm caches"),
        (kubeconfig["clusters"][0]["cluster"]["server"] == f"http://{listener}", "the kubeconfig leads elsewhere"),
        (one(objects, "RoleBinding")["subjects"][0]["name"] == spec["serviceAccountName"], "the rights are another's"),
        (not one(objects, "ClusterRole"), "there are rights in the cluster"),
        ([one["name"] for one in spec["volumes"]] == [one["name"] for one in gateway["volumeMounts"]], "volumes differ"),
        (spec["volumes"][0]["configMap"]["name"] == config["metadata"]["name"], "the configuration has another name"),
        (listener.startswith("127.0.0.1:"), "others can reach the sidecar"),
        (not one(objects, "Service"), "a sidecar has no Service"),
    ]
    return problems + [problem for holds, problem in facts if not holds]
