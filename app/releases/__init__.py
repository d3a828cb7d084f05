"""Releases for workloads known in advance: what is measured for them, what it costs, and what is made of it."""
