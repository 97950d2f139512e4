"""How hosts are named: read, spelled in one way, and nothing that ssh could take for an option."""

from __future__ import annotations

import pytest

from sweepstack.channel.host_address import HostAddress
from sweepstack.onbox.common.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("root@192.0.2.7", "root@192.0.2.7:22"),
        ("root@192.0.2.7:10234", "root@192.0.2.7:10234"),
        ("gpu1", "gpu1"),
        ("gpu1/data", "gpu1/data"),
        ("ann@bastion,bob@b2:77,gpu1:2222/data", "ann@bastion:22,bob@b2:77,root@gpu1:2222/data"),
        ("gpu1=ann@bastion:22,ann@10.0.0.5:2222/data", "gpu1=ann@bastion:22,ann@10.0.0.5:2222/data"),
        ("gpu1=*,ann@10.0.0.5:2222", "gpu1=*,ann@10.0.0.5:2222"),
        ("ann@connect.westb.example.com:10234/root/data/", "ann@connect.westb.example.com:10234/root/data"),
        ("ann@[2001:db8::7]:2222/x", "ann@[2001:db8::7]:2222/x"),
    ],
)
def test_one_spelling(text: str, spelled: str) -> None:
    address = HostAddress.parse(text)
    assert str(address) == spelled
    assert HostAddress.parse(spelled) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "root@", "root@h:0", "root@h:99999", "a b@h", "root@h:22/a b", "-oProxyCommand=x@h", "root@-h"),
        *("*,u@h", "a=b=u@h", "a=", "u@h,", ",u@h", "u@h,/x", "a b=u@h", "gpu1=*"),
        *("u@h:22/../x", "root@h:22:23", "root@h\n", "ssh://root@h", "root@h:22x"),
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ConfigError, match="user@host:port"):
        HostAddress.parse(text)


def test_the_folder_is_no_part_of_the_login() -> None:
    one, other = HostAddress.parse("root@h:22/a"), HostAddress.parse("root@h:22/b")
    assert one.login == other.login == "root@h:22"
    assert one.endpoint == other.endpoint
    assert one.endpoint.known_as == "root@h:22"
