"""Lambda functions: `api` answers requests, `delivery` makes attempts, `sweeper` does what no message announces.

Each is one module with a `handler`, and loads only what it needs. deploy/aws is the Terraform module that runs them.
"""
