"""The JSON keys of `tau-live init`."""

from tau_live.cli.json_keys.rows import Keys

INIT: Keys = {
    "file": "the settings file",
    "state": "written, proposed, or complete: nothing to add",
    "diff[]": "the change as lines of a unified diff",
    "fragment": "what is added, as TOML",
    "left_alone[]": "what is already set to another value",
    "said[]": "what was found but is not proposed, and why",
    "doubts[]": "what was not read, and what seems wrong around the project",
    "hosts[].host": "a supported host",
    "hosts[].version": "the installed version; null if not installed",
    "hosts[].declared": "whether the project declares it as a dependency",
    "hosts[].imported[]": "the files that import it",
    "hosts[].points[]": "decision points of its adapter",
    "found[].kind": "agent, model, prompt, tool, reward or point",
    "found[].text": "its name; for instructions, the beginning",
    "found[].host": "its host; empty for the project's own",
    "found[].path": "the file it is in",
    "found[].line": "the line",
    "read": "files that were parsed",
    "unread[].why": "why files were skipped",
    "unread[].files[]": "the files skipped",
    "next": "the command to run next",
}
