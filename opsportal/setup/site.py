"""The settings of a site: existing ones, or new ones from the answers."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsportal.setup.answers import SetupAnswers
from opsportal.setup.database import DatabaseTarget
from opsportal.setup.errors import SetupError
from opsportal.setup.files import (
    check_directory,
    exists,
    fits_env_file,
    format_env,
    parse_env,
    read_file,
)
from opsportal.setup.questions import ASKED, GENERATED, holds_secret, is_setting

_REQUIRED = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "VAR_DIR", "STATIC_DIR")


@dataclass
class SetupSite:
    """A site's settings and their files.

    `settings` are the values; `env` is what the env file says, such as `SECRET_KEY_FILE`.
    `new_secrets` are texts of files to create, by path. `is_new`: the env file is to be created.
    """

    env_file: Path
    settings: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    new_secrets: dict[Path, str] = field(default_factory=dict)
    is_new: bool = True
    notes: list[str] = field(default_factory=list)
    _has_generated_password: bool = False

    @property
    def directory(self) -> Path:
        return self.env_file.parent

    @property
    def secrets(self) -> Path:
        return self.directory / "secrets"

    @property
    def env_text(self) -> str:
        return format_env(self.env)

    def file_of(self, name: str) -> Path:
        """Return the file that holds a setting."""
        return self.secrets / name.lower().replace("_", "-")

    @property
    def is_password_new(self) -> bool:
        """Whether the password of the role is generated now: no existing role can have it."""
        return self._has_generated_password and self.file_of("DATABASE_URL") in self.new_secrets

    def load(self, answers: SetupAnswers) -> None:
        """Take the settings of an existing env file. Raises `SetupError`."""
        self.is_new = False
        self.env = parse_env(read_file(self.env_file), self.env_file)
        for name, value in self.env.items():
            setting = name.removesuffix("_FILE")
            if name != setting and is_setting(setting):
                self.settings[setting] = read_file(Path(value))
            else:
                self.settings[name] = value
        missing = [name for name in _REQUIRED if not self.settings.get(name)]
        if missing:
            raise SetupError(
                f"{self.env_file} lacks {', '.join(missing)}: add them there, or move it away"
            )
        self._note_differences(answers)

    def create(self, answers: SetupAnswers) -> None:
        """Take the settings from the answers; secrets that have a file already stay as they are.

        Raises `SetupError`.
        """
        self.is_new = True
        for name in GENERATED:
            self._add(name, answers.values.get(name) or secrets.token_urlsafe(48), answers)
        target = DatabaseTarget.parse(answers.values["DATABASE_URL"])
        if not target.password:
            self._has_generated_password = True
            target = target.with_password(secrets.token_urlsafe(32))
        self._add("DATABASE_URL", target.url, answers)
        asked = [question.key for question in ASKED]
        for name in (*asked, *answers.values):
            if is_setting(name) and name not in self.settings and answers.values[name]:
                self._add(name, answers.values[name], answers)

    def _add(self, name: str, value: str, answers: SetupAnswers) -> None:
        if not holds_secret(name) and fits_env_file(value):
            self.env[name] = self.settings[name] = value
            return
        path = self.file_of(name)
        self.env[f"{name}_FILE"] = str(path)
        if exists(path):
            self.settings[name] = read_file(path)
            if name in answers.values:
                self._note_difference(name, answers.values[name])
        else:
            self.settings[name] = value
            self.new_secrets[path] = value + "\n"

    def _note_differences(self, answers: SetupAnswers) -> None:
        for name, value in answers.values.items():
            if is_setting(name):
                self._note_difference(name, value)

    def _note_difference(self, name: str, answer: str) -> None:
        current = self.settings.get(name, "")
        if name == "DATABASE_URL" and not DatabaseTarget.parse(answer).password:
            answer = (
                DatabaseTarget.parse(answer)
                .with_password(DatabaseTarget.parse(current).password)
                .url
            )
        if answer != current:
            where = (
                self.env_file if name in self.env else self.env.get(f"{name}_FILE", self.env_file)
            )
            self.notes.append(f"{name} stays as it is: to change it, edit {where}")


def check_directories(paths: Iterable[Path]) -> None:
    """Raise `SetupError` for a directory that is there and is a link, or open to other users."""
    for path in paths:
        if exists(path):
            check_directory(path)


def is_real_directory(path: Path) -> bool:
    """Return whether there is a directory. Raises `SetupError` for anything else of that name."""
    if not exists(path):
        return False
    if path.is_symlink() or not path.is_dir():
        raise SetupError(f"{path} is no directory (symbolic links are not followed): remove it")
    return True


def find_var_owner(settings: Mapping[str, str]) -> int | None:
    """Return the uid that owns a site's VAR_DIR; `None` if there is none."""
    path = Path(settings["VAR_DIR"])
    return path.stat().st_uid if is_real_directory(path) else None
