"""One contract: a search's measurer may be this machine's, or one whose candidates go to stations,
as workers have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.farm.station import Station
from explorer.measuring import Measuring
from tests.farm.contract import MeasuringContract, drained
from tests.farm.fakes import BENCH, LocalEngine, doubler, farm_measurer
from tests.runtime.fake_backend import schedule


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One folder of machine code, so that one process server does for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("code")))
        yield


@pytest.fixture(scope="module")
def here() -> Iterator[Measuring]:
    """This machine."""
    made = doubler(BENCH)
    yield made
    made.close()


@pytest.fixture(scope="module")
def stations() -> Iterator[list[Station]]:
    """Two workers, both of which are in this process."""
    made = [Station("one"), Station("two")]
    yield made
    for station in made:
        station.close()


@pytest.fixture(scope="module")
def farm(stations: list[Station]) -> Iterator[Measuring]:
    made = farm_measurer(LocalEngine(stations))
    yield made
    made.close()


class TestThisMachine(MeasuringContract):
    @pytest.fixture
    def measurer(self, here: Measuring) -> Measuring:
        return here


class TestFarm(MeasuringContract):
    @pytest.fixture
    def measurer(self, farm: Measuring) -> Measuring:
        return farm

    def test_outcomes_say_which_worker_measured(self, measurer: Measuring) -> None:
        measurer.begin([schedule("good", 70 + n) for n in range(6)])
        found = [dict(outcome.notes)["worker"] for _, outcome in drained(measurer)]
        assert sorted(found) == ["one"] * 3 + ["two"] * 3
        assert len(measurer.examined) == 2

    def test_compiled_code_goes_to_the_worker_of_the_finals(
        self,
        stations: list[Station],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """On a machine with another cache: it finds there what the first one compiled."""
        engine = LocalEngine(stations)
        measurer = farm_measurer(engine)
        measurer.begin([schedule("good", 80)])
        (ended,) = drained(measurer)
        monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "elsewhere"))
        (final,) = measurer.compete([ended[0]], 1)
        assert final.ok
        (code,) = engine.sent[-1].arguments[-1]
        assert (tmp_path / "elsewhere" / code.name[:2] / code.name).read_bytes() == code.content
