import pytest

from wordorder.data.names import generated_task


@pytest.mark.parametrize(
    ("source", "task"),
    [
        ("task:parity", "parity"),
        ("task:", ""),
        ("task", None),
        ("task.txt", None),
        ("tasks:parity", None),
        ("hub:task:parity", None),
    ],
)
def test_a_generated_task_is_named_after_the_word_task_and_a_colon(source, task):
    assert generated_task(source) == task
