"""`python3 -m dev COMMAND`: makes the environment, then goes on in it. Any Python 3 reads this."""

import os
import sys

COMMANDS = ("run", "test", "test-fast", "lint", "install")


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036
        found = ".".join(str(number) for number in sys.version_info[:2])
        print(
            "error: Python " + found + " is too old: install Python 3.11 or later, then make PYTHON=python3.11 …",
            file=sys.stderr,
        )
        return 1
    from dev import claim, environment, messages

    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print("usage: python3 -m dev " + "|".join(COMMANDS), file=sys.stderr)
        return 2
    command, arguments = sys.argv[1], sys.argv[2:]
    try:
        if command == "run":
            claim.hand_on(claim.claim(*claim.parse_options(arguments)))
        python = environment.ensure("requirements.lock" if command == "run" else "requirements-dev.lock")
    except messages.SetupError as error:
        return messages.fail(error)
    except KeyboardInterrupt:
        return 130
    if command == "install":
        return 0
    module = "dev.run" if command == "run" else "dev.test"
    if command == "test-fast":
        arguments = ["--fast", *arguments]
    if command == "lint":
        arguments = ["--checks"]
    return os.execv(python, [str(python), "-m", module, *arguments])


if __name__ == "__main__":
    sys.exit(main())
