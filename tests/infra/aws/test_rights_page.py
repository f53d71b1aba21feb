"""The table of rights in docs/aws.md."""

from infra.clouds.aws.iam.rights import BEGIN, END, PATH, table, text


def test_the_page_has_the_table_of_today() -> None:
    assert PATH.read_text() == text(), "run `make manifests`"


def test_an_old_table_is_renewed_and_the_rest_of_the_page_stays() -> None:
    assert text(f"before\n{BEGIN}| old |\n{END}after\n") == f"before\n{BEGIN}{table()}{END}after\n"
