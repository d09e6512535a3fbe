"""`specla train`: make a corpus, and a model from it."""

import typer

from specla.cli.console import ConfigDir, JsonFlag, Overrides, log, print_json, progress

app = typer.Typer(no_args_is_help=True, help="Make a corpus from text, and train a target on it.")


@app.command()
def corpus(overrides: Overrides = None, json: JsonFlag = False, config_dir: ConfigDir = None) -> None:
    """Clean text, split off held-out documents, train a tokenizer, write token files.

    Without words: the corpus of gdn-mini, its packages fetched by name and hash. With sources=..., your own text.
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
    typer.echo(f"{made.folder}: {manifest['tokens']:,} tokens to train on, {manifest['heldout_tokens']:,} held out")
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
    if training.step:
        log(f"{options.out}: going on from step {training.step} of {options.steps}")
    with progress("train") as (total, tick):
        total(options.steps - training.step)
        result = training.run(
            on_step=lambda fields: tick(f"loss {fields['loss']:.3f}, {fields['tok_s']:,} tok/s" if fields else "")
        )
    state = (
        "finished" if result.finished else f"stopped at step {result.step} of {options.steps}; run it again to go on"
    )
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.bits_per_byte.items())
    typer.echo(f"{options.out}: {state}. Held-out bits per byte: {scores}")
    if json:
        print_json({"step": result.step, "finished": result.finished, "bits_per_byte": result.bits_per_byte})
