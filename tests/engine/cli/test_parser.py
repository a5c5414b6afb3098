"""Wrong command lines: one line that says what to write, then where help is."""

import pytest

from yaie.cli.main import build_parser, main


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("serve", "yaie serve: the following arguments are required: MODEL"),
        ("serve m --port abc", "argument --port: 'abc' is not a port (0 to 65535)"),
        ("serve m --max-num-seqs 0", "'0' is not a whole number of at least 1"),
        ("serve m --max-num-seqs x", "'x' is not a whole number of at least 1"),
        ("serve m --seed 1.5", "'1.5' is not a whole number"),
        ("serve m --request-timeout-s nan", "'nan' is not a number"),
        ("serve m --swap-space-gib -1", "'-1' is below zero"),
        ("serve m --gpu-memory-utilization 1.5", "'1.5' is not above 0 and at most 1"),
        ("serve m --max-modl-len 8", "unknown argument --max-modl-len; did you mean --max-model-l"),
        ("serve m --max-model 8", "unknown argument --max-model; did you mean --max-model-len?"),
        ("serve m n", "yaie serve: unknown argument n"),
        ("chat --temperature hot", "argument --temperature: 'hot' is not a number"),
        ("up --timeout -5", "argument --timeout: '-5' is below zero"),
        ("scale demo --replicas -1", "'-1' is not a whole number of at least 0"),
        ("logs demo --tail all", "'all' is not a whole number of at least 0"),
        ("--nope", "yaie: unknown argument --nope"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    first, hint = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert told in first
    assert hint == f"See {first.partition(':')[0]} --help"


def test_underscores_in_a_flag_are_dashes_but_not_behind_two_dashes() -> None:
    line = ["up", "--state_dir", "here", "--", "program", "--state_dir", "--port_x"]
    args = build_parser("up").parse_args(line)
    assert str(args.state_dir) == "here"
    assert args.command == ["program", "--state_dir", "--port_x"]
