"""`specla train`: make a corpus, a model from it, and a drafter for the model."""

from typing import TYPE_CHECKING

import typer

from specla.cli.console import ConfigDir, JsonFlag, Overrides, log, print_json, progress, say

if TYPE_CHECKING:
    from specla.train.loop import Result, RunOptions, Training

TEXT_TICKS = 100
"""Steps of the progress bar while the target writes."""

app = typer.Typer(
    no_args_is_help=True, help="Make a corpus from text, train a target on it, and a drafter for the target."
)


@app.command()
def corpus(overrides: Overrides = None, json: JsonFlag = False, config_dir: ConfigDir = None) -> None:
    """Clean text, split off held-out documents, train a tokenizer, write token files.

    Without words: the corpus of gdn-mini, its packages fetched by name and hash. With sources=..., your own text.

    Example: specla train corpus 'sources=[{path: FOLDER, name: docs, licence: MIT, category: prose}]' out=FOLDER
    """
    from specla.train.corpus import build_corpus
    from specla.train.options import corpus_options

    options = corpus_options(overrides or [], config_dir)
    with progress("corpus") as (total, tick):
        stage = ""

        def advance(name: str, done: int, of: int) -> None:
            nonlocal stage
            if name != stage:
                stage = name
                total(of)
            tick(name)

        made = build_corpus(options, advance)
    manifest = made.manifest
    if not made.built:
        log(f"{made.folder}: holds this corpus already")
    say(f"{made.folder}: {manifest['tokens']:,} tokens to train on, {manifest['heldout_tokens']:,} held out")
    if json:
        print_json(manifest)


@app.command()
def target(overrides: Overrides = None, json: JsonFlag = False, config_dir: ConfigDir = None) -> None:
    """Train a gated delta net on a corpus; the same command goes on from the last checkpoint.

    Example: specla train target model=gdn-tiny corpus=FOLDER out=FOLDER steps=200 batch_size=4 sequence_length=256
    """
    from specla.train.options import target_options
    from specla.train.target import TargetTraining

    config, options = target_options(overrides or [], config_dir)
    training = TargetTraining(config, options)
    result = _run(training, options)
    state = (
        f"finished, bench it with model.path={training.model_folder}"
        if result.finished
        else _stopped(training, options)
    )
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.bits_per_byte.items())
    say(f"{options.out}: {state}. Held-out bits per byte: {scores}")
    if json:
        print_json({"step": result.step, "finished": result.finished, "bits_per_byte": result.bits_per_byte})


@app.command()
def drafter(overrides: Overrides = None, json: JsonFlag = False, config_dir: ConfigDir = None) -> None:
    """Train a drafter for a target by distilling it; the same command goes on from the last checkpoint.

    Example: specla train drafter model=gdn-mini corpus=FOLDER out=FOLDER steps=200 batch_size=4 sequence_length=256
    """
    from specla.train.drafter import start_training
    from specla.train.options import drafter_options

    settings, options = drafter_options(overrides or [], config_dir)
    with progress("texts") as (total, tick):
        total(TEXT_TICKS)
        told = 0

        def advance(share: float) -> None:
            nonlocal told
            while told < int(share * TEXT_TICKS):
                told += 1
                tick("the target writes")

        training = start_training(settings, options, advance)
    for note in training.notes:
        log(note)
    result = _run(training, options)
    state = "finished" if result.finished else _stopped(training, options)
    alphas = "; ".join(f"{name} {' '.join(f'{a:.2f}' for a in one.alpha)}" for name, one in result.acceptances.items())
    say(f"{options.out}: {state}. Held-out alpha by depth: {alphas}")
    if json:
        tables = {name: {"alpha": one.alpha, "ranks": one.table} for name, one in result.acceptances.items()}
        print_json({"step": result.step, "finished": result.finished, "heldout": tables})


def _run(training: "Training[Result]", options: "RunOptions") -> "Result":
    """Run a training with its progress shown; an interrupt is told with what was saved."""
    if training.step:
        log(f"{options.out}: going on from step {training.step} of {options.steps}")
    with progress("train") as (total, tick):
        total(options.steps - training.step)
        try:
            return training.run(
                on_step=lambda fields: tick(f"loss {fields['loss']:.3f}, {fields['tok_s']:,} tok/s" if fields else "")
            )
        except (KeyboardInterrupt, OSError) as problem:
            # A disk that was full from the beginning has saved nothing.
            if training.saved or not isinstance(problem, OSError):
                reached = f"step {training.saved} of {options.steps} is saved"
                log(f"{options.out}: {reached}; the same command goes on from it")
            raise


def _stopped(training: "Training[Result]", options: "RunOptions") -> str:
    return f"stopped at step {training.step} of {options.steps}; run it again to go on"
