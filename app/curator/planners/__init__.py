"""Planners of sessions and releases: one of each kind, which makes an offer from public facts."""
