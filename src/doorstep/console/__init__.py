"""The console: pages for operators, served by the same process as the API."""
