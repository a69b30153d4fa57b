"""Endpoint settings are declared in one place, and every part of the program supports all of them."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from doorstep import Doorstep
from doorstep.errors import ConfigError
from doorstep.model.endpoint import CircuitRules, Endpoint, Slo
from doorstep.model.rollup import TTD_SECONDS
from doorstep.operations.endpoint_rules import EndpointFields as ProgramFields
from doorstep.operations.endpoint_rules import EndpointForm
from doorstep.schemas import endpoints as shapes

SETTINGS = set(shapes.EndpointIn.__struct_fields__)


def test_every_way_to_describe_an_endpoint_knows_the_same_settings() -> None:
    assert set(EndpointForm.__struct_fields__) == SETTINGS
    assert {one.field for one in shapes.INPUTS} == SETTINGS
    assert set(shapes.EndpointPatch.__struct_fields__) - {"version"} == SETTINGS - {"signing", "secret"}
    assert set(get_type_hints(shapes.NewEndpointFields)) == SETTINGS
    assert set(get_type_hints(shapes.ChangedFields)) - {"version"} == SETTINGS - {"signing", "secret"}
    assert set(get_type_hints(ProgramFields)) == SETTINGS - {"name"}


def test_every_setting_is_kept_and_all_but_the_headers_and_the_secret_are_shown() -> None:
    assert {name for name in SETTINGS if not hasattr(Endpoint, name)} == {"headers", "signing", "secret"}
    assert SETTINGS - set(shapes.Endpoint.__struct_fields__) == {"headers", "secret"}


def test_what_is_left_out_means_the_same_in_a_request_and_in_a_program() -> None:
    asked, said = shapes.EndpointIn(name="a"), EndpointForm(name="a")
    same = SETTINGS - {"circuit", "slo"}
    assert {name: getattr(asked, name) for name in same} == {name: getattr(said, name) for name in same}
    for shape, value in ((shapes.CircuitRules(), CircuitRules()), (shapes.Slo(), Slo())):
        assert {name: getattr(shape, name) for name in shape.__struct_fields__} == {
            name: getattr(value, name) for name in value.__struct_fields__
        }


def test_a_target_is_no_longer_than_what_can_be_measured() -> None:
    assert shapes.P95_SECONDS[1] == TTD_SECONDS[-1]


async def test_a_program_describes_the_endpoint_of_its_handler() -> None:
    doorstep = Doorstep("memory://")
    doorstep.handler("order.paid", description="Ships orders; ask Ada.")(ship)
    async with doorstep:
        (endpoint,) = await doorstep.endpoints()
        assert endpoint.description == "Ships orders; ask Ada."


@pytest.mark.parametrize("text", ["a" * 1_001, "a\x00b"])
def test_a_description_is_of_bounded_length_and_can_be_stored(text: str) -> None:
    with pytest.raises(ConfigError, match="description: "):
        Doorstep("memory://").handler("order.paid", description=text)(ship)


def ship(event: object) -> None:
    """Do nothing; this is the handler under test."""
