"""Actions and questions that an embedding service, the command line and the control socket have for a runtime."""
