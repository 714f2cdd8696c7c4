"""Runs that are killed at random instants: do they end with the same bits as one that was not?

    python -m benchmarks.resume [--only ppo|adr|dagger|rma|fasttd3|fastsac|fb|sapg|fpo|clone|delta|actuator] [--quick] [--json] [--record]

Each kind is a command as a person types it, run to its end once, then KILLS times with kill -9 at a random instant and given
again. All weights, checkpoints, nets and metrics that it leaves must be equal, byte for byte.
"""

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, said

KILLS = 20
EARLIEST = 0.3  # of a whole command's time: before that Python is still importing
KEPT = ("*.safetensors", "*.onnx", "metrics.jsonl")
TRAIN = ("--save-every", "0", "--threads", "1")
SMALL = "--envs 16 --horizon 8 --hidden 16 --minibatches 2 --steps 2560 --learner-threads 1".split()
GRADIENT = SMALL  # of the other on-policy learners
STUDENT = "--envs 16 --horizon 8 --steps 1280 --minibatches 2 --learner-threads 1".split()
REPLAY = "--envs 16 --hidden 16 --critic-hidden 16 --steps 2560 --warm-up 512 --samples 64 --learner-threads 1".split()
MAPS = "--envs 16 --hidden 16 --forward-hidden 16 --backward-hidden 16 --z 8 --steps 2560 --warm-up 512 --samples 64 --learner-threads 1".split()

Command = Callable[[Path, Path], Sequence[str]]
"""folder of inputs, out -> the words of the command; after a kill they are asked for again"""


def of(prefix: str, flags: Sequence[str]) -> list[str]:
    """--envs 16 as --student.envs 16"""
    return [f"--{prefix}.{w[2:]}" if w.startswith("--") else w for w in flags]


def trained(*flags: str, stages: bool = False) -> Command:
    """`surefoot train balance`; of several stages it is given again as it was, else with --resume."""

    def words(inputs: Path, out: Path) -> Sequence[str]:
        if not stages and (out / "run.json").exists():
            return ["train", "--resume", str(out), "--save-every", "0"]
        return ["train", "balance", *TRAIN, *flags, "--out", str(out)]

    return words


def learned(verb: str, *flags: str, name: str = "result") -> Command:
    """A verb that learns from a log of the arm."""
    return lambda inputs, out: [verb, "arm", str(inputs / "log.npz"), *flags, "--no-check", "--out", str(out / name)]


def cloned(inputs: Path, out: Path) -> Sequence[str]:
    """By diffusion, from a log of balance; given again as it was."""
    small = "--updates 1000 --samples 64 --hidden 16 --save-every 0".split()
    return ["clone", "balance", str(inputs / "log.npz"), *small, "--out", str(out)]


KINDS: dict[str, Command] = {
    "ppo": trained(*SMALL),
    "adr": trained(*SMALL, "--ranges", "adr"),
    "dagger": trained(*SMALL, "--adapt", "dagger", *of("student", STUDENT), stages=True),
    "rma": trained(*SMALL, "--adapt", "rma", *of("student", STUDENT), stages=True),
    "fasttd3": trained("--learner", "fasttd3", *of("fasttd3", REPLAY)),
    "fastsac": trained("--learner", "fastsac", *of("fastsac", REPLAY)),
    "fb": trained("--learner", "fb", *of("fb", MAPS)),
    "sapg": trained("--learner", "sapg", *of("sapg", GRADIENT), "--sapg.blocks", "4"),
    "fpo": trained("--learner", "fpo", *of("fpo", GRADIENT)),
    "clone": cloned,
    "delta": learned("delta", "--by", "reinforcement", "--steps", "8192"),
    "actuator": learned("actuator", "--no-labels", "--by", "ppo", "--rounds", "12", name="net.onnx"),
}


def surefoot(words: Sequence[str]) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-P", "-m", "surefoot", *words, "--json"], **quiet)  # type: ignore[call-overload]


def whole(command: Command, inputs: Path, out: Path) -> float:
    """To its end; seconds. Where so little training is worth nothing, a verb may refuse its result; the run is there."""
    began, process = time.monotonic(), surefoot(command(inputs, out))
    _, wrong = process.communicate()
    if process.returncode and not left(out):
        raise SystemExit(f"surefoot {' '.join(command(inputs, out))}: {wrong.decode()[-400:]}")
    return time.monotonic() - began


def left(out: Path) -> dict[str, str]:
    """File -> hash."""
    found = [p for pattern in KEPT for p in sorted(out.rglob(pattern))]
    return {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}


def killed(command: Command, inputs: Path, out: Path, seconds: float) -> bool:
    """Killed after so many seconds, unless it ends before, and given again; whether the kill met it at work."""
    process = surefoot(command(inputs, out))
    try:
        process.communicate(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    whole(command, inputs, out)
    return True


def part(name: str, command: Command) -> Callable[[bool], Iterator[Row]]:
    def rows(quick: bool) -> Iterator[Row]:
        rng, equal, seconds = np.random.default_rng(0), [], []
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            if name in ("clone", "delta", "actuator"):
                task = "balance" if name == "clone" else "arm"
                surefoot(
                    ["record", task, "--seconds", "4", "--observation", "--out", str(home / "log.npz")]
                ).communicate()
            seconds.append(whole(command, home, home / "straight"))
            expected = left(home / "straight")
            while len(equal) < (2 if quick else KILLS):
                out = home / f"killed-{len(seconds)}"
                after = float(rng.uniform(EARLIEST, 1.0) * min(seconds))
                began = time.monotonic()
                if killed(command, home, out, after):
                    equal.append(left(out) == expected)
                    said(f"{name}: killed after {after:.1f} s: {'equal' if equal[-1] else 'DIFFERENT'}")
                else:
                    seconds.append(time.monotonic() - began)
        yield row(f"{name}: killed at a random instant, ends with the same bits", float(np.mean(equal)), f"of {len(equal)}", at_least=1.0, note=f"{len(expected)} files")  # fmt: skip

    return rows


PARTS = {name: part(name, command) for name, command in KINDS.items()}

if __name__ == "__main__":
    measure.main("resume", (__doc__ or "").split("\n")[0], PARTS)
