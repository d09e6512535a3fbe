"""From what a user types to the cells of a run: expanded, composed, in normal form, each once, AR among them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from specla.bench.cells import COMMANDS, Cell, Method, Plan
from specla.bench.compose import EXPERIMENT, Composer, composer
from specla.bench.confdir import conf_dir, own_conf_dir, replaced
from specla.bench.normalise import END_TO_END, KERNEL_COMMANDS, Normal, build_tree, normalise, not_built
from specla.bench.quoting import spell
from specla.bench.settings import EngineSettings, Settings, config_hash, dials, get, put, to_plain
from specla.bench.strategies import AUTO, VERIFY, pair_problem
from specla.bench.validate import missing_inputs, nearest
from specla.bench.words import Word, combinations, merged, read_words
from specla.drafters.breadth import too_wide
from specla.errors import SpeclaError
from specla.topology import DraftTree, chain

__all__ = ["COMMANDS", "Cell", "Method", "Plan", "composed_yaml", "plan"]


def plan(command: str, overrides: Sequence[str], config_dir: str | Path | None = None) -> Plan:
    """The cells of a command. Raises SpeclaError for the first word that is wrong.

    Args:
        command: a key of COMMANDS.
        overrides: words in Hydra's grammar, as typed.
        config_dir: a user's own conf folder, whose options come before the shipped ones.
    """
    if command not in COMMANDS:
        raise SpeclaError(f"no command '{command}'{nearest(command, COMMANDS)}")
    conf, own = conf_dir(), None if config_dir is None else own_conf_dir(config_dir)
    source = composer(conf, own)
    typed = read_words(overrides, source)
    draft = _Draft(source, typed)
    if own is not None:
        draft.notes.extend(f"--config-dir: {name} replaces the shipped one" for name in replaced(conf, own))
    runs = list(_runs(command, typed))
    for measured, experiment in runs:
        for group, words in _sweeps(source, typed, experiment):
            # Of an ablation, its name: a report tells a dial that is turned on purpose from a method of its own.
            label = next((name.split()[1] for name in (measured, command) if name.startswith("ablate ")), group)
            draft.add(measured, label or (experiment if experiment and len(runs) > 1 else "main"), words)
    return Plan(command, tuple(overrides), tuple(draft.cells.values()), tuple(draft.all_notes()))


def composed_yaml(command: str, overrides: Sequence[str], config_dir: str | Path | None = None) -> str:
    """The composed configuration of a command's first cell that is not the AR it is compared with, as YAML."""
    cells = plan(command, overrides, config_dir).cells
    cell = next((cell for cell in cells if cell.settings.engine.verify != "ar"), cells[0])
    return yaml.safe_dump(to_plain(cell.settings), sort_keys=False, default_flow_style=None)


def _runs(command: str, typed: Mapping[str, Word]) -> Iterator[tuple[str, str | None]]:
    """(measured command, experiment or None) of everything that a command runs."""
    asked = typed[EXPERIMENT].values if EXPERIMENT in typed else None
    parts = COMMANDS[command]
    if asked is not None and len(parts) > 1:
        known = [str(experiment) for _, experiment in parts]
        for name in asked:
            if name not in known:
                own = ", ".join(known)
                raise SpeclaError(f"{EXPERIMENT}={name}: {command} runs its own ({own}); for others use bench e2e")
        yield from ((measured, experiment) for measured, experiment in parts if experiment in asked)
        return
    for measured, experiment in parts:
        yield from ((measured, None if name == "null" else name) for name in asked or (experiment,))


def _sweeps(
    source: Composer, typed: Mapping[str, Word], experiment: str | None
) -> Iterator[tuple[str, dict[str, Word]]]:
    """(section or "", words) of an experiment: its own sweep first, then its section's words, then the user's."""
    fixed = read_words([f"{EXPERIMENT}={experiment}"], source) if experiment else {}
    first = {key: word.values[0] for key, word in merged(typed, fixed).items() if word.is_group}
    base = source.compose(tuple(sorted(f"{key}={option}" for key, option in first.items())))
    own = _layer(
        [f"{key}={value}" for key, value in base.sweep.items()], source, f"{experiment or 'hydra'}.sweeper.params"
    )
    for name, texts in (base.sections or {"": []}).items():
        section = _layer(texts, source, f"{experiment}.sections.{name}")
        yield name, merged(own, section, typed, fixed)


def _layer(texts: Sequence[str], source: Composer, where: str) -> dict[str, Word]:
    try:
        words = read_words(texts, source)
    except SpeclaError as error:
        raise SpeclaError(f"{where}: {error}") from error
    if EXPERIMENT in words:
        raise SpeclaError(f"{where}: {words[EXPERIMENT].text}: an experiment cannot choose another one")
    return words


@dataclass
class _Draft:
    """A plan in the making."""

    source: Composer
    typed: Mapping[str, Word]
    cells: dict[str, Cell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _unused: dict[str, str] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _combinations: int = 0
    _repeated: int = 0

    def add(self, command: str, group: str, words: Mapping[str, Word]) -> None:
        """Add the cells that these words expand to, and the AR that they are compared with."""
        for choices, values in combinations(words):
            composed = self.source.settings(choices, values)
            normal = normalise(composed, command)
            options = self.source.compose(choices).choices
            self._combinations += 1
            self._note(normal)
            self._refuse_missing(normal.settings, words)
            self._repeated += config_hash(normal.settings, command) in self.cells
            ar_hash = None
            if command == END_TO_END:
                ar_hash = self._add_ar(command, group, normal.settings, options)
            self._add(command, group, normal.settings, options, ar_hash)

    def all_notes(self) -> Iterator[str]:
        """The notes, each once, with those on words that nothing used and on repeated combinations."""
        yield from dict.fromkeys(self.notes)
        for key, why in self._unused.items():
            if key not in self._used:
                yield f"{self.typed[key].text}: not used, since {why}"
        if self._repeated:
            yield (
                f"{self._repeated} of {self._combinations} combinations repeat another in all that they use: "
                "each is measured once"
            )

    def _note(self, normal: Normal) -> None:
        self.notes.extend(normal.notes)
        for key in self.typed:
            if key in normal.dropped:
                self._unused.setdefault(key, normal.dropped[key])
            else:
                self._used.add(key)

    def _refuse_missing(self, settings: Settings, words: Mapping[str, Word]) -> None:
        """A missing input ends the plan where there is no choice but that one; in a sweep it is one cell's reason."""
        for group, message in missing_inputs(settings).items():
            if group not in words or (group in self.typed and not self.typed[group].is_sweep):
                raise SpeclaError(message)

    def _add_ar(self, command: str, group: str, settings: Settings, options: Mapping[str, str]) -> str:
        engine = EngineSettings(name="specla", verify="ar", recover="in_place")
        ar = normalise(put(settings, {"engine": engine}), command).settings
        default = self.source.compose(()).choices["engine"]
        key = config_hash(ar, command)
        self._add(command, group, ar, {**options, "engine": default}, key)
        return key

    def _add(
        self, command: str, group: str, settings: Settings, options: Mapping[str, str], ar_hash: str | None
    ) -> None:
        key = config_hash(settings, command)
        if key in self.cells:
            return
        missing = missing_inputs(settings)
        tree = chain(0) if "topology" in missing else build_tree(settings.topology)
        reason = _obstacle(settings, tree, command) or next(iter(missing.values()), "")
        engine = settings.engine
        # Told apart wherever methods are named: what is drafted is a cut of the tree.
        topology = f"{tree.name}-adaptive" if engine.adaptive else tree.name
        self.cells[key] = Cell(
            command=command,
            settings=settings,
            tree=tree,
            method=Method(str(engine.verify), str(engine.recover), settings.drafter.name, topology, engine.name),
            overrides=_fewest_words(self.source, settings, options, command),
            group=group,
            config_hash=key,
            ar_hash=ar_hash,
            status="not_applicable" if reason else "pending",
            reason=reason,
        )


def _obstacle(settings: Settings, tree: DraftTree, command: str) -> str | None:
    """Why a cell cannot be measured, or None."""
    missing = not_built(settings, command)
    if missing is not None:
        return f"not built yet: {missing}"
    engine = settings.engine
    if command == "generate" and engine.name != "specla":
        return f"{engine.name} is a baseline, to be measured by bench e2e; generate streams what specla decodes"
    verify, recover, accepted = str(engine.verify), str(engine.recover), settings.measure.accepted
    if command in KERNEL_COMMANDS and settings.topology.name == AUTO:
        return f"{command} drafts nothing: topology=auto chooses a tree by what a drafter has accepted"
    if command in KERNEL_COMMANDS and engine.name != "specla":
        return f"{command} times the kernels of specla; {engine.name} decodes whole models"
    if command in ("ablate recover", "ablate defer") and verify == "ar":
        return "ar has nothing to commit: its decode step updates the state where it lies"
    if command == "ablate recover" and recover in ("factors_deferred", "factors_lazy"):
        return f"{recover} takes nothing into the state before the next verification: ablate defer times both together"
    if settings.topology.name == "confidence":
        problem = _confidence_problem(settings, verify, tree)
        if problem is not None:
            return problem
    if VERIFY[verify].chains_only and not tree.is_chain:
        return f"{verify} verifies chains only, and {tree.name} branches"
    if accepted is not None and accepted > tree.depth:
        return f"measure.accepted={accepted}: {tree.name} has {tree.depth} levels of drafts to accept"
    if engine.ring is not None and engine.ring <= tree.depth:
        most = tree.depth + 1
        return f"engine.ring={engine.ring}: a step of {tree.name} commits up to {most} tokens; give {most} or more"
    return pair_problem(verify, recover)


def _confidence_problem(settings: Settings, verify: str, tree: DraftTree) -> str | None:
    """Why a tree that the drafter shapes cannot be, or None."""
    if settings.drafter.name not in ("aligned", "none"):
        return f"topology=confidence is shaped by probabilities, and {settings.drafter.name} has none: drafter=aligned"
    if VERIFY[verify].chains_only:
        return f"{verify} verifies chains only, and topology=confidence branches"
    on_device = settings.device == "cuda"
    own = settings.drafter.name == "aligned" and (settings.workload.batch > 1 or on_device)
    if own and not VERIFY[verify].tree_per_row:
        return f"{verify} verifies one tree for all rows, and topology=confidence shapes one for each"
    if on_device and settings.topology.branching is not None:
        return too_wide(tree, settings.topology.branching)
    return None


def _fewest_words(source: Composer, settings: Settings, options: Mapping[str, str], command: str) -> tuple[str, ...]:
    """Options that are not the default ones, then every value without which the cell would be another."""
    default = source.compose(()).choices
    neutral = ("none", "root")
    picked = {
        group: default[group] if get(settings, f"{group}.name") in neutral else option
        for group, option in options.items()
    }
    chosen = tuple(f"{group}={option}" for group, option in picked.items() if option != default[group])
    raw = source.settings(tuple(sorted(chosen)))
    values = {
        key: get(settings, key) for key in dials() if not key.endswith(".name") and get(settings, key) != get(raw, key)
    }
    for key in list(values):
        fewer = {other: value for other, value in values.items() if other != key}
        if _composes(put(raw, fewer), settings, command):
            values = fewer
    return (*chosen, *(f"{key}={spell(value)}" for key, value in values.items()))


def _composes(raw: Settings, settings: Settings, command: str) -> bool:
    try:
        return normalise(raw, command).settings == settings
    except SpeclaError:
        return False
