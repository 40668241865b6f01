"""Runs all checks of the chart, and lists what is wrong. Started by .ci/chart, which brings the tools."""

import sys
import time
from pathlib import Path

# For ports.py.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import cluster
import documents
import gateway
import properties
import rendering
import sidecar

CHECKS = [
    rendering.lint,
    rendering.ways_of_use_are_valid,
    rendering.bad_values_are_refused,
    rendering.manifests_of_the_tree,
    gateway.configurations,
    properties.toggles,
    properties.pairs_of_toggles,
    properties.places,
    properties.rights,
    properties.roles,
    properties.peers,
    properties.tree,
    sidecar.in_an_application,
    documents.readme_table,
    documents.readme_installs,
    documents.schema_knows_every_field,
    documents.versions,
    documents.alerts,
    documents.dashboard,
    cluster.life_of_a_release,
    cluster.dry_runs_on_other_servers,
]


def main() -> int:
    failed = 0
    for check in CHECKS:
        started = time.monotonic()
        problems = check()
        failed += len(problems)
        name = f"{check.__module__}: {check.__name__.replace('_', ' ')}"
        print(f"{name}: {'ok' if not problems else 'FAILED'} ({time.monotonic() - started:.1f} s)", flush=True)
        for problem in problems:
            print(f"  {problem}", flush=True)
    return 1 if failed else 0


sys.exit(main())
