"""The report of a log: a document of what its lines say and of what follows of them, and a page made of that."""
