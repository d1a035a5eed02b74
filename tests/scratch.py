"""A Python environment of one's own, with the packages of this one and our code."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tau_live

ROOT = Path(__file__).parents[1]


def own_entry_points() -> str:
    """Return the entry points that an installer would write of tau-live, as they are now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    )


class Scratch:
    """A virtual environment that nobody else uses.

    Attributes:
        folder: Where agents are run.
        python: Its interpreter.
        site: Its site-packages.
    """

    def __init__(self, folder: Path) -> None:
        """Make it, without installing anything."""
        self.folder = folder / "agent"
        self.folder.mkdir()
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
        )
        self.python = folder / "venv/bin/python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "venv/lib" / version / "site-packages"
        ours = [str(ROOT), str(ROOT / "hooks"), sysconfig.get_path("purelib")]
        (self.site / "_ours.pth").write_text("".join(f"{line}\n" for line in ours))
        self.list("tau_live", tau_live.__version__, own_entry_points())

    def write(self, name: str, text: str) -> Path:
        """Write a file of the agent."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def install(self, name: str, text: str, entry_points: str = "") -> None:
        """Put a module into site-packages, with the metadata that an installer would write."""
        (self.site / f"{name}.py").write_text(text)
        self.list(name, "1.2.3", entry_points)

    def list(self, name: str, version: str, entry_points: str) -> None:
        """Write the metadata that an installer would write."""
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(entry_points)

    def environ(self, switch: str | None = "1", **more: str) -> dict[str, str]:
        """Return a clean environment, switched on or not."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        on = {} if switch is None else {"TAU_LIVE_RL": switch}
        single = {"OMP_NUM_THREADS": "1", "HOME": str(self.folder), "COLUMNS": "200"}
        return {**kept, **single, **on, **more}

    def run(
        self, *arguments: object, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python; what it prints and how it ends is for the caller."""
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=self.folder,
            env=dict(self.environ() if environ is None else environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def said(self, *arguments: object, environ: Mapping[str, str] | None = None) -> str:
        """Return what this environment's Python prints; it must end well."""
        done = self.run(*arguments, environ=environ)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def cli(self, *arguments: object, environ: Mapping[str, str] | None = None) -> str:
        """Return what ``tau-live`` prints in this environment; it must end well."""
        return self.said("-m", "tau_live.cli", *arguments, environ=environ)
