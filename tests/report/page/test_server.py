"""The server of a live page: news when there is some, for this machine's own pages alone."""

from __future__ import annotations

import http.client
import json
import threading

import pytest
from support.records import record, write_run

from trident.cli.watch import watched
from trident.report.page import server as serving_module
from trident.report.page.content import page_content
from trident.report.page.document import write_page
from trident.report.page.server import Watch, serving


@pytest.fixture
def asked(tmp_path):
    """A function that asks a server of this folder: (method, path, headers, body) -> (status, text)."""
    with serving([tmp_path], port=None) as (server, address):
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        port = server.server_port

        def ask(method, path, headers=None, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text

        ask.port, ask.watch = port, server.RequestHandlerClass.watch
        ask.token = ask.watch.token
        assert address == f"http://127.0.0.1:{port}/"
        yield ask
        server.shutdown()


def test_runs_appear_and_grow(asked, tmp_path):
    assert json.loads(asked("GET", "/data")[1])["runs"] == []
    folder = write_run(tmp_path / "run", rounds=50, done=3, finished=False)
    (run,) = json.loads(asked("GET", "/data")[1])["runs"]
    assert run["status"]["round"] == 3
    assert run["status"]["state"] == "training"
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record(4, (0.004, 0.02), 3)) + "\n")
    (run,) = json.loads(asked("GET", "/data")[1])["runs"]
    assert run["status"]["round"] == 4
    assert run["charts"][0]["lines"][0]["x"] == [3200.0, 6400.0, 9600.0, 12800.0]


def test_only_what_has_changed_is_read_again(tmp_path, monkeypatch):
    folders = [write_run(tmp_path / name) for name in "ab"]
    watch, reads = Watch([tmp_path]), []
    whole = serving_module.read_one
    monkeypatch.setattr(serving_module, "read_one", lambda folder, *rest: reads.append(folder) or whole(folder, *rest))
    first = watch.content()
    assert sorted(reads) == folders
    assert [g["env"] for g in first["groups"]] == ["uav-mec"]
    watch.content()
    assert len(reads) == 2
    with (folders[1] / "records.jsonl").open("a") as file:
        file.write(json.dumps(record(21, (0.004, 0.02), 3)) + "\n")
    watch.content()
    assert reads[2:] == [folders[1]]


def test_a_page_asks_the_later_the_more_an_answer_costs(asked, tmp_path):
    watch = Watch([tmp_path])
    assert watch.content()["again"] == 1.5
    watch.took = 0.2
    assert watch.content()["again"] == pytest.approx(20.0)  # a hundred times: one per cent of a core
    asked("GET", "/data")
    assert asked.watch.took > 0.0


def test_the_page_asks_its_own_server_and_nobody_else(asked):
    status, page = asked("GET", "/")
    assert status == 200
    assert "connect-src 'self'" in page
    assert asked.token in page
    assert asked("GET", "/../etc/passwd")[0] == 404


def test_a_stop_needs_the_pages_word(asked, tmp_path):
    folder = write_run(tmp_path / "run", done=3, finished=False)
    asked("GET", "/data")
    body = json.dumps({"run": "run"})
    assert asked("POST", "/stop", {}, body)[0] == 403
    assert asked("POST", "/stop", {"X-Trident": "guess"}, body)[0] == 403
    assert not (folder / "stop").exists()
    assert asked("POST", "/stop", {"X-Trident": asked.token}, "{}")[0] == 400
    assert asked("POST", "/stop", {"X-Trident": asked.token}, json.dumps({"run": "../other"}))[0] == 404
    assert asked("POST", "/stop", {"X-Trident": asked.token}, body) == (200, "asked")
    assert (folder / "stop").exists()


def test_episodes_of_a_run_that_has_ended_come_from_the_page_it_left(asked, tmp_path):
    folder, other = write_run(tmp_path / "run"), write_run(tmp_path / "other")
    write_page(folder / "report.html", page_content([folder], replays={folder: {"episodes": []}}))
    write_page(other / "report.html", page_content([other]))
    runs = {run["name"]: run for run in json.loads(asked("GET", "/data")[1])["runs"]}
    assert runs["run"]["report"]
    assert "replay" not in runs["run"]  # it may be long: only who looks at it gets it
    assert json.loads(asked("GET", "/replay?run=run")[1]) == {"episodes": []}
    assert asked("GET", "/replay?run=other")[0] == 404
    assert asked("GET", "/replay?run=../run")[0] == 404
    (folder / "report.html").write_text("torn")
    assert asked("GET", "/replay?run=run")[0] == 404


def test_other_sites_names_for_this_machine_are_turned_away(asked):
    assert asked("GET", "/data", {"Host": f"evil.example:{asked.port}"})[0] == 403
    assert asked("GET", "/data", {"Host": f"localhost:{asked.port}"})[0] == 200


def test_a_run_that_has_long_been_silent_is_not_training(tmp_path, monkeypatch):
    write_run(tmp_path / "run", rounds=50, done=3, finished=False)
    later = serving_module.time.time() + 1000
    monkeypatch.setattr(serving_module.time, "time", lambda: later)
    assert Watch([tmp_path]).content()["runs"][0]["status"]["state"] == "unfinished"


def test_a_training_has_its_page_at_once_however_busy_the_machine_is(tmp_path):
    """The address stands before the server does; who asks early waits for it, and it ends with the training."""
    write_run(tmp_path / "run", done=3, finished=False)
    with watched(tmp_path / "run") as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/data")
        assert json.loads(connection.getresponse().read())["runs"][0]["name"] == "run"
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=10).connect()
