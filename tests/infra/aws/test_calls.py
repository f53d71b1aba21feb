"""Requests to AWS: what goes wrong is one sentence, and says whether anything else can be asked."""

from typing import Any

import pytest
from botocore import exceptions
from botocore.stub import Stubber

from infra.clouds.aws.account.calls import NO_CREDENTIALS, Account, NoAccess, Refused
from infra.commands import CannotLook


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """With credentials that nobody accepts, and nothing of this machine's."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    return Account("us-west-2")


def stubbed(account: Account, service: str) -> Stubber:
    made = Stubber(account._client(service))
    made.activate()
    return made


def test_an_answer_is_what_the_service_says(account: Account) -> None:
    stubbed(account, "sts").add_response("get_caller_identity", {"Account": "111122223333"}, {})
    assert account("sts", "get_caller_identity") == {"Account": "111122223333"}


def test_all_pages_are_read(account: Account) -> None:
    stub = stubbed(account, "ec2")
    stub.add_response("describe_vpcs", {"Vpcs": [{"VpcId": "vpc-1"}], "NextToken": "more"}, {})
    stub.add_response("describe_vpcs", {"Vpcs": [{"VpcId": "vpc-2"}]}, {"NextToken": "more"})
    assert [one["VpcId"] for one in account.all("ec2", "describe_vpcs", "Vpcs")] == ["vpc-1", "vpc-2"]


def test_an_operation_without_pages_is_asked_once(account: Account) -> None:
    stubbed(account, "dlm").add_response("get_lifecycle_policies", {"Policies": [{"PolicyId": "policy-1"}]}, {})
    assert account.all("dlm", "get_lifecycle_policies", "Policies") == [{"PolicyId": "policy-1"}]


@pytest.mark.parametrize(
    ("code", "kind", "denied"),
    [
        ("ResourceNotFoundException", Refused, False),
        ("AccessDeniedException", Refused, True),
        ("UnauthorizedOperation", Refused, True),
        ("ExpiredToken", NoAccess, False),
        ("InvalidClientTokenId", NoAccess, False),
    ],
)
def test_a_refusal_says_of_what_it_is(account: Account, code: str, kind: type[Refused], denied: bool) -> None:
    stubbed(account, "sts").add_client_error("get_caller_identity", code, "so it is")
    with pytest.raises(Refused) as caught:
        account("sts", "get_caller_identity")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.denied) == (code, denied)
    assert isinstance(caught.value, CannotLook) is (kind is NoAccess)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exceptions.NoCredentialsError(), NO_CREDENTIALS),
        (exceptions.SSOTokenLoadError(error_msg="expired"), "aws sso login"),
        (exceptions.EndpointConnectionError(endpoint_url="https://sts"), "cannot be reached from here"),
    ],
    ids=["none", "SSO", "no network"],
)
def test_without_access_it_is_one_plain_sentence(
    account: Account, error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise error

    client = account._client("sts")
    monkeypatch.setattr(client, "_make_api_call", fail)
    with pytest.raises(NoAccess) as caught:
        account("sts", "get_caller_identity")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(NoAccess, match="AWS_PROFILE names a profile"):
        Account("us-west-2")
