"""TLS and passwords of the exporter: files in, one context and one question out."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onearena.core.errors import UsageError

PASSWORD_FILE_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How the exporter is protected; nothing by default, since it listens on loopback only.

    certificate and key: PEM files, TLS with both. client_ca: PEM file of authorities, one of which
    has to have signed a client's certificate (mutual TLS). passwords: a file of `user:password`
    lines that nobody but its owner may read; it is read again when it changes.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    passwords: Path | None = None

    def context(self) -> ssl.SSLContext | None:
        """A server context of TLS 1.2 or newer; None without a certificate."""
        if self.certificate is None:
            for field, value in (("key", self.key), ("client_ca", self.client_ca)):
                if value is not None:
                    raise UsageError(field, str(value), "give a certificate with it")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:
            fix = f"give PEM files of a certificate and its unencrypted key ({error})"
            raise UsageError("certificate", str(self.certificate), fix) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                fix = f"give a PEM file of authorities ({error})"
                raise UsageError("client_ca", str(self.client_ca), fix) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Passwords:
    """Users and passwords of a file, read again when the file changes.

    If a changed file cannot be read, nobody is let in until it can.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] = (0, 0, 0)
        self._known: dict[bytes, bytes] = {}
        self._read()

    def allow(self, authorization: str) -> bool:
        """Whether the value of an `Authorization` header names a user with the right password."""
        try:
            self._refresh()
        except UsageError:
            return False
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(token.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        # An unknown user is compared too: how long an answer takes says nothing about either.
        wanted = self._known.get(user, b"")
        same = hmac.compare_digest(_digest(password), wanted or _digest(b""))
        return same and bool(wanted)

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
        except OSError as error:
            self._known = {}
            self._stamp = (0, 0, 0)
            raise _unreadable(self._path, error) from None
        if (found.st_mtime_ns, found.st_size, found.st_ino) != self._stamp:
            self._read()

    def _read(self) -> None:
        self._known = {}
        try:
            found = self._path.stat()
            raw = self._path.read_bytes()[: PASSWORD_FILE_BYTES_MAX + 1]
        except OSError as error:
            raise _unreadable(self._path, error) from None
        self._stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError("passwords", str(self._path), "let only its owner read it: chmod 600")
        if len(raw) > PASSWORD_FILE_BYTES_MAX:
            fix = f"keep it below {PASSWORD_FILE_BYTES_MAX} bytes"
            raise UsageError("passwords", str(self._path), fix)
        known: dict[bytes, bytes] = {}
        for number, line in enumerate(raw.splitlines(), 1):
            user, colon, password = line.strip().partition(b":")
            if not user and not colon:
                continue
            if not (user and colon and password):
                where = f"{self._path}, line {number}"
                raise UsageError("passwords", where, "write each line as user:password")
            known[user] = _digest(password)
        if not known:
            raise UsageError("passwords", str(self._path), "write at least one user:password line")
        self._known = known


def _digest(password: bytes) -> bytes:
    """Of equal length whatever the password, so that comparing takes equally long."""
    return hashlib.sha256(password).digest()


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError("passwords", str(path), f"give a file that can be read ({error.strerror})")


__all__ = ["Passwords", "Security"]
