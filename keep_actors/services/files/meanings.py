"""The table of what an error of the file system means, before the effect of a call and at it. Pure.

At the effect (a rename, the removal of a name) only a clear refusal is believed. Over a network the answer may
be lost and the step be tried again by the system: the second try then fails as if there were no such file.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from keep_actors.connectors import (
    ConnectorError,
    InvalidCall,
    MutationCall,
    PermissionDenied,
    PreconditionFailed,
    Transient,
)


class FileMeaning(NamedTuple):
    """One row."""

    raised: type[ConnectorError]
    words: str
    is_certain: bool = True
    """At the effect: nothing happened. False: there the outcome is unknown."""


_RETRY_MS: Final = 60_000

FILE_MEANINGS: Final[Mapping[int, FileMeaning]] = {
    errno.ENOENT: FileMeaning(PreconditionFailed, "is not there", is_certain=False),
    errno.EEXIST: FileMeaning(PreconditionFailed, "is there already", is_certain=False),
    errno.ENOTDIR: FileMeaning(PreconditionFailed, "a part of the path is not a folder, or is a link"),
    errno.ELOOP: FileMeaning(PreconditionFailed, "a part of the path is a link; links are not followed"),
    errno.EISDIR: FileMeaning(PreconditionFailed, "is a folder"),
    errno.ENXIO: FileMeaning(PreconditionFailed, "is not a file"),
    errno.EXDEV: FileMeaning(PreconditionFailed, "is on another file system"),
    errno.EMLINK: FileMeaning(PreconditionFailed, "its folder has as many folders as the file system allows"),
    errno.ENOTSUP: FileMeaning(
        PreconditionFailed,
        "this file system cannot give a new name without replacing another file; make the file first",
    ),
    errno.EFBIG: FileMeaning(PreconditionFailed, "would be larger than the system allows"),
    errno.EACCES: FileMeaning(PermissionDenied, "the system does not permit it"),
    errno.EPERM: FileMeaning(PermissionDenied, "the system does not permit it"),
    errno.EROFS: FileMeaning(PermissionDenied, "the file system is read-only"),
    errno.ENAMETOOLONG: FileMeaning(InvalidCall, "the name is too long for the file system"),
    errno.EILSEQ: FileMeaning(InvalidCall, "the file system does not take this name"),
    errno.EINVAL: FileMeaning(InvalidCall, "the file system does not take this name", is_certain=False),
    errno.ENOSPC: FileMeaning(Transient, "the disk is full"),
    errno.EDQUOT: FileMeaning(Transient, "the quota of the disk is used up"),
    errno.EMFILE: FileMeaning(Transient, "the process has too many open files"),
    errno.ENFILE: FileMeaning(Transient, "the system has too many open files"),
    errno.ENOMEM: FileMeaning(Transient, "there is not enough memory", is_certain=False),
    errno.EAGAIN: FileMeaning(Transient, "is in use", is_certain=False),
    errno.EBUSY: FileMeaning(Transient, "is in use"),
    errno.ETXTBSY: FileMeaning(Transient, "is a program that runs"),
}
"""By error number. An error without a row (a disk that fails, a server that is gone) is passed on: transient before
the effect, unknown from there on."""


def meaning(error: OSError, about: str, *, at_effect: bool) -> ConnectorError | None:
    """The error that a connector raises for it. None: the error itself."""
    found = FILE_MEANINGS.get(error.errno or 0)
    if found is None or (at_effect and not found.is_certain):
        return None
    words = f"{about}: {found.words}" if about else found.words
    return Transient(words, _RETRY_MS) if found.raised is Transient else found.raised(words)


@contextmanager
def in_words(about: str, call: MutationCall | None = None) -> Iterator[None]:
    """Translate what fails before the effect. Errors after `call.sending()` pass as they are."""
    try:
        yield
    except OSError as error:
        said = None if call is not None and call.is_sent else meaning(error, about, at_effect=False)
        if said is None:
            raise
        raise said from error


@contextmanager
def effect(about: str) -> Iterator[None]:
    """Translate what fails in the one step that has the effect."""
    try:
        yield
    except OSError as error:
        said = meaning(error, about, at_effect=True)
        if said is None:
            raise
        raise said from error
