"""The transaction scripts of all store methods outside the hot path, written once for both SQL stores, with one module
per concept. transaction.py explains how a script runs; stores/sql/verbs.py calls the scripts."""

from __future__ import annotations
