"""Keys and certificates of a cluster, and the kubeconfig files that hold them."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3


class Authority:
    """Signs the certificates of a cluster. `folder`: where all of them lie, as NAME.crt and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("cluster of the tests", ())
        own = _begin(self._name, self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = _write(folder / "ca", own.sign(self._key, hashes.SHA256()), self._key)

    def issue(
        self, file: str, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = (), *, days: float = DAYS
    ) -> tuple[Path, Path]:
        """A certificate, and its key: of a user in these groups, and of a server where there are `hosts` (names and
        addresses). `days` below 0: one that is no longer valid."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begin(self._name, _name(user, groups), key.public_key(), days)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        _write(self.folder / file, made.sign(self._key, hashes.SHA256()), key)
        return self.folder / f"{file}.crt", self.folder / f"{file}.key"

    def kubeconfig(self, file: str, server: str, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file of a user, who has a certificate: all in one file."""
        certificate, key = self.issue(file, user, groups)
        return write_kubeconfig(
            self.folder / f"{file}.kubeconfig", server, self.certificate, user,
            {"client-certificate-data": _data(certificate), "client-key-data": _data(key)},
        )  # fmt: skip


def write_kubeconfig(
    file: Path, server: str, authority: Path, user: str, may: dict[str, str], *, namespace: str = "default"
) -> Path:
    """`may`: how the user shows who it is, as in the `user` of such a file."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "tests", "cluster": {"server": server, "certificate-authority-data": _data(authority)}},
        ],
        "users": [{"name": user, "user": may}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user, "namespace": namespace}}],
        "current-context": "tests",
    }
    file.write_text(json.dumps(config, indent=1))  # JSON is YAML
    file.chmod(0o600)
    return file


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    words = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in groups]
    return x509.Name([*words, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _begin(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float = DAYS
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    first = now - datetime.timedelta(days=DAYS)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(at: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    at.with_suffix(".key").write_bytes(text)
    at.with_suffix(".key").chmod(0o600)
    at.with_suffix(".crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return at.with_suffix(".crt")


def _data(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
