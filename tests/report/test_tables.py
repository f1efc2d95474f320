import csv
import io

import pytest

from djepa.errors import DjepaError
from djepa.report.tables import Table, latex, to_csv, to_latex, to_markdown, write_table

TABLE = Table(
    name="success-decoy",
    title="Success & loss_1, %",
    columns=("method", "%", "interval"),
    rows=(
        ("native lewm", "77.7", "73.9-81.1"),
        ("native lewm", "+4.3", "-0.4 to +8.2"),
        ("a | b, 50 % ± 1", "7.3e-06", ""),
    ),
    note="All 512 *starts*; p < 0.05.",
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("95 % ± 2 of x_1 & y", r"95 \% $\pm$ 2 of x\_1 \& y"),
        ("73.9-81.1", "73.9--81.1"),
        ("-0.4 to +8.2", "$-$0.4 to +8.2"),
        ("86.1 (82.9-88.9)", "86.1 (82.9--88.9)"),
        ("-8.4 (-11.9 to -4.9)", "$-$8.4 ($-$11.9 to $-$4.9)"),
        ("7.3e-06", r"$7.3\times 10^{-6}$"),
        ("1e+12", r"$1\times 10^{12}$"),
        ("D-JEPA", "D-JEPA"),
        (r"a\b{c}$d#e~f^g", r"a\textbackslash{}b\{c\}\$d\#e\textasciitilde{}f\textasciicircum{}g"),
        ("<0.001", "$<$0.001"),
        ("consensus + fusion, two", "consensus + fusion, two"),
        ("", ""),
    ],
)
def test_escaping_for_latex(text, wanted):
    assert latex(text) == wanted


def test_csv_holds_every_cell_as_it_is():
    lines = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert lines == [list(TABLE.columns), *map(list, TABLE.rows)]


def test_markdown():
    assert to_markdown(TABLE) == (
        "**Success & loss_1, %**\n"
        "\n"
        "| method | % | interval |\n"
        "| --- | --: | --: |\n"
        "| native lewm | 77.7 | 73.9-81.1 |\n"
        "|  | +4.3 | -0.4 to +8.2 |\n"
        "| a \\| b, 50 % ± 1 | 7.3e-06 |  |\n"
        "\n"
        "All 512 \\*starts\\*; p < 0.05.\n"
    )


def test_latex_prints_a_repeated_first_cell_once():
    assert to_latex(TABLE).splitlines() == [
        r"\begin{table}[t]",
        r"\centering\small",
        r"\caption{Success \& loss\_1, \%}",
        r"\label{tab:success-decoy}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & \% & interval \\",
        r"\midrule",
        r"native lewm & 77.7 & 73.9--81.1 \\",
        r" & +4.3 & $-$0.4 to +8.2 \\",
        r"\midrule",
        r"a | b, 50 \% $\pm$ 1 & $7.3\times 10^{-6}$ &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip{\footnotesize All 512 *starts*; p $<$ 0.05.\par}",
        r"\end{table}",
    ]


def test_without_repeats_there_is_one_rule():
    plain = Table("plain", "t", ("a", "b"), (("x", "word"), ("y", "")))
    text = to_latex(plain)
    assert text.count(r"\midrule") == 1
    assert "{ll}" in text
    assert "footnotesize" not in text
    assert to_markdown(Table("none", "t", ("a", "b"), ())).endswith("| a | b |\n| --- | --- |\n")


def test_three_files_of_the_same_bytes(tmp_path):
    folder = tmp_path / "new" / "tables"
    paths = write_table(folder, TABLE)
    assert [p.name for p in paths] == [f"success-decoy{s}" for s in (".csv", ".md", ".tex")]
    assert sorted(folder.iterdir()) == sorted(paths)
    before = [p.read_bytes() for p in paths]
    assert before == [text(TABLE).encode() for text in (to_csv, to_markdown, to_latex)]
    assert [p.read_bytes() for p in write_table(folder, TABLE)] == before


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DjepaError, match=r"success-decoy\.csv"):
        write_table(tmp_path / "file", TABLE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("A b", "t", ("x",), ()), "lower case"),
        (("../up", "t", ("x",), ()), "lower case"),
        (("a", "t", (), ()), "columns"),
        (("a", "t", ("x", "x"), ()), "different names"),
        (("a", "t", ("x", "y"), (("1",),)), "2 columns, but a row of 1"),
        (("a", "t", ("x",), (("1\n2",),)), "line break"),
    ],
)
def test_tables_that_are_none(arguments, message):
    with pytest.raises(DjepaError, match=message):
        Table(*arguments)
