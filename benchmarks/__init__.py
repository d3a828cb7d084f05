"""Benchmarks: each prints a table and writes JSON. Figures are ratios measured side by side in one run."""
