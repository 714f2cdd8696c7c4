"""surefoot plan: controls under which physics itself follows a kinematic motion, replayed open loop in one world or several."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError, nearest
from surefoot.log import Log
from surefoot.report import Axis, Badge, Block, Column, Note, Plot, Progress, Report, Series, Table, Text, Watch
from surefoot.verbs.arguments import hashes

if TYPE_CHECKING:
    from surefoot.motion.dynamic import Case
    from surefoot.verbs.model.planned import Whole

INTERRUPTED = 130
MOST = 256  # worlds


@dataclass(frozen=True)
class Plan:
    motion: Positional[str]
    """a robot's motion, as `surefoot retarget` writes it (.npz, .csv); or an example that needs no robot: lift, push, pivot (two fingers and a box), hand-lift, hand-turn (three fingers and a can)"""
    robot: Positional[str] = ""
    """for a motion file: the robot's model (.xml MJCF, .urdf), or a task, such as the file that `surefoot new track` wrote"""
    out: Path = Path("plan.npz")
    """the plan to write: a log of controls and of the positions that they give open loop (.npz)"""
    worlds: int = 1
    """worlds in which the same controls must work, the worst of which counts: the nominal one, and others from the task's belief; of an example, friction from 1 down to 0.45 of nominal"""
    seed: int = 0
    """of samples and worlds"""
    cut: tuple[float, float] | None = None
    """seconds of the motion file: first and last that are planned"""
    rate: float | None = None
    """rows per second of a motion file without time stamps"""
    guide: float | None = None
    """strength of virtual contacts in the first round, 0 to 1, of lift, push and pivot; they are gone in the second half of the rounds; default: 0"""
    samples: int | None = None
    """plans tried in each round; default: 48, of a whole robot 64"""
    rounds: int | None = None
    """rounds of samples, with noise that shrinks; default: 8, of a whole robot 4"""
    noise: float | None = None
    """of the first round, in the unit of the controls; default: 0.03 m, of a whole robot 0.1 rad"""
    final: float | None = None
    """share of the noise that is left in the last round; 1: not annealed; default: 0.1"""
    horizon: float | None = None
    """s that each plan looks ahead; default: 0.8, of a whole robot 0.4"""
    knot: float | None = None
    """s between the points of a plan, which lines join; default: 0.2, of a whole robot 0.1"""
    apply: float | None = None
    """s of each plan that are kept; default: 0.2, of a whole robot 0.1"""
    temperature: float | None = None
    """of the softmax over the best tenth of the samples; default: 0.3, of a whole robot 0.6"""
    threads: int = 0
    """threads of the physics; 0: every core"""
    asset_root: str = ""
    """folder that meshes may come from, if they lie outside the model's own"""
    page: Path | None = None
    """write a page with the errors over time, and of a robot a film (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.motion.dynamic import feasible

        self._check()
        watch(Progress("preparing"))
        whole, case = self._case(watch)
        log = feasible(case.make, case.reference, case.e, case.plan, self.seed, watch)
        watch(Progress("replaying"))
        plain, ours = case.replayed(case.reference.u), case.replayed(log["control"])
        log = self._log(log, case) if whole is None else whole.log(self._log(log, case))
        log.save(self.out)
        facts = self._facts(case, log, plain, ours)
        blocks: list[Block] = [
            Text(f"{self.out}: {case.name}, {len(log) * facts['period']:.3g} s, {log['control'].shape[1]} controls; replayed open loop"),
            _errors(case, facts),
        ]  # fmt: skip
        if whole is not None:
            facts |= whole.facts(log, case)
            blocks += whole.blocks(facts)
        if self.page:
            facts["page"] = str(self.page)
            blocks += [*_curves(case, facts["period"], plain, ours), *([whole.film(log, case)] if whole else [])]
        badge, code = None, 0
        if facts["interrupted"]:
            words = f"stopped before the end: the first {len(log) * facts['period']:.3g} of {facts['seconds']:.3g} s are planned and saved"
            badge, code = Badge(words, False), INTERRUPTED
        title = f"plan: {case.name}"
        sources = hashes(motion=Path(self.motion), robot=Path(self.robot) if self.robot else None)
        return Report(title, facts, tuple(blocks), self._next(whole), badge, code, self.page, sources=sources)

    def _check(self) -> None:
        from surefoot.verbs.model.planned import MADE

        reads = (self.motion, self.robot)
        files.check_writable(self.out, "--out", ".npz", reads)
        if self.page:
            files.check_writable(self.page, "--page", ".html", reads)
        if not 1 <= self.worlds <= MOST:
            raise SurefootError(f"--worlds: found {self.worlds}, expected 1 to {MOST}")
        made = self.motion in MADE and not self.robot
        if not made and not Path(self.motion).is_file():
            raise SurefootError(f"{self.motion}: neither a motion file nor an example{nearest(self.motion, MADE)}; examples are {', '.join(MADE)}")  # fmt: skip
        if not made and not self.robot:
            raise SurefootError(f"{self.motion}: a motion file, expected a robot after it: surefoot plan {quote(self.motion)} ROBOT")  # fmt: skip
        if made and (self.cut or self.rate):
            raise SurefootError("--cut and --rate are of a motion file; an example has none")
        if self.guide is not None and (not made or self.motion.startswith("hand")):
            raise SurefootError("--guide: only lift, push and pivot have virtual contacts")

    def _case(self, watch: Watch) -> "tuple[Whole | None, Case]":
        from surefoot.verbs.model.planned import made, whole

        if not self.robot:
            found, case = None, made(self.motion, self.worlds, self.threads)
        else:
            found = whole(Path(self.motion), self.robot, self.asset_root, self.rate, self.cut)
            case = found.case(self.worlds, self.seed, self.threads)
            for words in found.notes:
                watch(Progress(f"note: {words}", stays=True))
        given = {f.name: x for f in fields(case.plan) if (x := getattr(self, f.name)) is not None}
        return found, replace(case, plan=replace(case.plan, **given))

    def _log(self, log: Log, case: "Case") -> Log:
        """With the worlds it was planned in, the settings, and where a replay starts."""
        constants = {
            "start": case.reference.q[0].tolist(),
            "unknowns": list(case.params.names),
            "worlds": case.e.tolist(),
        }
        about = {"plan": vars(case.plan), "seed": self.seed, "constants": constants}
        return Log(log.time, log.columns, log.units, log.meta | about)

    def _facts(self, case: "Case", log: Log, plain: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
        period, T = float(log.time[0]), len(case.reference.u)
        worlds = [
            {"world": case.world(k), "e": dict(zip(case.params.names, case.e[k].tolist())),
             "kinematic_largest": float(plain[k].max()), "largest": float(ours[k].max()), "end": float(ours[k, -1])}
            for k in range(len(case.e))
        ]  # fmt: skip
        return {
            "motion": case.name, "out": str(self.out), "seconds": T * period, "period": period, "planned": len(log) * period,
            "interrupted": len(log) < T, "part": case.part, "unit": case.unit, "settings": vars(case.plan), "seed": self.seed, "worlds": worlds,
        }  # fmt: skip

    def _next(self, whole: "Whole | None") -> str:
        if whole is None:
            return f"surefoot log {quote(str(self.out))}"
        if Path(self.robot).suffix in (".xml", ".urdf") and not self.asset_root:
            return f"surefoot new track {quote(self.robot)} --motion {quote(str(self.out))}"
        return f"surefoot motion {quote(str(self.out))} --robot {quote(self.robot)}"


def _errors(case: "Case", facts: dict[str, Any]) -> Table:
    unit, by = ("cm", 100.0) if case.unit == "m" else ("deg", 57.29578)
    heads = ["world", *(Column(k, unit, ".3g") for k in ("kinematic", "planned", "at the end"))]
    rows = [[w["world"], *(by * w[k] for k in ("kinematic_largest", "largest", "end"))] for w in facts["worlds"]]
    return Table.of(heads, rows, f"{case.part} off its reference, at most: kinematic replay, and the plan open loop")


def _curves(case: "Case", period: float, plain: np.ndarray, ours: np.ndarray) -> list[Block]:
    unit, by = ("cm", 100.0) if case.unit == "m" else ("deg", 57.29578)
    curve = lambda name, x, style: Series.of(name, period * np.arange(1, len(x) + 1), by * x, style=style)  # noqa: E731
    lines = [curve(f"planned: {case.world(k)}", x, "line") for k, x in enumerate(ours[:4])]
    about = Plot(f"{case.part} off its reference", (curve("kinematic replay", plain[0], "dashed"), *lines), Axis("time", "s"), Axis("error", unit))  # fmt: skip
    more = [Note(f"{len(ours) - 4} more worlds are in the table")] if len(ours) > 4 else []
    return [about, *more]
