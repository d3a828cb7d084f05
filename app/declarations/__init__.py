"""Statements about a data set before it is read: declarations, and drafts and imports of them."""
