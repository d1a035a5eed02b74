"""Whole optimizations, offline."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tau_live.core.settings import Settings
from tau_live.operate.optimizations import optimization_status
from tau_live.prompts.config import read_config
from tau_live.prompts.lead import Shown
from tau_live.prompts.optimizer import begin, lead, prices_of
from tau_live.store.records import Candidate, Optimization
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.runs import bench, start  # noqa: F401  # fixtures
from tests.prompts.stubs import PROMPT, REF, rows


class Ended(NamedTuple):
    """An optimization that has ended."""

    store: SqliteStore
    run: Optimization

    @property
    def adoption(self) -> Any:
        return self.run.report["adoption"]

    @property
    def scores(self) -> Any:
        return self.run.report["scores"]

    @property
    def status(self) -> Any:
        return optimization_status(self.store, self.run)

    @property
    def prompt(self) -> object:
        """The prompt in force."""
        return self.store.resources.latest()["system_prompt"].content

    @property
    def lineage(self) -> dict[str, Candidate]:
        """The candidates of the run, by label."""
        found = self.store.optimizations.candidates(self.run.run_id)
        return {candidate.label: candidate for candidate in found}


Optimize = Callable[..., Ended]


@pytest.fixture
def optimize(store: SqliteStore, tmp_path: Path) -> Optimize:
    """Run an optimization of the stubs to its end, with a config that is changed by key."""

    def ended(
        editor: str = "rule_editor",
        *,
        show: Callable[[Shown], None] = lambda _: None,
        settings: Settings | None = None,
        search: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Ended:
        config = {
            "optimize": rows(0, 10),
            "validate": rows(1000, 30),
            "resources": {"system_prompt": PROMPT},
            "model": f"{REF}task_model",
            "poll_interval_ms": 2,
            "completion_poll_interval_ms": 2,
            "search": {
                "rounds": 1,
                "critic_model": f"{REF}critic",
                "editor_model": f"{REF}{editor}",
                **(search or {}),
            },
            **changes,
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        loaded = read_config(path, model=None)
        settings = settings or Settings(store=store.path)
        run = begin(
            store, loaded, path, store_path=str(store.path), prices=prices_of(settings)
        )  # fmt: skip
        run = lead(store, run, loaded, settings=settings, who="tester", show=show)
        return Ended(store, run)

    return ended
