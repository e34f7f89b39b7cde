"""The same unit of work on keep-actors and on its peers. Imports nothing here: drivers cannot import the harness."""
