"""Measurements: a strategy, its noise and its values; released once, and public for ever."""
