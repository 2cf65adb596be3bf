"""What a user may write as an array, and what each task gets of it."""

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.model.errors import InvalidValue
from iris.model.job.array_tables import MAX_TABLE, parse_table, table_of
from iris.model.job.arrays import (
    MAX_INDEX,
    MAX_TASKS,
    format_indices,
    is_indices,
    misspelt,
    param_variable,
    parse_indices,
    split_limit,
    substituted,
    task_values,
)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("7", (7,)),
        ("0-20:10", (0, 10, 20)),
        ("0-19:10", (0, 10)),
        ("1,3,7", (1, 3, 7)),
        ("7, 1-2", (1, 2, 7)),
        ("5-5", (5,)),
    ],
)
def test_indices_are_ranges_with_steps_and_lists(text: str, indices: tuple[int, ...]) -> None:
    """These are the forms that Slurm has."""
    assert parse_indices(text) == indices


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10-1", "write 1-10"),
        ("0-9:0", "step 0"),
        ("", "lacks an index"),
        ("1,,3", "lacks an index"),
        ("1,x", "'x'"),
        ("-1", "'-1'"),
        ("1-2-3", "'1-2-3'"),
        ("1:2", "'1:2'"),
        ("1-3,2", "index 2 twice"),
        ("٣", "'٣'"),
        (f"0-{MAX_INDEX + 1}", "use indices up to 999,999"),
        ("9" * 5000, "use indices up to 999,999"),
        (f"0-{MAX_TASKS}", f"at most {MAX_TASKS:,}"),
        ("0-999999", "1,000,000 tasks"),
    ],
)
def test_wrong_indices_are_refused_with_the_part_that_is_wrong(text: str, problem: str) -> None:
    """A user can see at once which part to change, and a huge range costs no memory."""
    with pytest.raises(InvalidValue) as error:
        parse_indices(text)

    assert problem in str(error.value)
    assert str(error.value).startswith("array: ")


@given(st.sets(st.integers(0, MAX_INDEX), min_size=1, max_size=200))
def test_formatted_indices_are_the_same_indices(indices: set[int]) -> None:
    """A job that runs some tasks again, and a part of a large array, carry their indices as such a
    text.
    """
    assert parse_indices(format_indices(indices)) == tuple(sorted(indices))


def test_ten_thousand_indices_with_a_step_are_a_short_text() -> None:
    """The text is in the specification of the job, whose size is limited."""
    assert format_indices(range(0, MAX_TASKS * 10, 10)) == f"0-{(MAX_TASKS - 1) * 10}:10"
    assert format_indices([0, 1, 2, 5, 7, 9, 20]) == "0-2,5-9:2,20"
    assert format_indices([4, 5]) == "4-5"


@given(st.text("0123456789,-:% abc", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text of a user ends in a traceback."""
    try:
        rest, limit = split_limit(text)
        indices = parse_indices(rest)
    except InvalidValue:
        return
    assert indices == tuple(sorted(set(indices)))
    assert limit is None or limit >= 1
    assert is_indices(rest)


@pytest.mark.parametrize("text", ["0-9%0", "0-9%", "0-9%-1", "0-9%x", "0-9%1.5", "0-9%٣"])
def test_a_limit_that_is_no_number_of_tasks_is_refused(text: str) -> None:
    """`%0` would be an array that never runs."""
    with pytest.raises(InvalidValue, match="limit on tasks at once"):
        split_limit(text)


def test_a_limit_follows_indices_or_the_name_of_a_file() -> None:
    """A percent sign in a directory's name is no limit."""
    assert split_limit("0-99%10") == ("0-99", 10)
    assert split_limit("params.csv%3") == ("params.csv", 3)
    assert split_limit("50%/params.csv") == ("50%/params.csv", None)


CSV = "lr,model name\n0.10,small\n1e-3,big\n"


@pytest.mark.parametrize(
    "content",
    [
        CSV.encode(),
        CSV.encode("utf-8-sig"),
        CSV.replace("\n", "\r\n").encode(),
        CSV.removesuffix("\n").encode(),
        ("\n" + CSV + "\n\n").encode(),
        b'lr , model name\n"0.10","small"\n1e-3,big\n',
    ],
)
def test_tables_of_spreadsheets_and_editors_are_read_alike(content: bytes) -> None:
    """Spreadsheets write a byte order mark and other line ends, and numbers keep the text that the
    user sees.
    """
    table = parse_table("params.csv", content)

    assert table.columns == ("lr", "model name")
    assert table.rows == (("0.10", "small"), ("1e-3", "big"))


def test_lines_of_json_become_texts_as_they_are_written() -> None:
    """A program gets 0.10 as it is in the file, and not as a float of another program."""
    lines = [
        '{"lr": 0.10, "n": 1, "on": true, "none": null, "s": "ü", "l": [1, {"a": 2.50}]}',
        '{"n":2,"lr":1e9,"on":0,"none":0,"s":"","l":0}',
    ]
    table = parse_table("params.jsonl", "\n".join(lines).encode())

    assert table.rows[0] == ("0.10", "1", "true", "", "ü", '[1,{"a":2.50}]')
    assert table.rows[1] == ("1e9", "2", "0", "0", "", "0")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("params.csv", "", "is empty"),
        ("params.csv", "\n\n", "is empty"),
        ("params.csv", "lr,seed\n", "has no rows"),
        ("params.csv", "lr,lr\n1,2\n", "column 'lr' twice"),
        ("params.csv", "l r,l-r\n1,2\n", "both would be IRIS_PARAM_L_R"),
        ("params.csv", "lr,\n1,2\n", "name of column 2"),
        ("params.csv", "{lr}\n1\n", "name of column 1"),
        ("params.csv", "index\n1\n", "number of the task"),
        ("params.csv", "a,b\n1,2\n3\n", "1 values for 2 columns in line 3"),
        ("params.csv", "a,b\n1,2,3\n", "3 values for 2 columns in line 2"),
        ("params.csv", 'a\n"x\n', "is not CSV in line 2"),
        ("params.csv", "a\n\0\n", "line 2"),
        ("params.csv", "a\n" + "x" * 40_000, "limit is 32"),
        ("params.csv", "a\n" + "1\n" * (MAX_TASKS + 1), f"has {MAX_TASKS + 1:,} tasks"),
        ("params.csv", "a\n" + "1\n" * (MAX_TABLE // 2), "use at most 16"),
        ("params.csv", ",".join(f"c{number}" for number in range(201)), "201 columns"),
        ("params.jsonl", "", "is empty"),
        ("params.jsonl", "{}\n", "is empty"),
        ("params.jsonl", "[1]\n", "line 1 no mapping"),
        ("params.jsonl", '{"a":1}\n{"b":1}\n', "line 2 lacks 'a'"),
        ("params.jsonl", '{"a":1}\n\n{"a":1,"b":1}\n', "line 3 has 'b'"),
        ("params.jsonl", '{"a":1}\n{"a":1', "not JSON in line 2"),
        ("params.jsonl", '{"a":1,"a":2}\n', "'a' is repeated"),
        ("params.jsonl", "[" * 100_000, "not JSON in line 1"),
        ("params.txt", "a\n1\n", "neither indices nor a table"),
        ("0-99x", "", "neither indices nor a table"),
    ],
)
def test_a_wrong_table_is_refused_with_the_line(name: str, content: str, problem: str) -> None:
    """A sweep that starts with a shifted column wastes a night."""
    with pytest.raises(InvalidValue) as error:
        parse_table(name, content.encode())

    assert problem in str(error.value)


def test_a_table_that_is_not_utf_8_is_refused_with_the_line() -> None:
    """Spreadsheets on Windows may save with another encoding."""
    with pytest.raises(InvalidValue, match="not UTF-8 in line 2"):
        parse_table("params.csv", "name\nMüller\n".encode("latin-1"))


@given(st.binary(max_size=60), st.sampled_from(["t.csv", "t.tsv", "t.jsonl"]))
def test_any_file_is_a_table_with_equal_rows_or_is_refused(content: bytes, name: str) -> None:
    """What is not a table must not start tasks, and no file ends in a traceback."""
    try:
        table = parse_table(name, content)
    except InvalidValue:
        return
    assert table.rows
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert [json.loads(line) for line in table.lines()] == [
        dict(zip(table.columns, row, strict=True)) for row in table.rows
    ]


def test_the_rows_of_a_python_program_become_texts_as_in_json() -> None:
    """The same sweep from a file and from Python gives the tasks the same variables."""
    table = table_of(
        [
            {"lr": 0.1, "on": True, "none": None, "s": "x"},
            {"s": "y", "none": 1, "on": False, "lr": 1e-3},
        ]
    )

    assert table.columns == ("lr", "on", "none", "s")
    assert table.rows == (("0.1", "true", "", "x"), ("0.001", "false", "1", "y"))


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("--lr={lr}", "--lr=0.1"),
        ("{lr}{index}", "0.17"),
        ("out/{model name}/{index}.json", "out/big/7.json"),
        ('{"lr": {lr}, "n": {"index": {index}}}', '{"lr": 0.1, "n": {"index": 7}}'),
        ("{{lr}}", "{lr}"),
        ("{print $1}", "{print $1}"),
        ("{unknown} {{unknown}}", "{unknown} {{unknown}}"),
        ("${lr} ${lr:-x} {}", "${lr} ${lr:-x} {}"),
        ("{ lr }", "{ lr }"),
    ],
)
def test_only_the_names_of_values_in_braces_are_replaced(word: str, becomes: str) -> None:
    """JSON, awk and variables of a shell in a command stay as they are."""
    assert substituted(word, task_values(7, {"lr": "0.1", "model name": "big"})) == becomes


@given(
    st.text("{}$alr \"'", max_size=30),
    st.dictionaries(st.sampled_from(["a", "lr"]), st.text("{}alr", max_size=5)),
)
def test_a_value_is_never_replaced_again(word: str, values: dict[str, str]) -> None:
    """A value with braces must not be read as a further place."""
    marks = {name: f"<{number}>" for number, name in enumerate(values)}
    expected = substituted(word, marks)
    for name, mark in marks.items():
        expected = expected.replace(mark, values[name])

    assert substituted(word, values) == expected


def test_a_name_that_resembles_a_column_is_pointed_out() -> None:
    """A typing error would pass the braces to every task of the sweep; awk and JSON have other
    words in braces.
    """
    command = shlex.split(
        """train --lr {LR} --model {modle} --seed {seed} '{print}' '{"a": 1}' {{modl}} ${mode}"""
    )

    assert [text.split("; ")[1] for text in misspelt(command, ("lr", "model", "seed"))] == [
        "did you mean {lr}?",
        "did you mean {model}?",
    ]


def test_columns_become_variables_that_a_shell_can_name() -> None:
    """Headings of spreadsheets have blanks and dashes."""
    assert param_variable("learning rate-2") == "IRIS_PARAM_LEARNING_RATE_2"
