"""Norms, potentials, their links, and Bregman projections. Pure: arrays in, arrays and numbers out.

JT12's mirror descent needs nothing of its data but these: a potential that is strongly convex in a norm, the gradients
of the potential and of its conjugate, and projections in its divergence.
"""
