"""The same unit of work on keep-actors and on its peers. This package's `__init__` imports nothing: drivers need that."""
