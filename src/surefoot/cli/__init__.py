"""The door: `surefoot VERB`. Each verb is a thin dataclass over the functions of the rooms; console.py draws."""

import json
import os
import signal
import sys
from typing import Any

import tyro
from rich.console import Console

import surefoot
from surefoot.cli.actuator import Actuator
from surefoot.cli.believe import Believe
from surefoot.cli.doctor import Doctor
from surefoot.cli.explore import Explore
from surefoot.cli.gate import Gate
from surefoot.cli.lacks import Delta, Missing
from surefoot.cli.logs import ReadLog
from surefoot.cli.real import Identify, Preflight, Replay
from surefoot.cli.record import Record
from surefoot.cli.train import Train, parse_train
from surefoot.cli.verbs import Adapt, Cross, Eval, Export, Look, Play, Presets, Sweep, Tasks, Try
from surefoot.cli.words import described
from surefoot.console import show
from surefoot.errors import SurefootError, unknown

BAD_INPUT, DEFECT = 2, 70  # the second as in sysexits.h: the fault is not the input's

VERBS: dict[str, Any] = {
    "tasks": Tasks,
    "look": Look,
    "presets": Presets,
    "log": ReadLog,
    "try": Try,
    "train": Train,
    "eval": Eval,
    "play": Play,
    "export": Export,
    "sweep": Sweep,
    "adapt": Adapt,
    "record": Record,
    "gate": Gate,
    "cross": Cross,
    "explore": Explore,
    "preflight": Preflight,
    "replay": Replay,
    "identify": Identify,
    "believe": Believe,
    "missing": Missing,
    "delta": Delta,
    "actuator": Actuator,
    "doctor": Doctor,
}


def _parse(args: list[str]) -> Any:
    """Arguments to a verb."""
    name, *rest = args
    if name == "train":
        return parse_train(rest)
    return tyro.cli(VERBS[name], args=rest, prog=f"surefoot {name}", description=described(VERBS[name]))


def usage() -> str:
    rows = "\n".join(f"  {name:9} {(v.__doc__ or '').strip()}" for name, v in VERBS.items())
    return f"""surefoot {surefoot.__version__}: from a robot model to a policy that keeps its footing in the real world

usage: surefoot VERB [...]        surefoot VERB --help tells about a verb

{rows}

Every verb takes --json (facts for machines) and --traceback (where an error came from).
Begin with: surefoot cross hover"""


class Plain(Console):
    """A console that lets `main` say how a command ends whose reader has gone; rich would end it with 1, which means no."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def main(argv: list[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    as_json = _take(args, "--json")
    traceback = _take(args, "--traceback") or bool(os.environ.get("SUREFOOT_TRACEBACK"))
    code = 0
    try:
        try:
            code = _main(args, as_json, traceback)
            return code
        except SystemExit as stop:  # of whoever parses words
            if as_json and stop.code:
                print(json.dumps({"error": "the words of the command: standard error says which"}))
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:  # of standard output: a full disk, or a reader that has gone
        sys.stdout = open(os.devnull, "w")  # what is left of it cannot be written at exit either
        if code == 128 + signal.SIGHUP:
            return code
        if isinstance(error, BrokenPipeError):  # it has seen enough, as in `surefoot tasks | head -3`
            return 128 + signal.SIGPIPE
        return _fail(f"standard output: {error.strerror or error}", BAD_INPUT, False)


def _main(args: list[str], as_json: bool, traceback: bool) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if args[0] in ("--version", "-V"):
        print(surefoot.__version__)
        return 0
    say = Plain(stderr=as_json, soft_wrap=False, markup=False)
    try:
        if args[0] not in VERBS:
            raise unknown("verb", args[0], VERBS, "surefoot")
        answer = _parse(args).run(say)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        stopped = getattr(error, "signum", None)
        if stopped is not None:
            try:
                print(f"\n{error}", file=sys.stderr, flush=True)
            except OSError:  # a terminal that has closed
                sys.stderr = open(os.devnull, "w")
            return 128 + int(stopped)
        if traceback:
            raise
        if isinstance(error, SurefootError):
            return _fail(str(error), BAD_INPUT, as_json)
        words = " ".join(str(error).split())
        return _fail(f"{type(error).__name__}: {words}: a defect of surefoot; --traceback shows where", DEFECT, as_json)
    show(answer, say, as_json)
    return answer.code


def _take(args: list[str], flag: str) -> bool:
    found = flag in args
    while flag in args:
        args.remove(flag)
    return found


def _fail(words: str, code: int, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": words}))
    print(f"error: {words}", file=sys.stderr)
    return code
