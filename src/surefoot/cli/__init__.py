"""The command line: parse, run, show. What a verb does is in verbs/; how its report looks is in terminal.py and web/."""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# before mujoco is imported: its glfw starts `python -c`, which would take modules from the folder a user stands in
os.environ["PYTHONSAFEPATH"] = "1"

import surefoot
from surefoot.errors import SurefootError, in_words
from surefoot.verbs import GROUPS, load, shadowed

BAD_INPUT, DEFECT = 2, 70  # the second as in sysexits.h: the fault is not the input's


def usage() -> str:
    rows = "\n\n".join(
        "\n".join([group, *(f"  {name:10}{verb.about}" for name, verb in verbs.items())])
        for group, verbs in GROUPS.items()
    )
    return f"""surefoot {surefoot.__version__}: from a robot model to a policy that keeps its footing in the real world

usage: surefoot VERB [...]        surefoot VERB --help describes a verb

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
        except SystemExit as stop:  # of the argument parser
            if as_json and stop.code:
                print(json.dumps({"error": "bad arguments: standard error says which"}))
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
    try:
        with in_words(f"surefoot {args[0]}"):
            show = _run(_parse(args), as_json)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as stop:
        print(": ".join(["interrupted", *map(str, stop.args)]), file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        stopped = getattr(error, "signum", None)
        if stopped is not None:
            from surefoot.report import plain

            try:
                print(f"\n{plain(error)}", file=sys.stderr, flush=True)
            except OSError:  # a terminal that has closed
                sys.stderr = open(os.devnull, "w")
            return 128 + int(stopped)
        if traceback:
            raise
        if isinstance(error, SurefootError):
            return _fail(str(error), BAD_INPUT, as_json)
        words = " ".join(str(error).split())
        return _fail(
            f"{type(error).__name__}: {words}: an internal error of surefoot; --traceback shows where", DEFECT, as_json
        )
    return show()


def _run(verb: Any, as_json: bool) -> Callable[[], int]:
    """Run a verb and write its page; what is returned shows the report, and gives the exit code."""
    from surefoot.cli.terminal import Line, Plain, show
    from surefoot.report import Progress

    say = Plain(stderr=as_json)
    line = Line(say)
    for words in shadowed(verb):
        line(Progress(f"note: {words}", stays=True))
    try:
        report = verb.run(line)
    finally:
        line.end()
    if report.page is not None:
        from surefoot.web.page import write

        write(report, report.page)

    def shown() -> int:
        show(report, say, as_json)
        return int(report.code)

    return shown


def _parse(args: list[str]) -> Any:
    """Arguments to a verb."""
    from surefoot.cli.flags import with_lists

    name, *rest = args
    verb = load(name)
    if name != "train":
        return _parsed(name, verb, with_lists(verb, rest))
    from surefoot import tasks

    # settings tuned for a task are the defaults that `train TASK --help` shows
    words = (a for a, before in zip(rest, ["", *rest]) if not before.startswith("-"))
    guess, rest = next(filter(tasks.is_reference, words), ""), with_lists(verb, rest)
    file = next((Path(b) for a, b in zip(rest, rest[1:]) if a == "--settings"), None)
    found = _parsed(name, verb, rest, verb.tuned(guess, file))
    return found if found.task in ("", guess) else _parsed(name, verb, rest, verb.tuned(found.task, file))


def _parsed(name: str, verb: Any, args: list[str], default: Any = None) -> Any:
    """The verb that tyro makes of arguments. Its errors quote them as they are, so it is given escaped ones to quote."""
    if {"-h", "--help", "--help-all"} & set(args):
        from surefoot.cli import help

        print(help.text(name, verb, default, "--help-all" in args))
        raise SystemExit(0)
    import tyro

    from surefoot.report import plain

    more = {} if default is None else {"default": default}
    ask = partial(tyro.cli, verb, prog=f"surefoot {name}", add_help=False, **more)
    shown = [plain(word).replace("\n", "\\n") for word in args]
    try:
        if shown == args:
            return ask(args=args)
        try:
            return ask(args=args, console_outputs=False)
        except SystemExit:
            ask(args=shown)
            raise
    except SystemExit:
        print(f"surefoot {name} --help shows what it takes", file=sys.stderr)
        raise


def _take(args: list[str], flag: str) -> bool:
    found = flag in args
    while flag in args:
        args.remove(flag)
    return found


def _fail(words: str, code: int, as_json: bool) -> int:
    from surefoot.report import plain

    if as_json:
        print(json.dumps({"error": words}))
    indented = plain(words).replace("\n", "\n  ")  # a newline in a stranger's name begins no line of ours
    print(f"error: {indented}", file=sys.stderr)
    return code
