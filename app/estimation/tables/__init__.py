"""What released counts of a table tell of questions that were never measured. Pure: released values alone."""
