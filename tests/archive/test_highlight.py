"""Colours add nothing to a script but tags, and never take long."""

import random
import re
import string
import time
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.archive.domain.shown_contents import SHOWN_BYTES, show_script
from apps.archive.web import highlight as highlight_module
from apps.archive.web.highlight import highlight
from apps.archive.web.templatetags.scripts import highlighted

SHELL = st.text(alphabet="ab1 $\"'`{}()<>&|;#\\=/-\t!", max_size=120)


def text(html):
    return unescape(re.sub(r'</?i(?: class="[a-z]+")?>', "", html))


@given(
    st.lists(
        st.one_of(SHELL, st.text(st.characters(exclude_characters="\n", codec="utf-8"))),
        min_size=1,
        max_size=8,
    )
)
@settings(deadline=None)
def test_text_stays_as_it_is(lines):
    assert [text(line) for line in highlight(lines)] == lines


@pytest.mark.parametrize(
    "first", ["#!/bin/bash", "#!/usr/bin/env python3", "#!/usr/bin/perl", "#!/bin/tcsh", ""]
)
@given(lines=st.lists(SHELL, max_size=6))
@settings(deadline=None, max_examples=30)
def test_text_stays_as_it_is_in_every_language(first, lines):
    assert [text(line) for line in highlight([first, *lines])] == [first, *lines]


def test_what_is_what():
    html = highlight(
        ["#!/bin/bash", "#SBATCH --mem=4G", "# note", "if true; then echo \"a $B\" '<b>'; fi"]
    )

    assert html[1] == '<i class="directive">#SBATCH --mem=4G</i>'
    assert html[2] == '<i class="comment"># note</i>'
    assert '<i class="keyword">if</i>' in html[3]
    assert '<i class="variable">$B</i>' in html[3]
    assert "&lt;b&gt;" in html[3]


@pytest.mark.parametrize(
    "piece",
    [
        b"<<a\\n",
        b"<<'a'\\n",
        b"cat <<EOF\\n",
        b"<<a ",
        b'"',
        b"$((",
        b"${",
        b"'\n",
        b"`",
        b"\\",
        b"$(",
        b"a" * 50 + b"\n",
        b"<<-'x'\n",
        b"/* ",
        b'"""\n',
        b"[[",
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "first", [b"#!/bin/sh\n", b"#!/usr/bin/python\n", b"#!/usr/bin/perl\n", b"#!/bin/csh\n"]
)
def test_hostile_scripts_take_no_time(first, piece, monkeypatch):
    # 64 scripts would take 0.25 s of CPU each.
    monkeypatch.setattr(highlight_module, "SECONDS", 0.05)
    script = (first + piece * SHOWN_BYTES)[:SHOWN_BYTES]
    highlight(["echo"])  # the process is there
    shown = show_script(script, size_bytes=len(script))
    began = time.monotonic()
    assert [text(line) for line in highlighted(shown.lines)] == shown.lines
    # The lexer has a moment for it; without a budget it takes minutes.
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "first", ["#!/bin/sh\n", "#!/usr/bin/python\n", "#!/usr/bin/perl\n", "#!/bin/csh\n"]
)
def test_token_that_takes_minutes_is_shown_without_colours(first):
    """Bash's rule of here-documents looks for each beginning of a long word in all that follows."""
    word = "".join(random.Random(1).choices(string.ascii_letters, k=SHOWN_BYTES))
    highlight(["echo"])
    lines = (first + "cat <<" + word).split("\n")
    began = time.monotonic()
    assert [text(line) for line in highlight(lines)] == lines
    assert time.monotonic() - began < 10
