"""Integrations: a business system feeds a CRM by webhook, a partner by EDI, and an ERP; people repair what fails."""
