"""`onearena doctor`: it says what is there, what is missing, and the command that helps."""

from __future__ import annotations

import json
import socket
from importlib import metadata

import pytest

from onearena.stress import cli, doctor


@pytest.mark.parametrize(
    ("found", "specifier", "met"),
    [
        ("2.13.0+cpu", ">=2.11,<2.14", True),
        ("2.14.1", ">=2.11,<2.14", False),
        ("2.10.9", ">=2.11,<2.14", False),
        ("2.11", ">=2.11.0", True),
        ("2.4.1", "==2.4.*", True),
        ("2.40.1", "==2.4.*", False),
        ("0.3.13.post1", "==0.3.13.post1", True),
        ("1.0", "<1", False),
        ("15.0.0", "<16,>=14", True),
        ("3.1", "", True),
    ],
)
def test_version_ranges(found, specifier, met):
    assert doctor.satisfies(found, specifier) is met


def test_unreadable_ranges_are_not_passed_over():
    with pytest.raises(AssertionError, match="cannot be read"):
        doctor.satisfies("1.0", "~=1.0")


def _named(name: str) -> doctor.Check:
    (check,) = (check for check in doctor.examine().checks if check.name == name)
    return check


def test_report_covers_what_the_metadata_asks_for():
    names = [check.name for check in doctor.examine().checks]
    base = {"numpy", "numba", "torch", "prometheus-client", "click", "rich"}
    extras = {f"extra {extra}" for extra in metadata.metadata("onearena").get_all("Provides-Extra")}
    assert base | extras | {"python", "cores", "memory", "disk", "gpu"} <= set(names)
    assert len(names) == len(set(names))
    assert doctor.examine().version == 1


def test_a_missing_base_package_fails_with_its_command(monkeypatch, capsys):
    real = metadata.version

    def without_numba(name: str) -> str:
        if name == "numba":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.metadata, "version", without_numba)
    assert cli.run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is False
    (failed,) = (check for check in report["checks"] if check["status"] == "fail")
    assert failed["name"] == "numba"
    assert failed["fix"].startswith("pip install 'numba")


def test_a_missing_extra_is_a_note_with_its_command(monkeypatch):
    monkeypatch.setattr(
        doctor, "_requirements", lambda: [doctor._Requirement("no-such-package", ">=1", "models")]
    )
    (check,) = doctor._check_requirements()
    assert (check.status, check.fix) == ("note", "pip install -e '.[models]'")
    assert "no-such-package missing" in check.found


def test_a_package_outside_its_range_fails(monkeypatch):
    monkeypatch.setattr(doctor, "_requirements", lambda: [doctor._Requirement("click", ">=99", "")])
    (check,) = doctor._check_requirements()
    assert check.status == "fail"
    assert "needs >=99" in check.found


def test_a_taken_port_is_a_note():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        taken = doctor._check_port("exporter", port)
    free = doctor._check_port("exporter", port)
    assert (taken.status, free.status) == ("note", "ok")
    assert taken.fix


def test_little_memory_and_a_full_disk_are_said(monkeypatch):
    monkeypatch.setattr(doctor, "_memory_bytes", lambda: (1 << 34, 1 << 20))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("D", (), {"free": 5})())
    found = {check.name: check for check in doctor._check_machine()}
    assert found["memory"].status == "note"
    assert found["disk"].status == "fail"


def test_a_broken_torch_is_reported_and_survived(monkeypatch):
    def broken(_name: str) -> object:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    check = doctor._check_gpu()
    assert check.status == "note"
    assert "libcudart" in check.found


def test_text_report_stays_within_100_columns(capsys):
    code = cli.run(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert (lines[-1] == "healthy") == (code == 0)
