"""The file: whole, small, silent, and closed to what a stranger's record may bring."""

import base64
import gzip
import hashlib
import json
import re

import pytest
from support.records import write_run

from trident.report.page.content import page_content
from trident.report.page.document import SCRIPTS, STYLES, WEB, as_json, document, packed, read_page, write_page

NASTY = "<script>alert(1)</script><!-- </main> & \"'`${x}"


def test_every_script_is_allowed_by_its_fingerprint_and_nothing_else_is(tmp_path):
    page = document(page_content([write_run(tmp_path / "run")]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, count in (("script", len(SCRIPTS)), ("style", len(STYLES))):
        found = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.S)
        assert len(found) == count
        for text in found:
            assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy


def test_the_page_asks_for_nothing(tmp_path):
    page = document(page_content([write_run(tmp_path / "run")]))
    assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:|//)""", page)
    own = [WEB.joinpath(name).read_text() for name in SCRIPTS if "uplot" not in name]
    assert not any(re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|https?://", text) for text in own)


def test_names_cannot_leave_their_data(tmp_path):
    content = page_content([write_run(tmp_path / "run")])
    content["runs"][0] |= {"name": NASTY, "title": NASTY, "problems": [NASTY]}
    page = document(content)
    assert NASTY not in page
    assert page.count("<script") == len(SCRIPTS) + 1
    data = re.search(r'id="data">(.*?)</script>', page, re.S)[1]
    assert "<" not in data
    assert json.loads(data)["runs"][0]["name"] == NASTY


def test_long_data_are_packed_and_come_out_the_same():
    content = {"runs": [{"name": NASTY, "numbers": list(range(60000))}]}
    kind, text = packed(content)
    assert kind == "application/gzip"
    assert json.loads(gzip.decompress(base64.b64decode(text))) == content
    assert packed({"a": 1}) == ("application/json", '{"a":1}')


@pytest.mark.parametrize("count", [3, 60000])
def test_a_page_can_be_read_again(tmp_path, count):
    content = {"runs": [{"name": NASTY, "numbers": list(range(count))}]}
    page = write_page(tmp_path / "report.html", content)
    assert read_page(page) == content
    page.write_text(page.read_text().replace('id="data">', 'id="data">?', 1))
    with pytest.raises(ValueError, match=r"Expecting value|base64"):
        read_page(page)
    page.write_text("nothing")
    with pytest.raises(ValueError, match="holds no data"):
        read_page(page)


def test_json_knows_no_infinity():
    assert as_json({"a": float("nan"), "b": [float("inf"), 1.5]}) == '{"a":null,"b":[null,1.5]}'


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    from trident.errors import TridentError

    (tmp_path / "report.html").mkdir()
    with pytest.raises(TridentError, match="cannot write"):
        write_page(tmp_path / "report.html", page_content([write_run(tmp_path / "run")]))
