"""Estimates of a table's questions from released counts. Pure: released values alone."""
