"""docs/production.md is followed by `python -m benchmarks.installation`, and no block is forgotten."""

from collections import Counter

import pytest

from benchmarks.installation.guide import FOLLOWED, LEFT_OUT, blocks, text_of

KNOWN = [*FOLLOWED.values(), *LEFT_OUT]


def test_each_block_is_followed_or_left_out_for_a_reason():
    places = Counter()
    for block in blocks():
        matching = [
            (section, start)
            for section, start in KNOWN
            if section == block.section and block.text.startswith(start)
        ]
        assert len(matching) == 1, f"{block.section}: {block.text}"
        places[matching[0]] += 1
    assert places == Counter(KNOWN)


@pytest.mark.parametrize("name", FOLLOWED)
def test_block_is_found_by_its_name(name):
    section, start = FOLLOWED[name]
    text = text_of(name)
    assert text.startswith(start)
    assert not text.startswith(" ")
    assert section not in text


def test_blocks_are_whole():
    assert text_of("code").splitlines()[-1].endswith("/usr/local/bin/")
    assert text_of("settings").splitlines()[-1] == "SUPPORT_CONTACT=ops@example.org"
    assert text_of("answers").splitlines()[-1].startswith("admin_password")
