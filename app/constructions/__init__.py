"""Iterative database constructions: public hypotheses that improve with each measurement. Pure.

One file a construction; :func:`app.constructions.registry.construct` makes them from a mechanism.
"""
