"""Programs that only these tests need, and that may be missing on a machine."""

from __future__ import annotations

import os
import shutil
import warnings

import pytest


def needed(name: str) -> str:
    """The path of a program. Skips the test, with a warning, if it is not on this machine."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        warnings.warn(f"NOT TESTED: {name} is not on this machine", stacklevel=2)
        pytest.skip(f"{name} is not on this machine")
    return found
