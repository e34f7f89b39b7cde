"""One workflow: its actor, its plan, its deployments and its side tasks."""
