"""Tars, compared with those of the standard library."""

import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from apps.core.domain.exports.tar import TarMember, write_tar

MEMBERS = st.builds(
    TarMember,
    name=st.text(
        st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"),
        min_size=1,
        max_size=300,
    ),
    content=st.binary(max_size=1_100) | st.integers(0, 30_000).map(bytes),
    mode=st.sampled_from([0o600, 0o644, 0o755]),
    modified_at=st.integers(0, 2**31),
)


def tar_of_the_standard_library(members):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for member in members:
            header = tarfile.TarInfo(member.name)
            header.size, header.mode, header.mtime = (
                len(member.content),
                member.mode,
                member.modified_at,
            )
            tar.addfile(header, io.BytesIO(member.content))
    return written.getvalue()


@given(st.lists(MEMBERS, max_size=5))
def test_bytes_are_those_of_the_standard_library(members):
    assert b"".join(write_tar(members)) == tar_of_the_standard_library(members)


def test_next_member_is_taken_once_the_chunk_of_the_one_before_was_taken():
    taken = []

    def members():
        for name in "abc":
            taken.append(name)
            yield TarMember(name, b"content")

    chunks = write_tar(members())
    next(chunks)
    assert taken == ["a"]
    next(chunks)
    assert taken == ["a", "b"]
