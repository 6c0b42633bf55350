"""A running process as a source: bounded, versioned reads over HTTP, and nothing else.

Every answer has a limit on its bytes and its time, redirects are not followed, and whatever comes
back is checked before anything is made of it.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from onearena.dashboard.checked import Checked, SourceError, kind_of, parse_json
from onearena.dashboard.frame import Frame, parse_frame

API_VERSION: Final = 1
TIMEOUT_S: Final = 4.0
ANSWER_BYTES_MAX: Final = 1 << 20
ROW_WIDTH: Final = 16384
URL_MAX: Final = 512
PORT: Final = 9464


class HttpSource:
    """What the exporter at `url` says. Any thread; each call opens a connection of its own.

    `url` is `http://host[:port]` or https, with `user:password@` where the exporter asks for it;
    `name` is the same without them, fit to be shown.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        if len(url) > URL_MAX or not url.isprintable():
            raise SourceError("source: give an address of at most 512 printable characters")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise SourceError(f"source {url!r}: this is no address") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError(f"source {url!r}: give http://host:{PORT}, or a recorded file")
        if parts.query or parts.fragment or parts.path.strip("/"):
            raise SourceError(f"source {url!r}: give the address alone, as in http://host:{PORT}")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = PORT if port is None else port
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.name = f"{parts.scheme}://{host}:{self._port}"
        self._headers = {"Connection": "close"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._timeout_s = timeout_s

    @property
    def loopback(self) -> bool:
        """Whether the address is one of this machine's own."""
        if self._host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self._host).is_loopback
        except ValueError:
            return False  # a name, whatever it begins with

    def frame(self, *, start_bytes: int = 0, end_bytes: int = 0, arena: str = "") -> Frame:
        """The arena now; the window [start_bytes, end_bytes) in detail, the whole by default."""
        query: dict[str, Any] = {"width": ROW_WIDTH}
        if end_bytes > start_bytes:
            query |= {"from": start_bytes, "to": end_bytes}
        if arena:
            query["arena"] = arena
        return parse_frame(self._document("/frame", query), self.name)

    def campaign(self) -> Mapping[str, Any]:
        """The campaign's document: `taken_s`, `summary`, `failures` (how many)."""
        return Checked(self._document("/campaign", {}), self.name).value

    def failure(self, number: int) -> Mapping[str, Any]:
        """Failure `number` of the campaign, from 0."""
        document = Checked(self._document(f"/failures/{number}", {}), self.name)
        return document.child("failure").value

    def _document(self, path: str, query: Mapping[str, Any]) -> object:
        text = f"?{urlencode(query)}" if query else ""
        status, body = self._get(path + text)
        if status == 404 and path == "/frame":
            raise SourceError(f"{self.name}: {_words(body)}; it serves no arena")
        document = parse_json(body, self.name) if status == 200 or body[:1] == b"{" else {}
        version = document.get("version") if isinstance(document, dict) else None
        if status == 200 and version != API_VERSION:
            raise SourceError(
                f"{self.name}: version {API_VERSION} is understood, and it speaks version "
                f"{kind_of(version)}; is it an exporter of this onearena?"
            )
        if status != 200:
            self._refused(status, body)
        return document

    def _refused(self, status: int, body: bytes) -> None:
        if status == 503:
            raise SourceError(f"{self.name}: {_words(body)}", trouble="disconnected")
        if status in (401, 403):
            raise SourceError(f"{self.name}: it wants a user and a password: give them in --source")
        if status == 404:
            raise SourceError(f"{self.name}: {_words(body)}")
        raise SourceError(f"{self.name}: it answers {status}; is it an exporter of onearena?")

    def _get(self, target: str) -> tuple[int, bytes]:
        """Status and body; `SourceError` if it cannot be had within the limits."""
        connection: http.client.HTTPConnection
        if self._secure:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=_tls()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", target, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX + 1)
        except TimeoutError:
            raise SourceError(
                f"{self.name}: no answer within {self._timeout_s:.0f} s", trouble="disconnected"
            ) from None
        except ssl.SSLError as error:
            raise SourceError(f"{self.name}: no secure connection ({error.reason})") from None
        except (socket.gaierror, UnicodeError):
            raise SourceError(f"{self.name}: there is no such host") from None
        except OSError as error:
            raise SourceError(
                f"{self.name}: nobody answers ({error.strerror or type(error).__name__})",
                trouble="disconnected",
            ) from None
        except (http.client.HTTPException, ValueError) as error:
            raise SourceError(
                f"{self.name}: what answers speaks no HTTP ({type(error).__name__})"
            ) from None
        finally:
            connection.close()
        if len(body) > ANSWER_BYTES_MAX:
            raise SourceError(f"{self.name}: its answer is longer than {ANSWER_BYTES_MAX} bytes")
        return answer.status, body


def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _words(body: bytes) -> str:
    """The one line of an error document, or nothing."""
    try:
        document = parse_json(body[:4096], "answer")
    except SourceError:
        return "no such page"
    found = document.get("error") if isinstance(document, dict) else None
    return " ".join(str(found).split())[:200] if found else "no such page"
