import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_kit import answer, proxying, serving, status

from lmagent.core.errors import ConfigError
from lmagent.sandbox.hosts import Target, is_public, is_reachable, parse_pattern, parse_target, reach_of
from lmagent.sandbox.packages import pattern_of
from lmagent.sandbox.proxyhttp import ProxyRefusal, parse_request

HOSTILE = """
user@{at} user:pw@{at} {at}@{at} {at}%2f {at}\\@x 127.1:{port} 127.0.1:{port} 0177.0.0.1:{port} 0x7f.0.0.1:{port}
0x7f000001:{port} 2130706433:{port} 017700000001:{port} 0x7f.1:{port} 127.0.0.01:{port} 127.0.0.1.:{port}
127.0.0.1..:{port} 0:{port} 0.0.0.0:{port} 00000000000127.0.0.1:{port} 127.0.0.1:0{port} 127.0.0.1:+{port}
127.0.0.1:-1 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:99999999 127.0.0.1:{port}:{port} 127.0.0.1: :{port} {port}
[::ffff:127.0.0.1]:{port} [::ffff:7f00:1]:{port} [::127.0.0.1]:{port} [::1]:{port} [0:0:0:0:0:0:0:1]:{port} [::]:{port}
::1:{port} [127.0.0.1]:{port} [::1%lo]:{port} [::1%25lo]:{port} [fe80::1]:{port} [64:ff9b::7f00:1]:{port}
[2002:7f00:1::]:{port} [::1:{port} ::1]:{port} [:::]:{port} localhost:{port} localhost.:{port} LOCALHOST:{port}
a.localhost:{port} 127.0.0.1%00.example.com:{port} 127.0.0.1%20:{port} 127。0。0。1:{port} １２７.0.0.1:{port}
⑯9.254.169.254:{port} example.com#@{at} example.com?@{at} example.com/@{at} *.example.com:443 *:{port} .:{port}
.example.com:443 example..com:443 -example.com:443 example-.com:443 exam_ple.com:443 example.com:443
evil-example.org:443 notexample.org:443 example.org.evil.test:443 xn--:443 example.123:443 example.0x1:443
169.254.169.254:80 metadata.google.internal:80
"""


@pytest.mark.parametrize("target", [*HOSTILE.split(), "", "a" * 64 + ".com:443", "a." * 130 + "com:443", "a" * 60_000])
def test_no_spelling_of_a_target_reaches_what_only_one_spelling_allows(target: str):
    with serving(answer(b"HTTP/1.1 200 OK\r\n\r\n")) as server, proxying(server.at, "*.example.org") as proxy:
        spelled = target.format(at=f"127.0.0.1:{server.port}", port=server.port).encode()
        for request in (b"GET http://%b/ HTTP/1.1\r\n\r\n", b"CONNECT %b HTTP/1.1\r\n\r\n"):
            status_ = status(proxy.say(request.replace(b"%b", spelled)))
            assert status_ in (400, 403), (request, status_)
    # A URL may hold an @ or a ? behind its host, which then is a host like any other and not the server.
    assert not server.heads


LINES = """
GET / HTTP/1.1|GET https://{at}/ HTTP/1.1|GET ftp://{at}/ HTTP/1.1|GET file:///etc/passwd HTTP/1.1|GET //{at}/ HTTP/1.1
GET  http://{at}/ HTTP/1.1|GET http://{at}/ HTTP/1.1 |GET http://{at}/ HTTP/2.0|GET http://{at}/|PRI * HTTP/2.0
GET http://{at}/ HTTP/1.10|GET http://{at}/\tx HTTP/1.1|GET http://{at}/a b HTTP/1.1|GET http://{at}/#x HTTP/1.1
GET http:{at}/ HTTP/1.1|GET http:///{at}/ HTTP/1.1|CONNECT http://{at}/ HTTP/1.1|CONNECT /{at} HTTP/1.1
CONNECT {at}/ HTTP/1.1|CONNECT 127.0.0.1 HTTP/1.1|OPTIONS * HTTP/1.1|G\x00T http://{at}/ HTTP/1.1
 GET http://{at}/ HTTP/1.1|GET http://{at}/é HTTP/1.1
"""


@pytest.mark.parametrize("line", [line for row in LINES.strip("\n").split("\n") for line in row.split("|")])
def test_a_request_line_that_is_not_one_to_a_proxy_is_refused(line: str):
    with serving(answer(b"HTTP/1.1 200 OK\r\n\r\n")) as server, proxying(server.at) as proxy:
        assert status(proxy.say(line.format(at=server.at).encode() + b"\r\nHost: 127.0.0.1\r\n\r\n")) == 400
    assert not server.heads


def test_addresses_of_this_machine_and_its_network_may_be_listed_with_their_port():
    for text in (
        "127.0.0.1:8080",
        "[::1]:8080",
        "localhost:1",
        "192.168.1.5:8000",
        "[fd00::1]:80",
        "169.254.169.254:80",
    ):
        assert reach_of([parse_pattern(text)], parse_target(text)) in ("any", "local")
    assert reach_of([parse_pattern("8.8.8.8"), parse_pattern("example.com")], Target("8.8.8.8", 443)) == "public"


ONE_HOST = {
    "Example.COM": "example.com",
    "example.com.": "example.com",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
    "[2606:4700:0:0:0:0:0:1111]": "2606:4700::1111",
    "8.8.8.8": "8.8.8.8",
}


@pytest.mark.parametrize("written", ONE_HOST)
def test_a_host_has_one_spelling(written: str):
    assert parse_target(f"{written}:443") == Target(ONE_HOST[written], 443)
    assert parse_target(written, 80).port == 80


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "*",
            "*.",
            "*.*",
            "*.com",
            "*.com:443",
            "*example.com",
            "a.*.com",
            "*.1.2.3.4",
            "*.localhost:80",
            "a b",
            "a,b",
        ),
        *("http://example.com", "example.com/", "example.com:", "example.com:0", "example.com:http", "example.com:*"),
        *("user@example.com", "localhost", "127.0.0.1", "10.0.0.1", "ip:nas.home", "ip:*.nas.home:80", "127.1:80"),
        *("any:nas.home", "any:*.nas.home:80", "any:ip:", "ip:any:nas.home:80"),
        *(
            "0.0.0.0:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::]:80",
            "[ff02::1]:80",
            "::1:80",
            "[::ffff:1.2.3.4]:80",
        ),
        *("2130706433:80", "straße.de", "ｅxample.com", "example.com\n", "exa\nmple.com", "[::1]", "ip::80", "ip:"),
    ],
)
def test_what_cannot_be_meant_is_no_pattern(text: str):
    if text == "example.com\n":
        assert parse_pattern(text) == parse_pattern("example.com")  # lists are read from files
        return
    with pytest.raises(ConfigError):
        parse_pattern(text)


def test_only_a_name_that_is_listed_for_it_may_lead_to_an_address_reserved_for_tests():
    target = parse_target("packages.test:443")
    reserved = ipaddress.ip_address("203.0.113.80")
    for text, allowed in (
        ("packages.test:443", False),
        ("ip:packages.test:443", False),
        ("any:packages.test:443", True),
    ):
        reach = reach_of([parse_pattern(text)], target)
        assert reach is not None
        assert is_reachable(reserved, reach) is allowed


@pytest.mark.parametrize(
    "inside",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1"),
        *("255.255.255.255", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "2001:0:7f00:1::1"),
    ],
)
def test_no_name_leads_to_this_machine_its_link_or_a_clouds_metadata_however_far_it_may_reach(inside: str):
    reach = reach_of([parse_pattern("any:packages.test:443")], parse_target("packages.test:443"))
    assert reach is not None
    assert not is_reachable(ipaddress.ip_address(inside), reach)


def test_a_registry_on_the_internet_stays_there_and_one_elsewhere_is_reached_where_it_is():
    assert pattern_of("https://8.8.8.8/simple") == "8.8.8.8:443"
    assert pattern_of("http://localhost:4873/") == "localhost:4873"
    found = {"pypi.test": ("8.8.8.8", "2606:4700::1111"), "nas.test": ("192.168.1.5",), "odd.test": ("203.0.113.80",)}
    for host, expected in (("pypi.test", ""), ("nas.test", "ip:"), ("odd.test", "any:"), ("gone.test", "")):
        assert pattern_of(f"https://{host}/", lambda name, _port: found.get(name, ())) == f"{expected}{host}:443"


def test_a_name_with_other_letters_is_written_in_its_ascii_form():
    with pytest.raises(ConfigError, match="xn--"):
        parse_pattern("Bücher.example")
    assert parse_pattern("xn--bcher-kva.example").matches(parse_target("xn--bcher-kva.EXAMPLE:443"))


@pytest.mark.parametrize("host", ["::ffff:8.8.8.8", "::ffff:808:808", "2002:808:808::1", "2001:0:808:808::1"])
def test_an_ipv4_address_inside_an_ipv6_address_is_no_target(host: str):
    with pytest.raises(ValueError, match="inside an IPv6"):
        parse_target(f"[{host}]:443")


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
names = st.lists(labels, min_size=2, max_size=4).map(lambda parts: ".".join([*parts, "test"]))
ports = st.integers(1, 65535)


@given(names, names, ports, ports, st.booleans())
def test_a_pattern_means_its_host_and_port_and_nothing_else(a: str, b: str, port: int, other: int, tunnel: bool):
    pattern = parse_pattern(f"{a}:{port}")
    assert pattern.matches(parse_target(f"{a.upper()}.:{port}"), tunnel=tunnel)
    assert pattern.matches(Target(b, other), tunnel=tunnel) == (a == b and port == other)
    assert reach_of([pattern], Target(f"x.{a}", port)) is None
    assert reach_of([pattern], Target(f"x{a}", port)) is None
    assert reach_of([pattern], Target(f"{a}.evil", port)) is None
    assert reach_of([pattern], Target(f"{a}x", port)) is None


@given(names, labels, ports)
def test_a_wildcard_means_all_names_below_and_not_the_domain_itself(name: str, label: str, port: int):
    pattern = parse_pattern(f"*.{name}:{port}")
    assert pattern.matches(parse_target(f"{label}.{name}:{port}"))
    assert pattern.matches(parse_target(f"a.{label}.{name}:{port}"))
    assert not pattern.matches(parse_target(f"{name}:{port}"))
    assert not pattern.matches(parse_target(f"{label}{name}:{port}"))
    assert not pattern.matches(parse_target(f"{label}.{name}.com:{port}"))


@given(names, ports)
def test_without_a_port_the_two_of_the_web_are_meant(name: str, port: int):
    pattern = parse_pattern(name)
    assert pattern.matches(Target(name, port)) == (port in (80, 443))
    assert pattern.matches(Target(name, port), tunnel=True) == (port == 443)


@given(st.text(max_size=40))
def test_whatever_parses_as_a_target_parses_to_itself_again(text: str):
    try:
        target = parse_target(text, 80)
    except ValueError:
        return
    assert target.host.isascii()
    assert target.host == target.host.lower()
    assert parse_target(str(target)) == target


@given(st.ip_addresses())
def test_no_address_counts_as_public_that_python_knows_to_be_private(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
):
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast


pieces = (
    "GET",
    "CONNECT",
    " ",
    "http://",
    "a.example",
    ":80",
    "/",
    "HTTP/1.1",
    "\r\n",
    "Content-Length: 1",
    "\n",
    "\x00",
)
heads = st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=12).map(lambda parts: "".join(parts).encode())


@given(heads | st.binary(max_size=200))
def test_a_head_is_understood_or_refused_and_what_is_passed_on_is_understood_the_same_way(head: bytes):
    try:
        written = parse_request(head).encode()
    except ProxyRefusal:
        return
    assert written.endswith(b"\r\nConnection: close\r\n\r\n")
    assert written.count(b"\r\n\r\n") == 1
    assert written.count(b"\r") == written.count(b"\n") == written.count(b"\r\n")
