"""Settings of the files of one folder."""

import os
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from keep_actors.services.files.patterns import problem_with_pattern
from keep_actors.services.service import ServiceSettings, SettingsError

FileRight: TypeAlias = Literal["read", "write"]

BYTES_MAX: Final = 64 * 1024 * 1024


class FilesSettings(ServiceSettings, frozen=True):
    """The section of `keep.toml`."""

    root: Path
    """The folder. It must be there when the runtime starts."""
    allow: tuple[FileRight, ...] = ("read",)
    patterns: tuple[str, ...] = ("**",)
    """Files that scripts may touch: `*` is any part of a name, `**` any folders, `?` one character."""
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)] = 8 * 1024 * 1024
    """The largest file that is written, appended to, or read as a whole for its hash."""
    hidden: bool = False
    """Names that begin with a dot."""
    hard_links: bool = False
    """Files with more than one name: another name may be outside of the folder."""


def check_settings(settings: FilesSettings) -> None:
    """Refuse what cannot work. Raises `SettingsError`."""
    if not can_hold_folders():
        raise SettingsError("root", "this system cannot open a file relative to an open folder; use Linux or macOS")
    if not settings.allow:
        raise SettingsError("allow", 'is empty; write ["read"] or ["read", "write"]')
    if "read" not in settings.allow:
        raise SettingsError("allow", 'has no "read"; a script must see a file to change it: add "read"')
    if not settings.patterns:
        raise SettingsError("patterns", 'is empty, so that no file could be touched; write ["**"] for all')
    for pattern in settings.patterns:
        if problem := problem_with_pattern(pattern):
            raise SettingsError("patterns", f"{pattern!r} {problem}")


def can_hold_folders() -> bool:
    """True where a path can be walked folder by folder, without a link being followed."""
    needed = {os.open, os.stat, os.rename, os.unlink, os.mkdir}
    return needed <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY")
