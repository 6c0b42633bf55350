"""JUnit files: valid XML, one case a rule, failures where they belong."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from onearena.stress.cli import run
from onearena.stress.junit import TEXTS_MAX, junit_xml
from onearena.stress.reach import VACUITY_SCHEDULES
from onearena.stress.report import RULES
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.summary import Summary


def summary_of(*results: RunResult) -> Summary:
    summary = Summary("toy", planned_names=("step.admit",))
    for result in results:
        summary.add(result)
    return summary


def failing() -> RunResult:
    for seed in range(60):
        result = run_schedule(RunSpec(seed, "toy:free-at-once"))
        if result.verdict == "violation":
            return result
    raise AssertionError("not caught")


def cases(summary: Summary) -> tuple[ET.Element, dict[str, ET.Element]]:
    suite = ET.fromstring(junit_xml(summary)).find("testsuite")
    assert suite is not None
    return suite, {case.attrib["name"]: case for case in suite.iter("testcase")}


def test_a_clean_campaign_has_a_passing_case_for_each_rule() -> None:
    suite, found = cases(summary_of(run_schedule(RunSpec(1, "toy"))))
    assert suite.attrib["failures"] == suite.attrib["errors"] == "0"
    assert len(found) == int(suite.attrib["tests"]) == len(RULES) + 6
    assert not any(list(case) for case in found.values())


def test_a_failure_is_in_the_case_of_its_rule_and_in_no_other() -> None:
    result = failing()
    suite, found = cases(summary_of(result))
    rule = result.violations[0].rule
    failed = [name for name, case in found.items() if case.find("failure") is not None]
    assert failed == [f"rule {rule}: {RULES[rule]}"]
    assert suite.attrib["failures"] == "1"
    failure = found[failed[0]].find("failure")
    assert failure is not None
    assert result.violations[0].message in failure.attrib["message"]
    assert "onearena stress --system" in (failure.text or "")


def test_many_failures_are_counted_and_few_told() -> None:
    result = failing()
    _, found = cases(summary_of(*[result] * (TEXTS_MAX + 3)))
    text = found[f"rule {result.violations[0].rule}: {RULES[result.violations[0].rule]}"]
    assert "and 3 more" in (text.findtext("failure") or "")


def test_a_rule_without_a_number_has_a_case() -> None:
    result = failing()
    odd = replace(result, violations=(replace(result.violations[0], rule="geometry"),))
    _, found = cases(summary_of(odd))
    failed = [name for name, case in found.items() if case.find("failure") is not None]
    assert len(failed) == 1
    assert "geometry" in failed[0]


def test_crashes_are_errors_and_control_characters_do_not_break_the_file() -> None:
    result = replace(
        failing(), verdict="crash", violations=(), crash="boom \x00\x1b[31m <&> \ud800"
    )
    suite, found = cases(summary_of(result))
    assert suite.attrib["errors"] == "1"
    error = found["the system never crashes"].find("error")
    assert error is not None
    assert "<&>" in error.attrib["message"]


def test_stuck_nondeterminism_and_nothing() -> None:
    stuck = replace(failing(), verdict="stuck", violations=(), crash="left: use 3")
    summary = summary_of(stuck)
    summary.nondeterministic.append(7)
    _, found = cases(summary)
    assert found["everything drains in the end"].find("failure") is not None
    assert found["equal seeds give equal traces"].find("failure") is not None
    _, found = cases(Summary("toy"))
    assert found["a schedule finished"].find("error") is not None


def test_reach_is_judged_in_large_campaigns_only() -> None:
    result = replace(run_schedule(RunSpec(1, "toy")), reach={})
    name = "every planned situation was reached"
    summary = summary_of(result)
    assert cases(summary)[1][name].find("skipped") is not None
    summary.schedules = VACUITY_SCHEDULES
    assert cases(summary)[1][name].find("failure") is not None


def test_the_command_writes_it(tmp_path, capsys) -> None:
    path = tmp_path / "out.xml"
    args = ["stress", "--system", "toy:free-at-once", "--seed", "1", "--junit", str(path)]
    assert run(args) == 1
    assert ET.parse(path).getroot().find("testsuite").attrib["failures"] == "1"
    missing = tmp_path / "no" / "out.xml"
    assert run([*args[:-1], str(missing)]) == 2
    captured = capsys.readouterr()
    assert "--junit" in captured.err
    assert "FAILED" in captured.out or captured.err.count("\n") == 1
