"""The manifests for Kubernetes: valid by its own schemas, and consistent with each other and with Doorstep."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from doorstep import __version__
from doorstep.cli.main import COMMANDS
from doorstep.config import Settings
from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "doorstep.yaml").read_text()))
MONITOR: dict[str, Any] = yaml.safe_load((FOLDER / "servicemonitor.yaml").read_text())
VERSIONS = ("1.31.0", kubernetes_validate.latest_version())
_each = pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']}-{manifest['metadata']['name']}"
)


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [manifest for manifest in MANIFESTS if manifest["kind"] in kinds]


def pods() -> Iterator[dict[str, Any]]:
    for manifest in of_kind("Job", "Deployment"):
        yield manifest["spec"]["template"]


@_each
@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_accept_each_manifest(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_control_a_misspelled_field_is_noticed() -> None:
    broken = deepcopy(of_kind("Deployment")[0])
    broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_every_pod_is_isolated_and_gets_no_variables_from_services() -> None:
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["enableServiceLinks"] is False, "a service named doorstep would set DOORSTEP_PORT"


def test_every_pod_runs_this_version_and_a_command_that_exists() -> None:
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["image"] == f"doorstep:{__version__}"
        assert container["args"][0] in COMMANDS
    assert of_kind("Job")[0]["metadata"]["name"].endswith(__version__)


def test_every_selector_finds_the_pods_of_its_component() -> None:
    labels = [pod["metadata"]["labels"] for pod in pods()]
    for manifest in of_kind("Deployment", "PodDisruptionBudget"):
        assert manifest["spec"]["selector"]["matchLabels"] == manifest["metadata"]["labels"]
        assert manifest["metadata"]["labels"] in labels
    (service,) = of_kind("Service")
    assert service["spec"]["selector"] in labels
    assert MONITOR["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert MONITOR["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_a_pod_has_time_to_stop_gracefully() -> None:
    needed = Settings.model_fields["grace_seconds"].default + 10
    for deployment in of_kind("Deployment"):
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= needed
