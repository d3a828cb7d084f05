"""What estimates of every kind share: averages by precision, intervals, and how far predictions were off."""
