"""Mechanisms: what becomes of a query, decided from what is public alone."""
