"""Integrations: a business system feeds a CRM by webhook, a partner by EDI, and an ERP; administrators fix failures."""

from examples.integrations.program import app

__all__ = ["app"]
