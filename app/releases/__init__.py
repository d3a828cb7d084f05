"""Releases for questions that are known ahead: what to measure, with how much noise. Pure: no private data."""
