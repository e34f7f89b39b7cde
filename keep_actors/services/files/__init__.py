"""`ctx.files`: files below one folder, with no way out of it."""

from keep_actors.services.files.connector import Files
from keep_actors.services.files.settings import FilesSettings

__all__ = ["Files", "FilesSettings"]
