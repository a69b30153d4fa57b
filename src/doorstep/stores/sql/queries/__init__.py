"""Every verb outside the hot path, written once for both SQL stores: `script` says how, `verbs` lists them."""

from __future__ import annotations
