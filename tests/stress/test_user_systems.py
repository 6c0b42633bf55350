"""Other people's allocators: the documented example, its bug, its fix, and whose code may run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import UsageError
from onearena.stress.adapters import OnePoolAdapter, PoolsAdapter, PoolSpec
from onearena.stress.choices import Choices
from onearena.stress.cli import run
from onearena.stress.recordings import dump_recording, parse_recording
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.systems import check_system
from onearena.stress.user_systems import VARIABLE, is_user_system, load_factory, trust

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "docs/examples/epoch_pool.py:build"
PAGE = (ROOT / "docs" / "your-allocator.md").read_text()


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    """The example's name is a path below the top of the checkout; nobody is trusted yet."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv(VARIABLE, raising=False)


def example():
    trust(EXAMPLE)
    return sys.modules[load_factory(EXAMPLE).__module__]


# The systems that tests bring stand here: name a factory of this very file.
def fixed(choices: Choices) -> OnePoolAdapter:
    """The example with the change that the page shows."""

    class Fixed(example().EpochPool):
        def seen(self, event: int) -> None:
            for users in self.users.values():
                users[:] = [user for user in users if user[1] != event]
            self.free += [page for _, page in self.limbo if not self.users[page]]
            self.limbo = [(launch, page) for launch, page in self.limbo if self.users[page]]

    pages = choices.between("fixed.pages", 8, 24)
    pool = Fixed(pages)
    return OnePoolAdapter(
        ModeledDevice(eager=True), pool, page_bytes=256, pages=pages, entries_per_page=4
    )


def two_pools(choices: Choices) -> PoolsAdapter:
    """Two of the fixed pools side by side: an allocator without moves, with walls."""
    first = fixed(choices)._pools[0]
    second = type(first)(6)
    specs = [
        PoolSpec("tokens", first, 256, len(first.free), entries_per_page=4),
        PoolSpec("states", second, 512, 6, lifetime="request"),
    ]
    return PoolsAdapter(ModeledDevice(eager=True), specs)


def spec_of(name: str, seed: int) -> RunSpec:
    system = f"{Path(__file__).relative_to(ROOT)}:{name}"
    trust(system)
    load_factory(system)
    return RunSpec(seed, system)


@pytest.mark.slow
def test_the_documented_commands_find_the_bug_and_explain_it(tmp_path) -> None:
    """The commands of the page, as written, but for the folder and less shrinking time."""
    commands = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    stress, explain, control = (line.replace("runs/epoch", str(tmp_path)) for line in commands)
    entry = f"{sys.executable} -m onearena.stress.cli"

    def shell(line: str) -> subprocess.CompletedProcess[str]:
        assert "onearena " in line
        return subprocess.run(
            line.replace("onearena ", f"{entry} "), shell=True, capture_output=True, text=True
        )

    done = shell(stress)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "order: rule 6 broken at pages[" in done.stdout
    page = shell(explain)
    assert page.returncode == 0, page.stderr
    (shown,) = re.findall(r"^```\n(Rule 6 is broken.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    said = iter(page.stdout.splitlines())
    for line in shown.splitlines():
        assert line in said, f"the page shows {line!r}, and explain does not (in that order)"
    clean = shell(control)
    assert clean.returncode == 0, clean.stdout + clean.stderr


def test_the_example_shrinks_to_a_few_calls_and_names_the_rule() -> None:
    example()
    seen = [run_schedule(RunSpec(seed, EXAMPLE)) for seed in range(12)]
    assert {result.verdict for result in seen} == {"pass", "violation"}
    rules = {v.rule for result in seen for v in result.violations}
    assert rules <= {"2", "6"}, rules


@pytest.mark.parametrize("name", ["fixed", "two_pools"])
def test_the_fix_on_the_page_is_clean(name) -> None:
    assert "if not self.users[page]" in PAGE
    reached: dict[str, int] = {}
    for seed in range(40):
        result = run_schedule(spec_of(name, seed))
        assert result.verdict == "pass", (result.violations[:1], result.crash)
        for what, count in result.reach.items():
            reached[what] = reached.get(what, 0) + count
    for what in ("step.fork", "abort.in_flight", "cell.reader.fork.forward", "share.prefix"):
        assert reached.get(what), what


def test_an_adapter_refuses_misuse() -> None:
    sut = fixed(Choices(1))
    from onearena.core.errors import MisuseError
    from onearena.core.rules import UseKind

    grant = sut.allocate((2,), writer=UseKind.FORWARD, stream=1, caller="test")
    first, second = grant.ids[0]
    with pytest.raises(MisuseError):
        sut.free([first, first])
    assert [unit.references for unit in sut._units[0]].count(1) == 2
    sut.free([first])
    with pytest.raises(MisuseError):
        sut.resolve([first])
    with pytest.raises(MisuseError):
        sut.free([-5])
    sut.share([second])
    sut.free([second, second])


# -- whose code may run
@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("mine:build", True),
        ("my.package.pools:Pool", True),
        ("dir/pool.py:build", True),
        ("/abs/pool.py:build", True),
        ("arena:x", False),
        ("toy:free-at-once", False),
        ("toy:build", False),
        ("mine", False),
        ("mine:", False),
        (":build", False),
        ("mine:os.system", False),
        ("mine:__import__('os')", False),
        ("../etc:build", False),
        ("x" * 130 + ":build", False),
    ],
)
def test_names_of_user_systems(name, is_one) -> None:
    assert is_user_system(name) is is_one


def test_a_recording_does_not_import_what_it_names(tmp_path) -> None:
    """A choices file from a stranger names a module that is there to be imported."""
    module = tmp_path / "evil.py"
    module.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    toy = RunSpec(0, "toy")
    result = replace(run_schedule(replace(toy, steps=5)), recording=Choices(0).record())
    name = f"{module}:build"
    text = dump_recording(toy, result).replace('"system": "toy"', f'"system": "{name}"')
    path = tmp_path / "choices.json"
    path.write_text(text)
    for command in ("replay", "explain", "shrink"):
        assert run([command, str(path)]) == 2
    with pytest.raises(UsageError, match=f"set {VARIABLE}="):
        parse_recording(text)
    with pytest.raises(UsageError, match=VARIABLE):
        run_schedule_or_raise(RunSpec(0, name))
    assert not (tmp_path / "ran").exists()
    # The twin: trusted, the same file runs it.
    trust(name)
    with pytest.raises(UsageError, match="name a callable"):
        parse_recording(text)
    assert (tmp_path / "ran").exists()


def run_schedule_or_raise(spec: RunSpec) -> None:
    from onearena.stress.systems import build_system

    build_system(spec.system, spec.model, Choices(spec.seed))


def test_trust_is_for_one_name(tmp_path) -> None:
    trust("tests_other:build")
    with pytest.raises(UsageError, match=VARIABLE):
        check_system(EXAMPLE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name a callable"),
        ("build = 7\n", "name a callable"),
        ("import no_such_module_at_all\n", "ModuleNotFoundError"),
        ("def build(:\n", "SyntaxError"),
        ("raise RuntimeError('half\\nway')\n", "RuntimeError"),
    ],
)
def test_a_system_that_cannot_be_loaded_is_one_line(tmp_path, capsys, text, words) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert run(["stress", "--system", f"{path}:build", "--seed", "1"]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


SYSTEMLESS = """
from onearena.stress.sut import Capabilities, PlanFacts

class Sut:
    capabilities = Capabilities()
    plan = PlanFacts(arena_bytes=64, bands=(), host_units=(), schedule_stream=0)
    device = None

def build(choices):
    sut = Sut()
    sut.{without} = None
    return sut
"""


@pytest.mark.parametrize(
    ("without", "word"),
    [("capabilities", "Capabilities"), ("plan", "PlanFacts"), ("device", "ModeledDevice")],
)
def test_a_factory_that_gives_no_system_is_refused(without, word, tmp_path, capsys) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SYSTEMLESS.format(without=without))
    assert run(["stress", "--system", f"{path}:build", "--seed", "1"]) == 2
    said = capsys.readouterr()
    assert word in said.err
    assert said.err.count("\n") == 1


def test_a_schedule_of_a_factory_that_gives_no_modeled_device_is_a_crash_that_says_so(
    tmp_path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SYSTEMLESS.format(without="device"))
    name = f"{path}:build"
    trust(name)
    result = run_schedule(RunSpec(0, name))
    assert result.verdict == "crash"
    assert "ModeledDevice" in result.crash


def test_a_factory_that_raises_is_a_crash_that_says_so(tmp_path, capsys) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def build(choices):\n    return {}['units']\n")
    assert run(["stress", "--system", f"{path}:build", "--seed", "1"]) == 1
    assert "KeyError" in capsys.readouterr().out


def test_workers_run_a_user_system_too(tmp_path, capsys) -> None:
    """Two processes, each of which builds it: what is trusted here is trusted there."""
    line = ["stress", "--system", EXAMPLE, "--seeds", "0:6", "--jobs", "2", "--keep-going"]
    code = run([*line, "--no-shrink", "--json", "--out", str(tmp_path / "run")])
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["schedules"] == 6
    assert "crash" not in document["verdicts"], document


def test_a_kept_run_is_shown_and_compared_without_its_code(
    tmp_path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEARENA_SYSTEM", "")
    line = ["stress", "--system", EXAMPLE, "--seeds", "5:6", "--jobs", "1", "--no-shrink"]
    assert run([*line, "--out", str(tmp_path / "a")]) == 1
    assert run([*line, "--out", str(tmp_path / "b")]) == 1
    monkeypatch.setenv("ONEARENA_SYSTEM", "")
    capsys.readouterr()
    assert run(["runs", "show", str(tmp_path / "a")]) == 0
    assert EXAMPLE in capsys.readouterr().out
    assert run(["runs", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0


def test_a_factory_that_never_returns_stops_no_command(
    tmp_path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onearena.stress.systems.FACTORY_S", 0.5)
    path = tmp_path / "mine.py"
    path.write_text("def build(choices):\n    while True:\n        pass\n")
    line = ["stress", "--system", f"{path}:build", "--seeds", "0:1", "--jobs", "1"]
    assert run([*line, "--schedule-limit", "2s", "--out", str(tmp_path / "run")]) == 1
    assert "no result within 2 s, twice" in capsys.readouterr().out
