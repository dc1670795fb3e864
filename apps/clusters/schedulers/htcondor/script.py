"""Find a job's script, in the spool or, most often, still in the user's directory."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from apps.clusters.schedulers.base import SpoolError
from apps.clusters.schedulers.htcondor.classads import Ad, integer_of, string_of, text_of, truth_of
from apps.clusters.schedulers.htcondor.slow_files import Patience
from apps.clusters.schedulers.user_files import FileReader, NotNow, NotReadable, account_of, read_as

COPIED = "copied from the user's directory, not from the spool"
EDITED = "; edited since submit"
_ELF = b"\x7fELF"


class Script(NamedTuple):
    """A script, and why it may differ from the one that ran. Empty if none can be kept."""

    content: bytes
    caveat: str = ""


def find_script(spool: Path, cluster: int, ad: Ad, *, max_bytes: int, patience: Patience) -> Script:
    """Return the executable of a job if it is a script.

    Raises `SpoolError` if a retry may succeed.
    """
    owner = text_of(ad, "Owner")
    os_user = text_of(ad, "OsUser").partition("@")[0]
    # In older schedds any user can set OsUser, so it is ignored unless it equals the owner.
    account = account_of(owner) if os_user in ("", owner) else FileReader()
    command = string_of(ad, "Cmd")
    directory = Path(os.fsdecode(string_of(ad, "Iwd") or b"/"))
    try:
        spooled = spool / str(cluster % 10_000) / f"cluster{cluster}.ickpt.subproc0"
        return _kept(read_as(None, spooled, max_bytes=max_bytes)[0], "")
    except NotReadable:
        pass
    # The usual case: the executable is not spooled.
    if not command:
        return Script(b"", "the job names no executable")
    if truth_of(ad, "TransferExecutable") is False:
        return Script(
            b"", "the executable is not of this host: it is on the execute host or in its image"
        )
    path = Path(os.path.normpath(directory / os.fsdecode(command)))
    try:
        content, status = patience.read_as(account, path, max_bytes=max_bytes)
    except NotNow as error:
        raise SpoolError(f"{path}: {error}") from error
    except NotReadable as error:
        return Script(b"", f"the executable was not copied: {error}")
    in_spool = spool in path.parents
    since = integer_of(ad, "StageInFinish" if in_spool else "QDate") or 0
    edited = int(status.st_mtime) > since
    if in_spool:
        return _kept(content, "changed in the spool since it was submitted" if edited else "")
    return _kept(content, COPIED + EDITED * edited)


def _kept(content: bytes, caveat: str) -> Script:
    if not content.startswith(_ELF):
        return Script(content, caveat)
    digest = hashlib.sha256(content).hexdigest()
    return Script(
        b"", f"the executable is a binary of {len(content)} bytes, not kept; SHA-256 {digest}"
    )
