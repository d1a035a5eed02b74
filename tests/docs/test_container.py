"""The image and the services that are shipped: their commands are ours, for ordinary users."""

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from tau_live.cli import main

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/templates/container"


def test_each_service_is_a_command_with_options_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]

    assert services.keys() == {"dashboard", "proxy", "learner"}
    for service in services.values():
        name, *words = service["command"]
        command = main.get_command(click.Context(main), name)
        assert command is not None
        command.make_parser(click.Context(command)).parse_args([*words])
        assert service["read_only"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        if "--bind" in " ".join(words):
            assert "--token-file" in " ".join(words)


def test_the_image_is_of_an_ordinary_user_with_extras_that_exist() -> None:
    lines = (FOLDER / "Dockerfile").read_text()
    project = (ROOT / "pyproject.toml").read_text()

    assert "\nUSER 10001\n" in lines
    extras = lines.partition('"/src[')[2].partition("]")[0].split(",")
    assert all(f"\n{extra} = [" in project for extra in extras)


def test_the_image_builds_where_a_builder_is_at_hand() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "info"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no builder is at hand")
    image = "tau-live-test"
    file = FOLDER / "Dockerfile"
    subprocess.run([docker, "build", "-q", "-f", file, "-t", image, ROOT], check=True)
    made = subprocess.run(
        [docker, "run", "--rm", image, "--version"], check=True, capture_output=True, text=True
    )
    assert "tau-live" in made.stdout
