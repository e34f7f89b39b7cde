"""Help for authors of scripts: checks, types, prompts and dry runs. Changes nothing."""
