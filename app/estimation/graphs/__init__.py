"""Estimates of a graph's or a matrix's cuts from released sums. Pure: released values alone."""
