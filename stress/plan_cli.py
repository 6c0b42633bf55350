"""``onearena plan``: show the storage plan of a model and a byte budget."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from onearena.core.errors import UsageError
from onearena.core.plain import parse_bytes, parse_count, parse_ppm
from onearena.stress.terminal import examples

if TYPE_CHECKING:
    from onearena.core.plan import StoragePlan
    from onearena.core.requests import RequestClass

_COUNT_MAX = 1 << 40

# Names of the core's settings, as a user of the command line knows them.
_FLAGS = {
    "budget_bytes": "--bytes",
    "page_size": "--page-size",
    "draft": "--draft",
    "mem_fraction_static_ppm": "--mem-fraction-static",
    "weights_bytes": "--weights-bytes",
    "max_total_tokens": "--max-total-tokens",
    "max_running_requests": "--max-running-requests",
    "max_request_tokens": "--max-request-tokens",
    "state_slots_per_request": "--state-slots",
    "draft_tokens": "--draft-tokens",
    "workspace_bytes": "--workspace-bytes",
    "float_anchor_bytes": "--float-anchor-bytes",
}


@click.command(
    name="plan",
    epilog=examples(
        "onearena plan qwen3.5-4b --bytes 100GiB --page-size 64",
        "onearena plan gpt-oss-20b --bytes 40GiB --mix 1024+256:3,16384+4096:1",
        "onearena plan ./config.json --bytes 100GiB --draft qwen3.5-4b-mtp --json",
        "onearena plan --list",
    ),
)
@click.argument("model", required=False)
@click.option("--bytes", "budget", metavar="SIZE", help="Byte budget, e.g. 100GiB.")
@click.option("--page-size", default="64", show_default=True, metavar="N", help="Tokens in a page.")
@click.option("--draft", metavar="MODEL|FILE", help="A draft whose lanes join the target's entry.")
@click.option(
    "--draft-tokens",
    metavar="N",
    help="Draft tokens verified in a step (default 1 with --draft, else 0).",
)
@click.option("--mix", metavar="IN+OUT:WEIGHT,...", help="Request mix to count, by weight.")
@click.option(
    "--mem-fraction-static",
    default="1",
    show_default=True,
    metavar="F",
    help="Share of --bytes that weights and plan may use.",
)
@click.option(
    "--weights-bytes", default="0", show_default=True, metavar="SIZE", help="Taken by the weights."
)
@click.option("--max-total-tokens", metavar="N", help="Make the arena no larger than these need.")
@click.option(
    "--max-running-requests",
    default="256",
    show_default=True,
    metavar="N",
    help="Rows and scratch are sized for this many.",
)
@click.option("--max-request-tokens", metavar="N", help="Refuse a plan this request does not fit.")
@click.option(
    "--state-slots", default="1", show_default=True, metavar="N", help="State slots of a request."
)
@click.option(
    "--workspace-bytes",
    default="0",
    show_default=True,
    metavar="SIZE",
    help="Captured workspace to set aside.",
)
@click.option(
    "--swa-full-tokens-ratio",
    default="0.8",
    show_default=True,
    metavar="R",
    help="Hint where an empty window band opens; never a wall.",
)
@click.option(
    "--mamba-full-memory-ratio",
    default="0.9",
    show_default=True,
    metavar="R",
    help="Hint for the state's share; never a wall.",
)
@click.option(
    "--float-anchor-bytes",
    multiple=True,
    metavar="SIZE",
    help="Grid anchor of each floating band, low to high (default 0).",
)
@click.option("--lanes", "every_lane", is_flag=True, help="List every lane, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--list", "as_list", is_flag=True, help="List the known models and drafts.")
def plan(
    model: str | None, *, as_list: bool, as_json: bool, every_lane: bool, **options: object
) -> int:
    """Show the storage plan of MODEL and a byte budget.

    MODEL is a known model's name or Hugging Face id, a declaration (JSON or TOML) or a Hugging
    Face config.json.
    """
    if as_list:
        return _list_models(as_json=as_json)
    if model is None:
        raise UsageError("MODEL", model, "give a model or a file; `onearena plan --list` has names")
    made, mix = _make_plan(model, options)
    if as_json:
        click.echo(json.dumps(_json_report(made, mix), indent=2))
        return 0
    from onearena.stress.plan_view import show_plan
    from onearena.stress.terminal import console

    show_plan(made, mix, console(), every_lane=every_lane)
    return 0


def _make_plan(
    model: str, options: dict[str, object]
) -> tuple[StoragePlan, tuple[RequestClass, ...]]:
    """Turn option texts into settings and build; errors name flags, not internal names."""
    from onearena.core.models import resolve_declaration
    from onearena.core.plan import PlanSettings, StoragePlan
    from onearena.core.requests import parse_mix

    def given(name: str) -> str | None:
        value = options[name]
        assert value is None or isinstance(value, str), f"{name} is {value!r}"
        return value

    def count(name: str, *, minimum: int = 1) -> int | None:
        text = given(name)
        flag = "--" + name.replace("_", "-")
        if text is None:
            return None
        return parse_count(text, field=flag, minimum=minimum, maximum=_COUNT_MAX)

    def needed_count(name: str) -> int:
        value = count(name)
        assert value is not None, f"{name} has a default"
        return value

    budget = given("budget")
    if budget is None:
        raise UsageError("--bytes", budget, "give the byte budget, for example --bytes 100GiB")
    draft_name, mix_text = given("draft"), given("mix")
    draft_tokens = count("draft_tokens", minimum=0)
    anchors = options["float_anchor_bytes"]
    assert isinstance(anchors, tuple), f"float_anchor_bytes is {anchors!r}"
    ratios = ("mem_fraction_static", "swa_full_tokens_ratio", "mamba_full_memory_ratio")
    ppm = {
        name: parse_ppm(
            given(name) or "",
            field="--" + name.replace("_", "-"),
            maximum=1 if name == "mem_fraction_static" else 1000,
        )
        for name in ratios
    }
    target = resolve_declaration(model, field="MODEL")
    draft = None if draft_name is None else resolve_declaration(draft_name, field="--draft")
    mix = () if mix_text is None else parse_mix(mix_text, field="--mix")
    page_size = needed_count("page_size")
    try:
        settings = PlanSettings(
            budget_bytes=parse_bytes(budget, field="--bytes"),
            mem_fraction_static_ppm=ppm["mem_fraction_static"],
            weights_bytes=_size(given("weights_bytes"), "--weights-bytes"),
            max_total_tokens=count("max_total_tokens"),
            max_running_requests=needed_count("max_running_requests"),
            max_request_tokens=count("max_request_tokens"),
            state_slots_per_request=needed_count("state_slots"),
            draft_tokens=int(draft is not None) if draft_tokens is None else draft_tokens,
            workspace_bytes=_size(given("workspace_bytes"), "--workspace-bytes"),
            swa_full_tokens_ratio_ppm=ppm["swa_full_tokens_ratio"],
            mamba_full_memory_ratio_ppm=ppm["mamba_full_memory_ratio"],
        )
        made = StoragePlan.build(
            target,
            settings,
            page_size=page_size,
            draft=draft,
            float_anchor_bytes=[_size(text, "--float-anchor-bytes") for text in anchors],
        )
    except UsageError as error:
        raise _in_flags(error) from None
    return made, mix


def _size(text: object, flag: str) -> int:
    assert isinstance(text, str), f"{flag} is {text!r}"
    return parse_bytes(text, field=flag, minimum=0)


def _in_flags(error: UsageError) -> UsageError:
    """The same refusal with the core's setting names replaced by the flags the user typed."""

    def flag(match: re.Match[str]) -> str:
        return _FLAGS.get(match[0], match[0])

    words = r"[a-z_]+"
    return UsageError(re.sub(words, flag, error.field), error.value, re.sub(words, flag, error.fix))


def _list_models(*, as_json: bool) -> int:
    from onearena.core.models import KNOWN_DRAFTS, KNOWN_MODELS

    if as_json:
        rows = [
            {"name": m.name, "hf_id": m.hf_id, "draft": m in KNOWN_DRAFTS, "note": m.note}
            for m in (*KNOWN_MODELS, *KNOWN_DRAFTS)
        ]
        click.echo(json.dumps({"models": rows}, indent=2))
        return 0
    from onearena.stress.plan_view import show_models
    from onearena.stress.terminal import console

    show_models(console())
    return 0


def _json_report(made: StoragePlan, mix: tuple[RequestClass, ...]) -> dict[str, object]:
    """The plan's own JSON form, and beside it what fits."""
    from onearena.core.requests import fit_mix, largest_request

    report: dict[str, object] = {"plan": made.to_plain()}
    report["largest_request_tokens"] = largest_request(made)
    if mix:
        fit = fit_mix(made, mix)
        report["mix"] = {
            "requests": fit.requests,
            "classes": [
                {
                    "input_tokens": request.input_tokens,
                    "output_tokens": request.output_tokens,
                    "weight": request.weight,
                    "requests": number,
                }
                for request, number in zip(mix, fit.per_class, strict=True)
            ],
            "units": dict(zip((p.name for p in made.sub_pools), fit.counts, strict=True)),
        }
    return report
