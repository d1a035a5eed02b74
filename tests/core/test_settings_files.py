"""Settings from files: which counts, what a path in one means, and what is said of a bad one."""

from pathlib import Path

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward, SafetySettings
from tests.configured import error_of


def pyproject(folder: Path, table: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.tau-live]\n{table}\n")
    return file


# Files


def test_the_environment_wins_over_the_named_file_which_wins_over_pyproject(tmp_path: Path) -> None:
    project = pyproject(tmp_path, "seed = 1\nupdate-interval = 4\nwindow = 5")
    named = tmp_path / "live.toml"
    named.write_text("seed = 2\nupdate_interval = 3\n")
    environ = {"TAU_LIVE_RL_SEED": "3", "TAU_LIVE_RL_CONFIG": "live.toml"}

    loaded = Settings.from_env(environ, directory=tmp_path)

    settings, sources = loaded.settings, loaded.sources
    assert (settings.seed, settings.update_interval, settings.window) == (3, 3, 5)
    assert sources["seed"] == "environment"
    assert sources["update_interval"] == str(named)
    assert sources["window"] == str(project)
    assert sources["store"] == "default"


def test_the_nearest_pyproject_that_has_our_table_is_read(tmp_path: Path) -> None:
    pyproject(tmp_path, "seed = 1")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\ndependencies = ['tau-live']\n")

    loaded = Settings.from_env({}, directory=below)

    assert loaded.settings.seed == 1


def test_a_broken_file_that_never_mentions_us_is_not_ours_to_judge(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[broken\n")

    loaded = Settings.from_env({}, directory=tmp_path)

    assert loaded == Settings.from_env({})


def test_tables_of_rewards_and_safety_are_read(tmp_path: Path) -> None:
    pyproject(tmp_path, "\n".join([
        "[tool.tau-live.safety]",
        "blocked-penalty = 2",
        "hard-gate-reason-codes = []",
        "reason-code-penalties = {'secret_leak.jwt_token' = 3}",
        "[tool.tau-live.rewards.solved]",
        "primary = true",
        "[tool.tau-live.rewards.cost]",
        "weight = -0.5",
        "default = 0",
    ]))  # fmt: skip

    loaded = Settings.from_env({}, directory=tmp_path)

    assert loaded.settings.safety == SafetySettings(
        blocked_penalty=2.0,
        hard_gate_reason_codes=(),
        reason_code_penalties={"secret_leak.jwt_token": 3.0},
    )
    assert loaded.settings.rewards == (
        DeclaredReward(name="solved", primary=True),
        DeclaredReward(name="cost", weight=-0.5, default=0.0),
    )
    assert loaded.warnings == []


def test_a_path_in_a_file_is_relative_to_that_file(tmp_path: Path) -> None:
    pyproject(tmp_path, "store = 'data/live.sqlite'")
    below = tmp_path / "deep"
    below.mkdir()

    loaded = Settings.from_env({}, directory=below)

    assert loaded.settings.store == tmp_path / "data" / "live.sqlite"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[tool.tau-live]\nseed = 1\nseed =\n", "line 3"),
        (b"[tool.tau-live", "line 1"),
        (b"[tool.tau-live]\n# \xff\n", "line 2"),
        (b"[tool.tau-live]\nrewards = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_is_named_with_its_line(
    tmp_path: Path, content: bytes, line: str
) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)

    message = error_of({}, tmp_path)

    assert message.startswith(f"{tmp_path / 'pyproject.toml'} is not TOML: ")
    assert line in message


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("seed = -1", "tool.tau-live.seed in {file} must be a whole number from 0"),
        ("seed = true", "tool.tau-live.seed in {file} must be a whole number from 0"),
        ("learner = false", "tool.tau-live.learner in {file} must be one of thread, flush, off"),
        ("store = 3", "tool.tau-live.store in {file} must be a path, or postgresql://"),
        ("safety = 1", "safety in {file} must be a table, got 1"),
        ("safety = {blocked-penalty = -1}", "blocked-penalty in {file}: safety_reward."),
        ("config = 'x.toml'", "cannot be set in a file, only as TAU_LIVE_RL_CONFIG"),
        ("lease-ttl-s = 1\nlease_ttl_s = 2", "lease_ttl_s in {file} is given twice, also as"),
    ],
)  # fmt: skip
def test_an_error_in_a_file_names_the_key_and_the_file(
    tmp_path: Path, table: str, expected: str
) -> None:
    file = pyproject(tmp_path, table)

    message = error_of({}, tmp_path)

    assert expected.format(file=file) in message


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    message = error_of({"TAU_LIVE_RL_CONFIG": "gone.toml"}, tmp_path)

    assert message == f"cannot read {tmp_path / 'gone.toml'}: No such file or directory"


def test_an_unknown_key_is_warned_about_with_the_nearest_key(tmp_path: Path) -> None:
    file = pyproject(tmp_path, "safety = {blocked-penality = 1}")

    loaded = Settings.from_env({}, directory=tmp_path)

    (warning,) = loaded.warnings
    assert warning == (
        f"{file}: tool.tau-live.safety.blocked-penality is not a setting of tau-live; "
        "did you mean tool.tau-live.safety.blocked-penalty?"
    )


@pytest.mark.parametrize("text", ["[[tool.tau-live]]\nseed = 1", "[tool]\ntau-live = 3"])
def test_a_table_of_ours_that_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(text)

    with pytest.raises(SettingsError, match=r"pyproject.toml: tool.tau-live must be a table"):
        Settings.from_env({}, directory=tmp_path)
