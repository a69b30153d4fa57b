"""Tests of the functions on AWS, of their packages and of the Terraform module."""
