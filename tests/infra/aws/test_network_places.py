"""The checks of the settings and the network agree on the places of zones."""

from infra.clouds.aws import checks, network


def test_the_checks_know_the_places_of_the_own_network() -> None:
    assert (checks.LETTERS, checks.PRIVATE_BITS) == (network.LETTERS, network.PRIVATE_BITS)
