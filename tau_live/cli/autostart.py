"""``tau-live autostart``: whether every Python of this environment attaches by itself."""

import click

from tau_live.boot import autostart as autostarting
from tau_live.boot.autostart import contents, files, site_packages, state_of
from tau_live.cli.options import epilog, json_option
from tau_live.cli.output import facts_of, print_all, print_json


@click.group(epilog=epilog("autostart enable", "tau-live autostart enable"))
def autostart() -> None:
    """Turn on or off attaching in every Python of this environment.

    When enabled, `TAU_LIVE_RL=1 python agent.py` needs no other change. It is one line in
    one file of site-packages, which does nothing while TAU_LIVE_RL is unset.
    """


@autostart.command("enable", epilog=epilog("autostart enable", "tau-live autostart enable"))
def enable() -> None:
    """Write the file, replacing any earlier one."""
    autostarting.enable(site_packages(), contents())
    _show()


@autostart.command("disable", epilog=epilog("autostart disable", "tau-live autostart disable"))
def disable() -> None:
    """Remove the file if there is one."""
    autostarting.disable(site_packages())
    _show()


@autostart.command(
    "status", epilog=epilog("autostart status", "tau-live autostart status --json | jq .state")
)
@json_option
def status(as_json: bool) -> None:
    """Show whether the file exists, its contents and its checksum."""
    if not as_json:
        _show()
        return
    links = files(site_packages(), contents())
    rows = [
        {"path": str(link.path), "sha256": link.sha256, "expected": link.expected} for link in links
    ]
    print_json({"state": state_of(links).value, "files": rows})


def _show() -> None:
    links = files(site_packages(), contents())
    facts: list[tuple[str, object]] = [("autostart", state_of(links).value)]
    for link, text in zip(links, contents().values(), strict=True):
        facts.append(("file", str(link.path)))
        if link.sha256 is not None:
            facts.append(("sha256", link.sha256))
            facts.append(("holds" if link.sha256 == link.expected else "expected", text.strip()))
    print_all(facts_of(facts))
