import pytest

pytest.register_assert_rewrite(
    "tests.formats.checks_consuming", "tests.formats.checks_keeping", "tests.formats.checks_life"
)
