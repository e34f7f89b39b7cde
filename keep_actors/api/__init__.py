"""What an embedding service, the command line and the control socket can ask of a runtime."""
