"""The addresses that a request may reach, without a socket."""

import pytest

from keep_actors.outbound.addresses import is_public, parse_address

NOT_PUBLIC = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.0.3", "168.63.129.16"),
    *("169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.7", "192.88.99.1"),
    *("192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.4", "203.0.113.9", "224.0.0.1", "239.1.1.1"),
    *("240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    *("3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"),
    *("::ffff:0:127.0.0.1", "::ffff:0:a9fe:a9fe", "1::1", "4000::1", "8000::1", "e000::1", "64:ff9b::a9fe:a9fe"),
    *("localhost", "", "1", "127.1", "2130706433", "0x7f.1", "example.org", "1.2.3.4.5"),
]


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(text: str) -> None:
    assert not is_public(text)


@pytest.mark.parametrize("text", ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_an_address_that_is_public_is_allowed(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("Intranet.Example:443", ("intranet.example", 443)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_a_host_and_a_port_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":80", "host:0", "host:65536", "host:x", "::1:80", "a b:80", "h:+8"]
)
def test_a_text_that_is_no_host_and_port_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port, such as"):
        parse_address(text)
