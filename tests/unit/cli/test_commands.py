"""Properties that every command shares: help, options and shell completion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.testing import CliRunner

from doorstep.cli.main import COMMANDS, app, command_tree
from tests.support.matrix import each_case

WITHOUT_JSON = {"serve", "worker"}
"""These commands run until they are stopped and write JSON logs, so they have no `--json` option."""
ON_THIS_MACHINE = {
    "serve",
    "worker",
    "migrate",
    "adopt-key",
    "doctor",
    "settings",
    "version",
    "demo",
    "new",
    "listen",
} | {f"outbox {verb}" for verb in ("list", "retry", "discard")}


def commands(group: Any = None, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in (group or command_tree()).commands.items():
        path = (*names, name)
        if hasattr(command, "commands"):
            yield from commands(command, path)
        else:
            yield " ".join(path), command


ALL = dict(commands())
every_command = each_case("name", ALL)


def flags(name: str) -> set[str]:
    return {flag for option in ALL[name].params for flag in option.opts}


def test_the_commands_that_were_promised_are_there() -> None:
    promised = """
        demo | send | events list | events show | status | tail | serve | worker | migrate | settings | version
        endpoints list | endpoints create | endpoints show | endpoints update | endpoints pause | endpoints resume
        endpoints delete | endpoints test | endpoints rotate-secret | endpoints replay
        retry-queue list | retry-queue retry | retry-queue skip
        dead-letters list | dead-letters groups | dead-letters retry | dead-letters resolve | dead-letters delete
        deliveries list | deliveries show | deliveries attempts | deliveries history | attempts list
        keys list | keys create | keys revoke | orgs list | orgs create | audit
        bulk list | bulk show | bulk pause | bulk resume | bulk cancel | bulk watch
        listen | doctor | policy explain
    """
    wanted = {name.strip() for line in promised.strip().splitlines() for name in line.split("|")}
    assert wanted - set(ALL) == set()


def test_the_table_of_commands_has_the_summary_that_each_command_has_itself() -> None:
    tree = command_tree()
    own = {name: " ".join(command.help.split("\n\n")[0].split()) for name, command in tree.commands.items()}
    assert own == {name: entry.summary for name, entry in COMMANDS.items()}


@every_command
def test_it_can_answer_in_json(name: str) -> None:
    assert ("--json" in flags(name)) == (name not in WITHOUT_JSON)


@every_command
def test_if_it_talks_to_a_server_it_can_be_told_which_and_with_what_key(name: str) -> None:
    assert {"--url", "--key"} <= flags(name) or name in ON_THIS_MACHINE


@every_command
def test_it_has_help_and_so_has_every_option(name: str) -> None:
    assert ALL[name].help
    assert [option.opts for option in ALL[name].params if not option.hidden and not option.help] == []


@every_command
def test_its_help_can_be_shown(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"])
    assert done.exit_code == 0, done.output


def test_a_shell_is_offered_the_commands_that_begin_so() -> None:
    environment = {"_DOORSTEP_COMPLETE": "complete_bash", "COMP_WORDS": "doorstep dead", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], env=environment, prog_name="doorstep")
    assert done.output.split() == ["dead-letters"]


def test_a_shell_is_offered_the_options_of_a_command() -> None:
    words = "doorstep dead-letters retry --can"
    environment = {"_DOORSTEP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = CliRunner().invoke(app, [], env=environment, prog_name="doorstep")
    assert done.output.split() == ["--canary"]


def test_a_mistyped_command_is_answered_with_the_closest_one() -> None:
    done = CliRunner().invoke(app, ["evnts"])
    assert done.exit_code == 2
    assert "events" in done.stderr


def test_a_shell_is_offered_the_policies() -> None:
    words = "doorstep policy explain pa"
    environment = {"_DOORSTEP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    done = CliRunner().invoke(app, [], env=environment, prog_name="doorstep")
    assert done.output.split() == ["patient"]
