"""One module per system: `python -m bench.peers.drivers.NAME PLAN`, run by the Python of that system's environment."""
