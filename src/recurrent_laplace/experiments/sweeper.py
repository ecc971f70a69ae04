"""The sweeper: puts a team to work on a sweep, and shows how far it is."""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from recurrent_laplace.experiments.display import format_seconds
from recurrent_laplace.experiments.runner import InterruptedRunError
from recurrent_laplace.experiments.sweeps import Standing, counts, describe
from recurrent_laplace.experiments.teams import AbstractTeam

LOOK_SECONDS = 0.5
"""How often the sweeper looks at its workers."""
SHOWN = 12
"""So many of the runs that are at work are named."""
LINE_SECONDS = 20.0
"""How often a line is printed where there is no terminal and nothing happens."""


def run_sweep(team: AbstractTeam) -> None:
    """Let a team work through its sweep; what failed is left to be asked for."""
    directory = team.directory
    jobs = directory.plan.jobs
    directory.leases.forget_attempts([job.id for job in jobs if not directory.is_done(job)])
    with team:
        try:
            with _Board(team) as board:
                while team.is_working():
                    time.sleep(LOOK_SECONDS)
                    board.look()
                board.look()
        except KeyboardInterrupt:
            team.was_stopped = True
            print("stopping: the workers store what they have", file=sys.stderr, flush=True)
    if team.was_stopped:
        raise InterruptedRunError("stopped: the same command continues the sweep.")


class _Board:
    """What a person sees of a sweep."""

    def __init__(self, team: AbstractTeam):
        self.directory = directory = team.directory
        self.team = team
        self.console = Console(stderr=True)
        self.began = time.monotonic()
        self.last_line = self.began
        self.running: dict[str, float] = {}
        self.told = {job.id for job in directory.plan.jobs if directory.is_done(job)}
        self.live: Live | None = None

    def __enter__(self) -> "_Board":
        total, done = len(self.directory.plan.jobs), len(self.told)
        self._say(f"{total} runs, {done} of them done before; {self.team.about()}")
        if self.console.is_terminal:
            picture = self._picture(self.directory.standings())
            self.live = Live(picture, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def look(self) -> None:
        """See what has changed, and show it."""
        standings = self.directory.standings()
        for job in self.directory.plan.jobs:
            word, message = standings[job.id]
            if word == "running":
                if job.id not in self.running:
                    self.running[job.id] = time.monotonic()
                    if self.live is None:
                        self._say(f"  begins: {describe(job)}")
                continue
            began = self.running.pop(job.id, None)
            if word == "done" and job.id not in self.told:
                self.told.add(job.id)
                took = f" in {format_seconds(time.monotonic() - began)}" if began is not None else ""
                self._say(f"  {len(self.told)}/{len(self.directory.plan.jobs)} done: {describe(job)}{took}")
            elif began is not None and message:
                self._say(f"  failed: {describe(job)}: {message}")
        if self.live is not None:
            self.live.update(self._picture(standings))
        elif time.monotonic() - self.last_line >= LINE_SECONDS:
            self._say("  " + "; ".join(self._lines()))

    def _lines(self) -> list[str]:
        return self.team.lines(self.running)

    def _picture(self, standings: dict[str, Standing]) -> Group:
        found = counts(standings)
        words = ", ".join(f"{count} {word}" for word, count in found.items() if count)
        lines = [Text(f"{words}; {format_seconds(time.monotonic() - self.began)} so far", style="bold")]
        jobs = {job.id: job for job in self.directory.plan.jobs}
        for job_id in list(self.running)[:SHOWN]:
            lines.append(Text(f"  {describe(jobs[job_id])}", style="cyan"))
        lines += [Text(f"    {line}", style="dim") for line in self._lines()]
        for line in lines:
            line.no_wrap = True
            line.truncate(self.console.width, overflow="ellipsis")
        return Group(*lines)

    def _say(self, text: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)
