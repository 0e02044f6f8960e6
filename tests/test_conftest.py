"""The golden fixture itself: it rewrites, it agrees, and it can fail."""

from __future__ import annotations

import pytest
from conftest import Golden
from hypothesis import settings


def test_golden_agrees_with_what_it_wrote(tmp_path):
    Golden(tmp_path, update=True)("deep/er.txt", "ä\nb\n")
    Golden(tmp_path)("deep/er.txt", "ä\nb\n")
    assert (tmp_path / "deep" / "er.txt").read_bytes() == "ä\nb\n".encode()


@pytest.mark.parametrize("other", ["ä\nb", "ä\r\nb\n", "a\nb\n", ""])
def test_golden_fails_on_any_other_byte(tmp_path, other):
    Golden(tmp_path, update=True)("one.txt", "ä\nb\n")
    with pytest.raises(pytest.fail.Exception, match=r"differs from golden one\.txt"):
        Golden(tmp_path)("one.txt", other)


def test_golden_fails_where_nothing_is_stored(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"no golden new\.txt"):
        Golden(tmp_path)("new.txt", "text")


def test_the_difference_is_shown_tag_by_tag(tmp_path):
    Golden(tmp_path, update=True)("x.svg", "<svg><a/><b/></svg>")
    with pytest.raises(pytest.fail.Exception, match=r"-<b/>\n\+<c/>"):
        Golden(tmp_path)("x.svg", "<svg><a/><c/></svg>")


def test_property_tests_repeat_exactly():
    assert settings().derandomize
    assert settings().deadline is None
