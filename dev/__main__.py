"""`python3 -m dev COMMAND`: create the environment, then continue in it.

Any Python 3 can run this file.
"""

import os
import sys

#: The module that does it, once the environment is there, and its first arguments.
COMMANDS = {
    "run": ["dev.run"],
    "shell": ["dev.shell"],
    "test": ["dev.test"],
    "test-fast": ["dev.test", "--fast"],
    "test-versions": ["dev.versions"],
    "lint": ["dev.checks"],
    "types": ["dev.checks", "types"],
    "fmt": ["dev.fmt"],
    "install": [],
    "release": ["dev.packaging.release"],
}
#: Those that need nothing but what the portal itself needs.
PORTAL_COMMANDS = ("run", "shell")
PORTAL_DIRECTORIES = ("apps", "dev", "opsportal")
TEST_DIRECTORIES = ("benchmarks", "tests")


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036
        version = ".".join(str(number) for number in sys.version_info[:2])
        print(
            "error: Python "
            + version
            + " is too old: install Python 3.11 or later, then make PYTHON=python3.11 …",
            file=sys.stderr,
        )
        return 1
    from dev import bytecode, claim, environment, messages

    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print("usage: python3 -m dev " + "|".join(COMMANDS), file=sys.stderr)
        return 2
    command, arguments = sys.argv[1], sys.argv[2:]
    try:
        if command == "run":
            claim.hand_on(claim.claim(*claim.parse_options(arguments)))
        is_of_portal = command in PORTAL_COMMANDS
        python = environment.ensure(
            "requirements.lock" if is_of_portal else "requirements-dev.lock"
        )
        names = PORTAL_DIRECTORIES if is_of_portal else PORTAL_DIRECTORIES + TEST_DIRECTORIES
        bytecode.compile_project(environment.ROOT / name for name in names)
    except messages.SetupError as error:
        return messages.fail(error)
    except KeyboardInterrupt:
        return 130
    if not COMMANDS[command]:
        return 0
    return os.execv(python, [str(python), "-m", *COMMANDS[command], *arguments])


if __name__ == "__main__":
    sys.exit(main())
