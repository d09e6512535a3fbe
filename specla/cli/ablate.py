"""`specla ablate`: one dial turned, everything else held."""

import typer

from specla.cli.bench import measuring

app = typer.Typer(no_args_is_help=True, help="Turn one dial, hold the rest: single operations, and end-to-end studies.")

app.command("verify")(
    measuring(
        "ablate verify",
        """One verification by every strategy, checked against the equations, then timed beside its baselines.

        Examples: specla ablate verify topology=kary topology.nodes=8,16,32 workload.batch=1,8
        | specla ablate verify model=gdn-1.3b engine.verify=tree,hybrid
        """,
    )
)
app.command("recover")(
    measuring(
        "ablate recover",
        """One commit of what was accepted, by every way to recover, the convolution's window included.

        Example: specla ablate recover topology.length=7 measure.accepted=1,3,7 engine.recover=factors,replay_tokens
        """,
    )
)
app.command("defer")(
    measuring(
        "ablate defer",
        """A verification and its commit, step after step: at once, deferred, or lazily in a ring.

        Example: specla ablate defer workload.batch=1,8,32 engine.recover=factors,factors_lazy engine.ring=16,32
        """,
    )
)
app.command("acceptance")(
    measuring(
        "ablate acceptance",
        """End-to-end speedup over the oracle's acceptance, for a chain and a tree: where speculation starts to pay.

        Example: specla ablate acceptance drafter.alpha=0.3,0.5,0.7,0.9 engine.verify=tree,hybrid
        """,
    )
)
app.command("length")(
    measuring(
        "ablate length",
        """End-to-end speedup over the levels of drafts.

        Example: specla ablate length topology.length=1,2,4,8 drafter.alpha=0.7
        """,
    )
)
