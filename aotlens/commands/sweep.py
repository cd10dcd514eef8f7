"""`aotlens sweep`: models × seeds × settings × analyses, each cell in a process of its own and computed once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from aotlens.commands.shared import PLAIN, TokenBar, print_text, printable, several, table

MOST_JOBS = 1024


class _RunUnlessNamed(typer.core.TyperGroup):
    """`aotlens sweep FILE` is `aotlens sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunUnlessNamed,
    help="A grid of runs from a TOML file: aotlens sweep SWEEP.toml.",
    **PLAIN,
)

File = Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="The sweep's file; docs/sweeps.md shows one.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The sweep's folder, not SWEEP next to SWEEP.toml.")]


@app.command("run")
def run(
    sweep: File,
    out: Out = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=MOST_JOBS, metavar="N", help="Cells at a time on this machine.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster, as tcp://HOST:8786.")
    ] = None,
) -> None:
    """Run what is not done yet, and write one table of all: results.csv, results.parquet.

    A cell that raises or is killed is a failed cell, and the rest goes on; the next call tries it again. Ctrl-C loses
    none that is done. Without --dask, as many cells run at a time as this machine has cores for. How many there are and
    where they run is printed on stderr, then a bar, or in a file or a pipe a line for each cell that has ended.
    """
    from aotlens.sweeps import load_sweep, run_sweep

    folder = _folder(sweep, out)
    loaded = load_sweep(sweep)
    if dask is not None and jobs is not None:
        raise ValueError("--jobs is of this machine; a Dask cluster has as many as its workers have threads.")
    n_jobs = None if dask is not None else jobs or max(1, (os.cpu_count() or 1) // loaded.threads)
    try:
        with TokenBar("cells", lines=True) as bar, _cluster(dask, bar.say):
            if n_jobs is not None:
                bar.say(f"cells run on this machine, {n_jobs} at a time")
            status = run_sweep(loaded, folder, n_jobs=n_jobs, progress=bar, announce=bar.say)
    except KeyboardInterrupt:
        typer.echo(printable(f"{folder}: stopped. What is done is kept, and the same command goes on."), err=True)
        raise
    _say(status, write=True)
    if status.failed:
        raise typer.Exit(1)


@app.command("status")
def status(sweep: File, out: Out = None) -> None:
    """Show how far a sweep is, and why cells failed; also while it runs."""
    from aotlens.sweeps import sweep_status

    _say(sweep_status(_folder(sweep, out)), write=False)


def _folder(sweep: Path, out: Path | None) -> Path:
    """Return the folder of the sweep's cells. Raises ValueError for a name that is no TOML file's."""
    if sweep.suffix != ".toml":
        raise ValueError(f"{sweep}: expected a TOML file, as SWEEP.toml; docs/sweeps.md shows one.")
    return sweep.with_suffix("") if out is None else out


@contextmanager
def _cluster(address: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """The Dask cluster as the place where joblib runs cells, once it has a worker; without an address, nothing."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("--dask needs the package distributed: pip install 'aotlens[sweeps]'.") from None
    import joblib

    try:
        client = Client(address, timeout="10s", set_as_default=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"--dask {address}: no Dask scheduler answers there ({error}).") from error
    with client, joblib.parallel_config("dask", client=client):
        if not client.ncores():
            say(f"waiting for workers of {address}; `dask worker {address}` starts one, Ctrl-C stops waiting")
            client.wait_for_workers(1)
        threads = client.ncores()
        workers = several(len(threads), "Dask worker")
        say(f"cells run on {workers} of {address}, {sum(threads.values())} at a time")
        yield


def _say(status: Any, write: bool) -> None:
    from aotlens.sweeps.store import Store

    print_text(f"{status.folder}: {status.headline}.")
    if status.failed:
        rows = [("cell", "what", "error")]
        for cell in status.failed:
            what = ", ".join(f"{name} {value}" for name, value in cell.label.items() if value is not None)
            rows.append((cell.key, what, str(cell.error)))
        print_text(table(rows))
    if write and status.done:
        frame = status.to_frame()
        paths = Store(status.folder).write_table(frame)
        print_text(f"{len(frame)} rows: {', '.join(str(path) for path in paths)}")
