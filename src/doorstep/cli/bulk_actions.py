"""Work on many deliveries from the command line: what is selected, asked about, begun, and watched to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from doorstep.cli.exits import ExitCode
from doorstep.cli.options import All, Ids, NoWait, PreviewOnly, Rate, Reason, Yes
from doorstep.cli.prompts import confirm
from doorstep.cli.remote import Session
from doorstep.errors import ConfigError

if TYPE_CHECKING:
    from doorstep.client import Selection
    from doorstep.schemas.bulk import Bulk, Preview

_IDS_MAX = 1_000


class Which(NamedTuple):
    """Which deliveries, where filters do not say it."""

    ids: Ids = None
    everything: All = False

    def selection(self, filters: Mapping[str, object]) -> Selection:
        """Ids, filters or everything, exactly one of them: emptiness never means everything."""
        from doorstep.client import Selection

        given = {name: value for name, value in filters.items() if value is not None}
        if [bool(self.ids), bool(given), self.everything].count(True) != 1:
            raise ConfigError(
                "say which: ids, or filters (such as --type or --endpoint), or --all; exactly one of them"
            )
        if self.ids and len(self.ids) > _IDS_MAX:
            raise ConfigError(f"at most {_IDS_MAX} ids at once, got {len(self.ids)}; use filters instead")
        if self.ids:
            return Selection.of(self.ids)
        return Selection.where(**given) if given else Selection.everything()


class How(NamedTuple):
    """How to go about it."""

    rate: Rate = None
    reason: Reason = None
    preview: PreviewOnly = False
    yes: Yes = False
    no_wait: NoWait = False


class Act(NamedTuple):
    """What is to be done to them."""

    name: str
    done: str
    """What is true of one delivery afterwards, in words."""
    one: Callable[[str], object]
    """To a single delivery, at once."""
    many: Callable[[Selection], Bulk]
    preview: Callable[[Selection], Preview]
    final: bool = False
    """It cannot be undone: asked about even where ids are given."""


def work(session: Session, which: Which, filters: Mapping[str, object], act: Act, how: How) -> int:
    """Do it to one delivery at once, to several as a bulk operation."""
    selection, ids = which.selection(filters), which.ids or []
    if len(ids) == 1 and not how.preview:
        if act.final:
            confirm(session.output, f"{act.name.capitalize()} {ids[0]}?", how.yes)
        session.output.line(act.one(ids[0]), f"{ids[0]}  {act.done}")
        return ExitCode.OK
    # Ids were chosen with care; a filter may match more than was meant.
    asks = act.final or not ids
    return begin(
        session,
        act.name,
        lambda: act.preview(selection),
        lambda: act.many(selection),
        how._replace(yes=how.yes or not asks),
    )


def begin(session: Session, name: str, preview: Callable[[], Preview], start: Callable[[], Bulk], how: How) -> int:
    """Begin a bulk operation, after showing and asking what it is about; watch it, unless told not to."""
    if how.preview:
        about = preview()
        session.output.line(about, _summary(about))
        return ExitCode.OK
    if not how.yes:
        about = preview()
        session.output.note(_summary(about))
        confirm(session.output, f"{name.capitalize()} {_count(about)} of them?", yes=False)
    begun = start()
    if not how.no_wait:
        return watch(session, str(begun.bulk_id))
    session.output.line(begun, f"{begun.bulk_id}  {begun.state}; watch it with `doorstep bulk watch {begun.bulk_id}`")
    return ExitCode.OK


def watch(session: Session, bulk_id: str) -> int:
    """Show its progress until it ends; the exit code is 1 if something failed or it was cancelled."""
    from doorstep.cli.progress import watched  # here, because the bar takes long to load

    try:
        ended = watched(session, bulk_id)
    except KeyboardInterrupt:
        session.output.note(f"It goes on; see `doorstep bulk watch {bulk_id}` or `doorstep bulk cancel {bulk_id}`")
        raise
    session.output.line(ended, words(ended))
    return ExitCode.OK if ended.state == "finished" and not ended.failed else ExitCode.FAILED


def words(bulk: Bulk) -> str:
    """How it stands, in a line."""
    refused = f", {bulk.refused} could not be acted upon" if bulk.refused else ""
    return f"{bulk.bulk_id}  {bulk.state}: {bulk.progress}{refused}" + (f"; {bulk.note}" if bulk.note else "")


def _summary(about: Preview) -> str:
    places = ", ".join(f"{one.endpoint_name} {one.count}" for one in about.endpoints)
    return f"{_count(about)} selected" + (f": {places}" if places else "")


def _count(about: Preview) -> str:
    return f"{'more than ' if about.count_is_floor else ''}{about.count}"
