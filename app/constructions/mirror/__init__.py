"""Forms of mirror descent: one file a potential, each a state and its moves.

A form keeps theta and the hypothesis ``grad Psi*(theta)`` in whatever layout makes queries cheap to answer and a line
cheap to search; :mod:`app.constructions.mirror_descent` decides how far to move.
"""
