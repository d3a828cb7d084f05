"""The pages of the console, one file a subject."""
