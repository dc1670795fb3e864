"""Options, variables, and what is wrong with them."""

import pytest

from capture.configuration import (
    LOG_LEVELS,
    BadConfiguration,
    parse_options,
    read_configuration,
)
from capture.main import main
from capture.watch.base import Watch
from opsportal.env import Environment

GOOD = {
    "CAPTURE_CLUSTER": "alps",
    "CAPTURE_SPOOL": "/spool",
    "CAPTURE_PORTAL": "https://portal.example.org/",
    "ARCHIVE_PORTAL_TOKEN": "geheim",
    "MASKING_KEY": "geheim",
    "VAR_DIR": "/var/lib/opsportal",
}


def read(*arguments, **changes):
    """Read the configuration of a good environment with these changes; None leaves out."""
    changed = GOOD | changes
    environment = {name: value for name, value in changed.items() if value is not None}
    return read_configuration(parse_options(arguments, environment), environment)


def test_variables_are_enough():
    configuration = read()
    assert (configuration.cluster, configuration.scheduler) == ("alps", "slurm")
    assert str(configuration.spool) == "/spool"
    assert str(configuration.journal) == "/var/lib/opsportal/journal/alps"
    assert (configuration.portal, configuration.token) == (GOOD["CAPTURE_PORTAL"], "geheim")
    assert (configuration.watch, configuration.once) == (Watch.AUTO, False)
    assert "geheim" not in repr(configuration)


def test_option_wins_over_variable():
    configuration = read("--cluster", "jura", "--watch", "polling", CAPTURE_WATCH="inotify")
    assert (configuration.cluster, configuration.watch) == ("jura", Watch.POLLING)


def test_secret_in_a_file_is_read_without_its_line_end(tmp_path):
    (tmp_path / "token").write_text("from a file\n")
    configuration = read(
        ARCHIVE_PORTAL_TOKEN=None, ARCHIVE_PORTAL_TOKEN_FILE=str(tmp_path / "token")
    )
    assert configuration.token == "from a file"


def test_names_of_secrets_are_those_of_the_portal_unless_set():
    default = Environment.model_fields["CAPTURE_MASK_NAMES"].default
    assert read().mask_names == default
    assert read(CAPTURE_MASK_NAMES="PIN").mask_names == "PIN"
    assert read(CAPTURE_MASK_NAMES="").mask_names == "", "empty: none"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"CAPTURE_CLUSTER": None}, "Set the cluster"),
        ({"CAPTURE_CLUSTER": "a/b"}, "Set the cluster"),
        ({"CAPTURE_SPOOL": None}, "Set the spool directory"),
        ({"MASKING_KEY": None}, "Set MASKING_KEY"),
        ({"CAPTURE_PORTAL": None}, "Set CAPTURE_PORTAL to the portal's address"),
        ({"CAPTURE_PORTAL": "portal.example.org"}, "as https://HOST/"),
        ({"CAPTURE_PORTAL": "https://me:geheim@portal.example.org"}, "without user or password"),
        ({"CAPTURE_PORTAL": "https://portal.example.org/?a=geheim"}, "as https://HOST/"),
        ({"ARCHIVE_PORTAL_TOKEN": None}, "Set ARCHIVE_PORTAL_TOKEN or ARCHIVE_PORTAL_TOKEN_FILE"),
        ({"MASKING_KEY_FILE": "/etc/key"}, "MASKING_KEY and MASKING_KEY_FILE are both set"),
        ({"CAPTURE_SPOOL": None, "CAPTURE_SPOOL_FILE": "/proc/none"}, "CAPTURE_SPOOL_FILE: "),
        ({"CAPTURE_WATCH": "sometimes"}, "CAPTURE_WATCH: choose one of auto, inotify, polling"),
        ({"CAPTURE_MASK_NAMES": "("}, "CAPTURE_MASK_NAMES: is not a regular expression"),
        ({"LOG_LEVEL": "LOUD"}, f"LOG_LEVEL: choose one of {', '.join(LOG_LEVELS)}"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_repeated(changes, reason):
    with pytest.raises(BadConfiguration) as error:
        read(**changes)
    assert reason in str(error.value)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"CAPTURE_SPOOL": "/proc/none"}, "/proc/none: no Slurm spool: No such file"),
        ({"CAPTURE_SCHEDULER": "lsf"}, "no plugin of opsportal.schedulers is named 'lsf'"),
        ({"CAPTURE_SPOOL": ""}, "Set the spool directory"),
    ],
)
def test_capture_that_cannot_start_fails_and_says_why(capsys, tmp_path, changes, message):
    environment = GOOD | {"CAPTURE_JOURNAL": str(tmp_path)} | changes
    assert main([], environment) == 1
    output = capsys.readouterr()
    assert output.err.startswith("error: ")
    assert message in output.err
