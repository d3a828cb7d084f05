"""The queries that there are, a kind a file: words, weights, one form, labels."""
