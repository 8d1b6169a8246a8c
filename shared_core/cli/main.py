"""``dream``: every command, and how an error becomes one clear line.

Exit codes: 0 done, 2 bad input (whatever a user can mend), 1 a fault of ours, 130 interrupted.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import cast

import typer

from shared_core import __version__
from shared_core.cli import (
    agent,
    cycle,
    demo,
    distrust,
    doctor,
    explain,
    figures,
    fleet,
    forget,
    law,
    locomo,
    log,
    poison,
    policy_bench,
    report,
    restore,
    signals,
    stability,
    status,
    stream,
    table,
    train_check,
    train_data,
    train_lora,
    train_policy,
    trusted,
    ui,
    undo,
)
from shared_core.cli.console import safe
from shared_core.cli.interrupt import INTERRUPTED, Interrupted
from shared_core.errors import DreamError

# typer keeps its own copy of click, or imports it, depending on its version
LONGEST_COMPLAINT = 1_000
BROKEN_OFF = "interrupted; a change that was not finished is not applied"
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="dream",
    help="Memory that forgets poison and repairs itself, over the Chroma collection you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluate = typer.Typer(help="Measure defences and retrieval.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(evaluate, name="eval")
train = typer.Typer(help="Train what decides in dreams.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(train, name="train")

app.command("demo")(demo.demo)
app.command("forget")(forget.forget)
app.command("cycle")(cycle.cycle)
app.command("fleet")(fleet.fleet)
app.command("status")(status.status)
app.command("log")(log.log)
app.command("undo")(undo.undo)
app.command("restore")(restore.restore)
app.command("trusted")(trusted.trusted)
app.command("distrust")(distrust.distrust)
app.command("explain")(explain.explain)
app.command("report")(report.report)
app.command("ui")(ui.ui)
app.command("doctor")(doctor.doctor)
evaluate.command("poison")(poison.poison)
evaluate.command("table")(table.table)
evaluate.command("figures")(figures.figures)
evaluate.command("law")(law.law)
evaluate.command("stream")(stream.stream)
evaluate.command("stability")(stability.stability)
evaluate.command("agent")(agent.agent)
evaluate.command("locomo")(locomo.locomo)
evaluate.command("policy")(policy_bench.policy)
evaluate.command("signals")(signals.signals)
train.command("policy")(train_policy.policy)
train.command("data")(train_data.data)
train.command("sft")(train_lora.sft)
train.command("grpo")(train_lora.grpo)
train.command("joint")(train_lora.joint)
train.command("check")(train_check.check)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        typer.echo(f"dream-memory {__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; never shows a traceback unless DREAM_DEBUG is set."""
    # model libraries draw bars of their own; ours is enough, and only on a terminal
    os.environ.setdefault("TQDM_DISABLE", "1")
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # memories hold every character there is, a terminal's encoding does not
            output.reconfigure(errors="replace")
    if not logging.root.handlers and logging.lastResort is not None:
        # the library's own handler says nothing; who runs a command wants its warnings
        logging.root.addHandler(logging.lastResort)
    code = _run(arguments)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has seen enough; python must not complain about that at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    try:
        code = app(args=arguments, prog_name="dream", standalone_mode=False)
        if code == INTERRUPTED:
            # newer typers turn KeyboardInterrupt into this
            code = _complain(BROKEN_OFF, INTERRUPTED)
    except Interrupted:
        code = INTERRUPTED
    except DreamError as error:
        code = _complain(str(error), 2)
    except UsageError as error:
        code = _explain(error)
    except RecursionError:
        code = _complain("the input is nested too deeply", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = _complain(BROKEN_OFF, INTERRUPTED)
    except Exception as error:
        if os.environ.get("DREAM_DEBUG"):
            raise
        code = _complain(
            f"a fault of ours: {type(error).__name__}: {error} (set DREAM_DEBUG=1 to see where)", 1
        )
    return code if isinstance(code, int) else 0


def _explain(error: typer.BadParameter) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return 2
    asked = error.ctx.command_path if error.ctx is not None else "dream"
    return _complain(f"{error.format_message()} (see `{asked} --help`)", 2)


def _complain(message: str, code: int) -> int:
    # what is complained about may hold hostile text
    typer.echo(f"dream: {safe(' '.join(message.split()), LONGEST_COMPLAINT)}", err=True)
    return code
