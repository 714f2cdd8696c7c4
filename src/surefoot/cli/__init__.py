"""The door: `surefoot VERB`. Each verb is a thin dataclass over the functions of the rooms; console.py draws."""

import ast
import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

# before mujoco is imported: its glfw starts `python -c`, which would take modules from the folder a user stands in
os.environ["PYTHONSAFEPATH"] = "1"

import tyro

import surefoot
from surefoot.cli.words import described
from surefoot.console import Plain, printable, show
from surefoot.errors import SurefootError, in_words, unknown

BAD_INPUT, DEFECT = 2, 70  # the second as in sysexits.h: the fault is not the input's

VERBS = {
    "tasks": "verbs.Tasks",
    "look": "verbs.Look",
    "presets": "verbs.Presets",
    "log": "logs.ReadLog",
    "try": "verbs.Try",
    "train": "train.Train",
    "eval": "verbs.Eval",
    "play": "verbs.Play",
    "export": "verbs.Export",
    "sweep": "verbs.Sweep",
    "adapt": "verbs.Adapt",
    "record": "record.Record",
    "gate": "gate.Gate",
    "cross": "verbs.Cross",
    "explore": "explore.Explore",
    "preflight": "real.Preflight",
    "replay": "real.Replay",
    "identify": "real.Identify",
    "believe": "believe.Believe",
    "missing": "lacks.Missing",
    "delta": "lacks.Delta",
    "actuator": "actuator.Actuator",
    "doctor": "doctor.Doctor",
}
"""each verb's file here and its class, which is imported when it is asked for: its extras may not be installed"""


def _parse(args: list[str]) -> Any:
    """Arguments to a verb."""
    name, *rest = args
    file, _, kind = VERBS[name].partition(".")
    module = importlib.import_module(f"surefoot.cli.{file}")
    if name == "train":
        return module.parse_train(rest)
    verb = getattr(module, kind)
    return tyro.cli(verb, args=rest, prog=f"surefoot {name}", description=described(verb))


def _about(name: str) -> str:
    """The first line of a verb's docstring, read and not imported."""
    file, _, kind = VERBS[name].partition(".")
    tree = ast.parse(Path(__file__).with_name(f"{file}.py").read_text())
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    return (ast.get_docstring(found) or "").partition("\n")[0]


def usage() -> str:
    rows = "\n".join(f"  {name:9} {_about(name)}" for name in VERBS)
    return f"""surefoot {surefoot.__version__}: from a robot model to a policy that keeps its footing in the real world

usage: surefoot VERB [...]        surefoot VERB --help tells about a verb

{rows}

Every verb takes --json (facts for machines) and --traceback (where an error came from).
Begin with: surefoot cross hover"""


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
    say = Plain(stderr=as_json)
    try:
        if args[0] not in VERBS:
            raise unknown("verb", args[0], VERBS, "surefoot")
        with in_words(f"surefoot {args[0]}"):
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
                print(f"\n{printable(str(error))}", file=sys.stderr, flush=True)
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
    indented = printable(words).replace("\n", "\n  ")  # a newline in a stranger's name begins no line of ours
    print(f"error: {indented}", file=sys.stderr)
    return code
