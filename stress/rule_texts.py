"""The lifecycle rules for a reader of a failure: what each asks, and what goes wrong without it."""

from __future__ import annotations

from typing import Final

RULE_TEXTS: Final[dict[str, str]] = {
    "1": (
        "A free counts at once: the unit is capacity from that call on. Its bytes are another "
        "matter. They may be given to somebody else only when every recorded use of them is over, "
        "reads included; until then the unit is pending. Settling a use orders one stream behind "
        "it and erases nothing: only the host having seen it end does."
    ),
    "2": (
        "Freeing or aborting a unit that is in use leaves it pending until all of its uses are "
        "over, not merely the latest. What was cancelled before it started does not count; what "
        "was launched does, whoever asked for it and whether or not the result is still wanted."
    ),
    "3": (
        "A move copies first and remaps then. Forwards launched before it go on reading the old "
        "place, so the old place is vacated, not free, until they are done; forwards launched "
        "after it read the new place and have to be ordered behind the copy. A unit nobody has "
        "written yet has nothing to copy."
    ),
    "4": (
        "A move reads its source: whoever still writes there comes before the copy. An "
        "opportunistic move leaves such a unit alone. A unit that a network peer may be touching "
        "is never moved, because no stream orders the peer."
    ),
    "5": (
        "When a band's frontier retreats, the bytes left outside may still be in use. They are "
        "fenced: whoever writes them next, be it another band with other units, waits as if it "
        "were the next owner of the unit. A fence ends when its uses are retired, not when one "
        "writer has waited. A frontier never passes a unit under a transfer."
    ),
    "6": (
        "Whoever writes bytes waits for every earlier use of them; whoever reads bytes waits for "
        "every write it reads. On one stream the order is there already. Between two streams it "
        "takes an event that one records and the other waits for. Against a network transfer no "
        "event helps: the host itself must have seen the transfer end."
    ),
    "7": (
        "Publishing bytes lets a peer touch them at any moment, without further notice. For a "
        "receive, every use of the old bytes must be retired first, zeroing and copies included; "
        "for a send, every write must have been seen to end."
    ),
    "8": (
        "Every user of a unit is recorded before its work is put on a stream, with the event that "
        "will tell its end. Work on a side stream forks off after the waits of its use and joins "
        "before that event. An event that was not recorded yet orders nothing, so waiting for it "
        "is refused."
    ),
    "9": (
        "Ids become addresses once, in the step that records and launches the work. No kernel "
        "reads the live table later, and no call that changes a unit comes in between; otherwise "
        "the work would touch whatever lives at the old address by then. The table and the "
        "resolved copy are bytes with uses like any other."
    ),
    "10": (
        "Decisions follow the sequence of calls alone: not the clock, not what an event happened "
        "to answer, not the order of a hash table. Two ranks that see the same calls decide the "
        "same, or their contents part ways."
    ),
    "11": (
        "An id counts its references, and the last free is the real one. A unit with more than one "
        "reference is never written in place: the writer takes a copy of its own. Queued copies "
        "and transfers of the content hold references too."
    ),
    "12": (
        "A load or a receive that failed leaves bytes that mean nothing. The unit stays live and "
        "nobody reads it; its owner frees it. Where a peer died without a word, its units are "
        "quarantined until the connection is torn down, since the peer may still write."
    ),
    "13": (
        "A call with a dead, foreign, negative or never allocated id, a second free, or a move of "
        "a unit under a transfer is refused by a typed error, and nothing has changed after it."
    ),
    "14": (
        "Allocating, freeing and moving never make the host wait for the device: waits are put on "
        "streams."
    ),
}
"""By number, as reports name them."""

OTHER_TEXT: Final = (
    "A fact that holds at every moment, whatever the rules of the lifecycle say: bands lie side by "
    "side inside the arena, sums add up, answers of capacity come true, nothing is done in vain."
)


def rule_text(rule: str) -> str:
    """The text of a rule; of a report outside the numbered rules, the common one."""
    return RULE_TEXTS.get(rule, OTHER_TEXT)
