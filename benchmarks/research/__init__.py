"""How near answers are to the truth, beside what else could be done with the same budget."""
