"""Text for spreadsheets: nothing that a job has named is run there."""

import pytest

from apps.core.domain.exports.tables import table_cell, tsv


@pytest.mark.parametrize(
    "text",
    ["=cmd|'/C calc'!A0", "+1+cmd", "-2+3+cmd", "@SUM(1)", "\t=1+1", "\r\n=1+1", "＝1+1", "\0=1"],
)
def test_formula_is_text(text):
    assert table_cell(text).startswith("'")


@pytest.mark.parametrize(
    "text", ["", "-1", "+3.5", "1e-9", "-1.5E+3", "NOVA-0231", "alps/1", "a=b", "user@host"]
)
def test_other_values_stay(text):
    assert table_cell(text) == text


def test_each_cell_is_in_its_column():
    assert tsv([("job", "na\tme"), (12, "a\r\nb"), (-3, "=1")]) == "job\tna me\n12\ta b\n-3\t'=1\n"
