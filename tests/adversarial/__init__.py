"""Attacks on a running service, each of which must fail."""
