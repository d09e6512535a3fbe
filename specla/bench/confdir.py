"""Where the configuration lies."""

from pathlib import Path

import specla
from specla.errors import SpeclaError


def conf_dir() -> Path:
    """The conf/ of the checkout that specla is imported from, else the one packaged with it."""
    package = Path(specla.__file__).resolve().parent
    checkout = package.parent
    # Installed, the folder beside the package is site-packages, whose conf/, if it has one, is somebody else's.
    is_checkout = any((checkout / mark).exists() for mark in ("pyproject.toml", ".git"))
    if is_checkout and (checkout / "conf" / "config.yaml").is_file():
        return checkout / "conf"
    if (package / "conf" / "config.yaml").is_file():
        return package / "conf"
    raise SpeclaError(f"{package / 'conf'}: the configuration that ships with specla is missing; install it again")


def own_conf_dir(folder: str | Path) -> Path:
    """A user's own folder, checked. Raises SpeclaError where there is none."""
    if not str(folder):
        raise SpeclaError("--config-dir='': name a folder, or leave the option out")
    try:
        path = Path(folder).expanduser()
        if path.is_dir():
            return path.resolve()
    except (OSError, RuntimeError) as error:
        raise SpeclaError(f"--config-dir={folder}: cannot be read ({error})") from None
    raise SpeclaError(f"--config-dir={folder}: no such folder")


def replaced(conf: Path, own: Path) -> list[str]:
    """The shipped files that a user's folder replaces, relative to it."""
    names = sorted(path.relative_to(own).as_posix() for path in own.rglob("*.yaml"))
    return [name for name in names if (conf / name).is_file()]
