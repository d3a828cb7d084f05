"""The common parts of all estimates: averages by precision, intervals, and how far predictions were off."""
