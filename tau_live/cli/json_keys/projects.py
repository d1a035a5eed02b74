"""What the JSON of `tau-live init` holds; ``keys`` tells how to read it."""

from tau_live.cli.json_keys.rows import Keys

INIT: Keys = {
    "file": "the settings file",
    "state": "written, proposed or complete: nothing is lacking",
    "diff[]": "what was or would be changed, as lines of a unified diff",
    "fragment": "what is added, as TOML",
    "left_alone[]": "what is set already to something else",
    "said[]": "what was found and is not proposed, and why",
    "doubts[]": "what was not looked at, and what seems wrong around the project",
    "hosts[].host": "a supported host",
    "hosts[].version": "what is installed here; null for nothing",
    "hosts[].declared": "whether the project says that it needs it",
    "hosts[].imported[]": "the files that import it",
    "hosts[].points[]": "where its adapter may decide",
    "found[].kind": "agent, model, prompt, tool, reward or point",
    "found[].text": "its name; of instructions the beginning",
    "found[].host": "whose it is; empty for the project's own",
    "found[].path": "the file that names it",
    "found[].line": "the line",
    "read": "files that were parsed",
    "unread[].why": "why files were not",
    "unread[].files[]": "those files",
    "next": "the command to run next",
}
