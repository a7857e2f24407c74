# SPDX-License-Identifier: Apache-2.0
"""A firewall that drops packets without a word, in the network namespaces of hosts.py.

The kernel's routing rules do it, so neither iptables nor nft has to be there: what comes in over eth0 and matches a
rule is routed to a blackhole instead of to the host itself. `ip route add unreachable` is the firewall that rejects.
"""

# The rule that delivers packets to the host itself is asked first (preference 0): others can only stand behind it.
LOCAL_PREFERENCE = "1000"


def _begin(host):
    host.run("ip", "rule", "add", "pref", LOCAL_PREFERENCE, "lookup", "local")
    host.run("ip", "rule", "del", "pref", "0")


def _end(host):
    host.run("ip", "rule", "add", "pref", "0", "lookup", "local")
    host.run("ip", "rule", "flush")  # all but the one with preference 0
    for preference, table in (("32766", "main"), ("32767", "default")):
        host.run("ip", "rule", "add", "pref", preference, "lookup", table)


class DropPackets:
    """Within `with`, `host` drops all TCP that comes in over eth0, but for what comes to or from `open_ports`."""

    def __init__(self, host, open_ports=()):
        self._host = host
        self._open_ports = open_ports

    def __enter__(self):
        _begin(self._host)
        tcp = ["iif", "eth0", "ipproto", "tcp"]
        for port in self._open_ports:
            for end in ("dport", "sport"):
                self._host.run("ip", "rule", "add", "pref", "10", *tcp, end, str(port), "lookup", "local")
        self._host.run("ip", "rule", "add", "pref", "20", *tcp, "blackhole")
        return self

    def __exit__(self, *_):
        _end(self._host)
