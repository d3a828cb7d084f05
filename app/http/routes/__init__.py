"""The routes of the contract, one module a resource. Each adds its own to an application over a context."""
