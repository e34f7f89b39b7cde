"""One run of one handler, from its start to its commit or its stop."""
