"""The file system of a directory.

The kernel sees no writes by other hosts to a network file system.
"""

import os
from pathlib import Path

_NETWORK = {
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "gfs2",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "panfs",
    "pvfs2",
    "smb3",
    "virtiofs",
    "wekafs",
}
_MOUNTS = Path("/proc/self/mountinfo")


def is_network(directory: Path) -> bool:
    """Whether other hosts may write to it: fuse counts, as most of its file systems are remote."""
    kind = type_of(directory)
    return kind in _NETWORK or kind == "fuse" or kind.startswith("fuse.")


def type_of(directory: Path) -> str:
    """Return the type of a directory's file system as in mount(8), or "" if it is unknown."""
    try:
        mount = _mount_of(directory)
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    # See proc(5): id, parent, device, root, mount point, options, …, "-", type, source, options.
    for line in mounts:
        fields = line.split(" ")
        if fields[0] == mount:
            return fields[fields.index("-") + 1]
    return ""


def _mount_of(directory: Path) -> str:
    """Return the ID of a directory's mount.

    Unlike the path, it is correct for links, bind mounts and mounts over others.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        description = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    finally:
        os.close(descriptor)
    return dict(line.split(":\t") for line in description.splitlines())["mnt_id"]
