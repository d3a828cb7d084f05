"""What a transaction reads and writes, one file a noun; :class:`app.storage.store.SqlTransaction` is all of them."""
