"""What released sums of a graph or a matrix tell of cuts that were never measured. Pure: released values alone."""
