"""The service put together and run: the only place that knows every part. Importing it opens and reads nothing."""
