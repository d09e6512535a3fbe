"""Acceptance profiles: alpha by depth and rank, measured on one pair of target and drafter, dialled in on another.

A profile is a JSON object, written by `specla explain profile` and read by `drafter.profile`:

    schema      1
    alpha       a list a depth, from depth 1: P(rank r right | parent accepted), the likeliest rank first; the shares
                of a depth sum to at most 1, and deeper levels are as the last
    offered     optional, the same shape: how many steps each share is of
    model, drafter, topology, workload, temperature
                optional: where it was measured

Whatever it was measured on, a decode that is driven by it has synthetic acceptance.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specla.bench.codec import decode
from specla.bench.settings import DrafterSettings
from specla.errors import SpeclaError
from specla.topology import MAX_NODES

SCHEMA = 1
_MOST_BYTES = 1 << 20
_ROUNDING = 1e-6
_WANTED = "give a JSON object with 'schema' and 'alpha', as `specla explain profile RUN` writes"


@dataclass(frozen=True)
class Profile:
    """See the top of this file."""

    schema: int
    alpha: tuple[tuple[float, ...], ...]
    offered: tuple[tuple[int, ...], ...] = ()
    model: str = ""
    drafter: str = ""
    topology: str = ""
    workload: str = ""
    temperature: float = 0.0


def read_profile(name: str) -> Profile:
    """The profile in a file. Raises SpeclaError where it is missing, damaged, or its shares are none."""
    where = f"drafter.profile={name}"
    data = _json(name, where)
    if not isinstance(data, dict):
        raise SpeclaError(f"{where}: no profile; {_WANTED}")
    if data.get("schema") != SCHEMA:
        raise SpeclaError(f"{where}: has schema {data.get('schema')!r}; this version reads {SCHEMA}")
    try:
        profile: Profile = decode(Profile, data, where)
    except SpeclaError as damage:
        raise SpeclaError(f"{damage}; {_WANTED}") from None
    if not 1 <= len(profile.alpha) < MAX_NODES or not all(profile.alpha):
        raise SpeclaError(f"{where}: alpha holds {len(profile.alpha)} depths; give 1 to {MAX_NODES - 1}, none empty")
    for depth, line in enumerate(profile.alpha, start=1):
        if not all(0 <= share <= 1 for share in line):
            raise SpeclaError(f"{where}: alpha at depth {depth}: a share accepted is from 0 to 1")
        if sum(line) > 1 + _ROUNDING:
            raise SpeclaError(f"{where}: alpha at depth {depth} sums to {sum(line):.4g}; shares sum to at most 1")
    return profile


def profile_digest(drafter: DrafterSettings) -> str:
    """sha256 of the profile's file, for fingerprints; empty where there is none."""
    if drafter.profile is None:
        return ""
    return hashlib.sha256(_bytes(drafter.profile, f"drafter.profile={drafter.profile}")).hexdigest()


def oracle_alpha(drafter: DrafterSettings) -> Any:
    """What an oracle is right with, an `Alpha`: its profile's where it has one; None where it has none at all."""
    return drafter.alpha if drafter.profile is None else read_profile(drafter.profile).alpha


def profile_name(drafter: DrafterSettings) -> str | None:
    """A profile by the name of its file, as labels have it."""
    return None if drafter.profile is None else Path(drafter.profile).stem


def _bytes(name: str, where: str) -> bytes:
    path = Path(name).expanduser()
    if not path.is_file():
        raise SpeclaError(f"{where}: no such file; write one with specla explain profile RUN > FILE")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SpeclaError(f"{where}: over {_MOST_BYTES >> 20} MiB: no profile")
        return path.read_bytes()
    except OSError as error:
        raise SpeclaError(f"{where}: cannot be read ({error.strerror})") from None


def _json(name: str, where: str) -> Any:
    try:
        return json.loads(_bytes(name, where).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise SpeclaError(f"{where}: not UTF-8 (byte {error.start}); {_WANTED}") from None
    except (ValueError, RecursionError) as error:
        raise SpeclaError(f"{where}: damaged, not JSON ({error}); {_WANTED}") from None
