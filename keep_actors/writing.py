"""Public: the prompt for a model that writes a script."""

from keep_actors.authoring.writing import writing_prompt

__all__ = ["writing_prompt"]
