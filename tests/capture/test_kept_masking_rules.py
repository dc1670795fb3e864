"""The masking rules that outlive the connection to the portal."""

import pytest

from apps.core.domain.secrets.masking import MaskPattern
from capture.masking_rules import KeptRules

RULES = [MaskPattern("name", "^PIN$"), MaskPattern("value", "s3cr3t")]


def test_rules_are_there_again_at_the_next_start(tmp_path):
    assert not KeptRules(tmp_path).received
    assert not KeptRules(tmp_path).keep([])
    assert KeptRules(tmp_path).received, "that there are none is known too"
    assert KeptRules(tmp_path).rules == ()
    assert KeptRules(tmp_path).keep(RULES)

    known = KeptRules(tmp_path)

    assert known.rules == tuple(RULES)
    assert not known.keep(RULES)
    assert known.keep([])
    assert KeptRules(tmp_path).rules == ()


@pytest.mark.parametrize("content", ["", "{", "[1]", '[["name", "x*"]]', '[["name"]]'])
def test_file_that_cannot_be_read_is_named_and_not_taken_for_no_rules(tmp_path, content):
    (tmp_path / "masking-rules.json").write_text(content)

    with pytest.raises(ValueError, match=r"masking-rules\.json"):
        KeptRules(tmp_path)
