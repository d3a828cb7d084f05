"""What can be measured, one file a strategy."""
