"""Integrations: a business system feeds a CRM by webhook, a partner by EDI, and an ERP; operators fix failures."""
