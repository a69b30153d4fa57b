"""The Terraform module, applied to an emulator of AWS with packages that were built for the Python of this machine.

The AWS provider must be available to `terraform init`: from the registry or, where that cannot be reached, from a mirror in
the file system (`TF_CLI_ARGS_init=-plugin-dir=FOLDER`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.ministack import CREDENTIALS

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "deploy" / "aws"
REGION = "eu-central-1"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_NOT_TESTED = "THE TERRAFORM MODULE WAS NOT APPLIED:"

_ROOT_MODULE = """
variable "given" { type = any }
provider "aws" {
  region                      = "eu-central-1"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
}
module "doorstep" {
  source               = "MODULE"
  packages             = var.given.packages
  runtime              = "pythonPYTHON"
  admin_key            = var.given.admin_key
  secret_key           = var.given.secret_key
  app                  = var.given.app
  retry_delays         = var.given.retry_delays
  service_name         = "triggers"
  timeout_seconds_max  = 5
  deletion_protection  = false
  settings             = var.given.settings
}
output "all" { value = module.doorstep }
"""


class Terraform:
    """A root module in a folder, that uses the module of this repository."""

    def __init__(self, folder: Path, endpoint: str, given: Mapping[str, object]) -> None:
        if shutil.which("terraform") is None:
            pytest.skip(f"{_NOT_TESTED} TERRAFORM IS NOT INSTALLED")
        self._folder = folder
        self._environ = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": endpoint, "TF_IN_AUTOMATION": "1"}
        (folder / "main.tf").write_text(_ROOT_MODULE.replace("MODULE", str(MODULE)).replace("PYTHON", PYTHON))
        (folder / "terraform.tfvars.json").write_text(json.dumps({"given": given}))
        initialized = self._run("init", "-input=false")
        if initialized.returncode:
            pytest.skip(f"{_NOT_TESTED} THE PROVIDER CANNOT BE HAD: {initialized.stderr[-300:]}")

    def apply(self) -> dict[str, Any]:
        """Create everything; returns the outputs."""
        self._checked("apply", "-input=false", "-auto-approve")
        outputs: dict[str, Any] = json.loads(self._checked("output", "-json"))["all"]["value"]
        return outputs

    def validate(self) -> None:
        self._checked("validate")

    def changes(self) -> dict[str, list[str]]:
        """The resources that a plan would change, and the actions."""
        self._checked("plan", "-input=false", "-out=plan")
        plan = json.loads(self._checked("show", "-json", "plan"))
        changes = {one["address"]: one["change"]["actions"] for one in plan["resource_changes"]}
        return {address: actions for address, actions in changes.items() if actions != ["no-op"]}

    def _checked(self, *arguments: str) -> str:
        done = self._run(*arguments)
        assert done.returncode == 0, f"terraform {arguments[0]}: {done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        return done.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["terraform", arguments[0], "-no-color", *arguments[1:]]
            if arguments[0] != "show"
            else ["terraform", *arguments],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )


def client(service: str, endpoint: str) -> Any:
    """A client of the emulator."""
    import botocore.session

    return botocore.session.get_session().create_client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
