"""The server: answers, orders, metrics; and clients that are killed, silent, too eager or talk nonsense."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
from support import bundles

from trident.errors import TridentError
from trident.runtime import Guard, replay
from trident.runtime.audit import verify
from trident.runtime.command import main
from trident.runtime.server import Server, Service

OBS = [1.0, 0.5, 0.2, 0.0]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return bundles.make(tmp_path_factory.mktemp("server") / "toy")


@contextmanager
def serving(bundle, *words):
    command = [sys.executable, "-m", "trident.runtime", "serve", str(bundle.folder), "--port", "0", *map(str, words)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        server.stdout.readline()
        line = server.stdout.readline()
        assert "pid" in line, server.stderr.read() if server.stderr else ""
        yield int(line.split(":")[1].split(",")[0]), server
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
        assert server.returncode == 0


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.lines = self.socket.makefile("rb")

    def send(self, content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode() + b"\n"
        self.socket.sendall(data)

    def hear(self):
        line = self.lines.readline()
        return json.loads(line) if line else None

    def ask(self, content):
        self.send(content)
        return self.hear()


def web(port, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20).read().decode()


def test_agents_teams_orders_and_numbers(bundle, tmp_path):
    with serving(bundle, "--audit", tmp_path / "log", "--deadline", 30) as (port, _):
        one = Client(port)
        hello = one.ask({"hello": {}})["hello"]
        assert (hello["agents"], hello["observations"], hello["modes"]) == (3, 4, ["stay", "go"])
        answer = one.ask({"id": "a", "agent": 0, "obs": OBS, "seq": 1, "stamp": hello["now"]})
        assert (answer["id"], answer["mode"], answer["branch"]) == ("a", 1, "policy")
        assert answer["params"] == pytest.approx([np.tanh(1.0)])
        packed = base64.b64encode(np.array(OBS, "<f4").tobytes()).decode()
        assert one.ask({"agent": 0, "obs": packed})["params"] == answer["params"]
        whole = base64.b64encode(np.array([OBS] * 3, "<f4").tobytes()).decode()
        assert one.ask({"obs": whole})["params"] == [answer["params"]] * 3
        assert one.ask({"agent": 0, "obs": OBS, "mask": [1, 0]})["mode"] == 0
        assert one.ask({"agent": 0, "obs": OBS, "mask": "?"})["branch"] == "fail-safe"
        assert one.ask({"agent": 0, "obs": packed[:8]})["branch"] != "policy"
        assert one.ask({"agent": 0, "obs": "no base64 at all"})["branch"] != "policy"
        team = one.ask({"id": 2, "obs": [OBS] * 3, "margin": [1.0, -1.0]})
        assert team["branch"] == ["base policy"] * 3
        assert one.ask({"id": 3, "override": {"agents": [1], "by": "Ada"}})["orders"] == {"1": "fail-safe"}
        assert one.ask({"agent": 1, "obs": OBS})["branch"] == "override"
        assert one.ask({"id": 4, "release": {}})["orders"] == {}
        health = json.loads(web(port, "health"))
        assert (health["ok"], health["decisions"]) == (True, 9)
        metrics = web(port, "metrics")
        assert 'trident_agent_decisions_total{branch="override"} 1\n' in metrics
        assert "trident_requests_total 9\n" in metrics
        assert 'trident_request_seconds_bucket{le="+Inf"} 9\n' in metrics
    assert verify(tmp_path / "log").decisions == 9
    assert replay(tmp_path / "log", bundle) == (9, [])


def test_clients_that_misbehave_harm_nobody_else(bundle):
    with serving(bundle, "--idle", 2, "--deadline", 30) as (port, _):
        good, bad = Client(port), Client(port)
        for nonsense in (
            b"\n",
            b"[1]\n",
            b"{\n",
            b'{"id": 1}\n',
            b'{"obs": [1], "agent": 9}\n',
            b"\xff\xfe\n",
            b"[" * 9999 + b"\n",
        ):
            assert "error" in bad.ask(nonsense)
        killed = Client(port)
        killed.send(b'{"agent": 1, "obs": [')
        killed.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        killed.socket.close()
        gone = Client(port)
        gone.send({"agent": 2, "obs": OBS})
        gone.socket.close()
        assert good.ask({"agent": 0, "obs": OBS})["branch"] == "policy"
        for _ in range(3):
            bad.ask(b"no\n")
        assert bad.hear() is None, "after ten lines of nonsense the server lets go"
        silent = Client(port)
        assert silent.hear() == {"error": "nothing heard for 2 s"}
        assert Client(port).ask({"agent": 0, "obs": OBS})["mode"] == 1


def test_who_asks_too_much_is_told_so_and_nothing_is_lost(bundle):
    with serving(bundle, "--deadline", 30) as (port, _):
        client = Client(port)
        client.send(b"".join(json.dumps({"id": i, "agent": i % 3, "obs": OBS}).encode() + b"\n" for i in range(400)))
        answers = [client.hear() for _ in range(400)]
        assert sorted(a["id"] for a in answers) == list(range(400))
        assert all(a.get("error") == "busy" or a["branch"] == "policy" for a in answers)
        assert sum("mode" in a for a in answers) >= 16


def test_a_token_is_asked_for(bundle, tmp_path):
    (tmp_path / "token").write_text("sesame\n")
    with serving(bundle, "--token-file", tmp_path / "token", "--deadline", 30) as (port, _):
        assert "token" in Client(port).ask({"agent": 0, "obs": OBS})["error"]
        assert Client(port).ask({"hello": {"token": "open"}})["error"] == "wrong token"
        known = Client(port)
        assert "hello" in known.ask({"hello": {"token": "sesame"}})
        assert known.ask({"agent": 0, "obs": OBS})["mode"] == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.4", "robot.local"])
def test_nothing_is_served_to_others_without_a_token(bundle, host):
    with pytest.raises(TridentError, match="give a token"):
        Server(Guard(bundle), Service(host=host))
    Server(Guard(bundle), Service(host=host, token="x"))


def test_signals_take_over_a_server(bundle):
    with serving(bundle, "--deadline", 30) as (port, server):
        client = Client(port)
        os.kill(server.pid, signal.SIGUSR1)
        time.sleep(0.3)
        assert client.ask({"agent": 0, "obs": OBS})["branch"] == "override"
        os.kill(server.pid, signal.SIGUSR2)
        time.sleep(0.3)
        assert client.ask({"agent": 0, "obs": OBS})["branch"] == "policy"


def http(port, first, body=b"", **headers):
    """The answer to a request as it stands: (status, headers and body)."""
    lines = {"Host": f"127.0.0.1:{port}", "Content-Length": len(body)} | headers
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        head = f"{first} HTTP/1.1\r\n" + "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in lines.items())
        client.sendall(head.encode() + b"\r\n" + body)
        told = b"".join(iter(lambda: client.recv(65536), b""))
    return int(told.split()[1]), told.decode()


def test_the_page_takes_over_and_releases_and_nobody_else_does(bundle, tmp_path):
    with serving(bundle, "--deadline", 30, "--audit", tmp_path / "log") as (port, _):
        client = Client(port)
        assert client.ask({"agent": 1, "obs": OBS})["branch"] == "policy"
        status, page = http(port, "GET /")
        key = json.loads(page.split("const told = ")[1].split(";\n")[0])["key"]
        assert (status, "toy on toy" in page, "default-src 'none'" in page) == (200, True, True)
        assert http(port, "GET /", Host="evil.example:80")[0] == 403, "a name that was made to mean this machine"
        take, free = (json.dumps(x).encode() for x in (
            {"override": {"action": "fail-safe", "agents": [1], "by": "Ada"}}, {"release": {"by": "Ada"}},
        ))  # fmt: skip
        assert http(port, "POST /order", take)[0] == 403
        assert http(port, "POST /order", take, X_Trident="guess")[0] == 403
        assert http(port, "POST /order", b"[]", X_Trident=key)[0] == 400
        smuggled = b"\n".join([free, take, b'{"agent": 0, "obs": [1, 1, 1, 0]}\n'])
        assert http(port, "POST /", smuggled)[0] == 404
        state = json.loads(http(port, "GET /state")[1].split("\r\n\r\n")[1])
        assert [a["order"] for a in state["agents"]] == [None] * 3
        assert (state["decisions"], state["agents"][1]["branch"], state["agents"][0]["heard"]) == (1, "policy", None)
        assert http(port, "POST /order", take, X_Trident=key)[0] == 200
        assert client.ask({"agent": 1, "obs": OBS})["branch"] == "override"
        assert client.ask({"agent": 0, "obs": OBS})["branch"] == "policy"
        assert http(port, "POST /order", free, X_Trident=key)[0] == 200
        assert client.ask({"agent": 1, "obs": OBS})["branch"] == "policy"
    log = (tmp_path / "log" / "audit-000001.jsonl").read_text()
    assert log.count('"by":"page: Ada"') == 2


def test_with_a_token_the_page_carries_no_key(bundle, tmp_path):
    (tmp_path / "token").write_text("sesame")
    with serving(bundle, "--token-file", tmp_path / "token", "--deadline", 30) as (port, _):
        page = http(port, "GET /", Host="robot.local")[1]
        assert '"key": null' in page
        take = json.dumps({"override": {}}).encode()
        assert http(port, "POST /order", take, X_Trident="open")[0] == 403
        assert http(port, "POST /order", take, X_Trident="sesame")[0] == 200
        assert json.loads(web(port, "health"))["orders"] == {str(i): "fail-safe" for i in range(3)}


def test_a_short_load_test_loses_nothing(bundle, capsys):
    with serving(bundle, "--deadline", 30) as (port, _):
        assert main(["load", "--port", str(port), "--agents", "3", "--rate", "50", "--seconds", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["lost"]) == (150, 0)
    assert sum(found["branches"].values()) == 150
    assert found["branches"]["policy"] > 100
    with pytest.raises(TridentError, match="is a server there"):
        main(["load", "--port", "1"])


def test_the_client_in_c_is_answered(bundle, tmp_path):
    compiler = next(
        (c for c in ("cc", "gcc", "clang") if subprocess.run(["which", c], capture_output=True).returncode == 0), None
    )
    if compiler is None:
        pytest.skip("no C compiler")
    source = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "deployment", "client.c")
    subprocess.run([compiler, "-std=c99", "-Wall", "-Werror", "-o", tmp_path / "client", source], check=True)
    with serving(bundle, "--deadline", 30) as (port, _):
        done = subprocess.run(
            [tmp_path / "client", str(port), "0", *map(str, OBS)], capture_output=True, text=True, timeout=20
        )
    assert done.returncode == 0
    assert json.loads(done.stdout)["mode"] == 1


def test_who_has_said_all_still_hears_the_answer(bundle):
    with serving(bundle, "--deadline", 30) as (port, _):
        client = Client(port)
        client.send({"id": 5, "agent": 0, "obs": OBS})
        client.socket.shutdown(socket.SHUT_WR)
        assert client.hear()["id"] == 5
        assert client.hear() is None


def test_a_line_in_pieces_and_lines_together_are_the_same(bundle):
    with serving(bundle, "--deadline", 30) as (port, _):
        client = Client(port)
        for piece in (
            b'{"id": 1, "age',
            b'nt": 0, "obs": [1, 1, 1',
            b', 0]}\n{"id": 2, "agent": 1, "obs": [1,1,1,0]}\n{',
        ):
            client.send(piece)
            time.sleep(0.05)
        assert [client.hear()["id"] for _ in range(2)] == [1, 2]


def test_a_client_that_does_not_read_is_let_go_and_holds_up_nobody(bundle):
    with serving(bundle, "--idle", 2, "--deadline", 30) as (port, _):
        deaf = Client(port)
        deaf.socket.settimeout(0.5)
        asked = b'{"id": 1, "agent": 0, "obs": [1, 1, 1, 0]}\n' * 2000
        with contextlib.suppress(OSError):
            for _ in range(100):
                deaf.socket.sendall(asked)
        good = Client(port)
        assert good.ask({"id": 3, "agent": 1, "obs": OBS})["id"] == 3
        assert good.hear() == {"error": "nothing heard for 2 s"}
        deadline = time.monotonic() + 20
        while "trident_clients 1\n" not in web(port, "metrics") and time.monotonic() < deadline:  # 1: who asks this
            time.sleep(0.2)
        assert "trident_clients 1\n" in web(port, "metrics")
