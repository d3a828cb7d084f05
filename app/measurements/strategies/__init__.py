"""Strategies: what can be measured, one file each."""
