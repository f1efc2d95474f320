"""Workers that would round otherwise refuse, whatever the work; items nobody waits for end."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from djepa.errors import DjepaError
from djepa.rollout import cluster, engine
from djepa.rollout.alike import Surroundings, surroundings
from djepa.rollout.cluster import RayEngine, share
from djepa.rollout.engine import LocalEngine


def double(item: int) -> int:
    if item == 13:
        raise DjepaError("item 13 is bad")
    return 2 * item


DIFFERENT: dict[str, tuple[Callable[[Surroundings], Surroundings], str]] = {
    "a version": (
        lambda s: replace(s, versions=(("numpy", "1.0"), ("djepa", "9"), ("mujoco", "0"))),
        r"This worker has numpy \S+, djepa \S+, the driver numpy 1.0, djepa 9: ",
    ),
    "the processor": (lambda s: replace(s, loops="ABACUS"), "driver loops of numpy ABACUS"),
    "sums of torch": (lambda s: replace(s, sums="torch 1, ABACUS"), "the driver with torch 1, AB"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_is_refused_and_said(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from djepa.rollout.alike import arithmetic_here  # with torch, which no worker below needs

    change, complaint = DIFFERENT[what]
    assert surroundings().sums == arithmetic_here()  # torch is loaded here
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)  # what is not loaded may differ
    with pytest.raises(DjepaError, match=complaint), change(surroundings()).alike():
        raise AssertionError("the work has begun")
    with surroundings().alike():
        pass


def test_what_the_work_itself_loads_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ogbench", raising=False)
    other, loaded = replace(surroundings(), versions=(("ogbench", "0"),)), ModuleType("ogbench")
    loaded.__version__ = "1"  # type: ignore[attr-defined]
    with pytest.raises(DjepaError, match="ogbench 1, the driver ogbench 0"), other.alike():
        monkeypatch.setitem(sys.modules, "ogbench", loaded)


def test_on_a_gpu_the_processor_of_the_driver_has_no_say() -> None:
    assert surroundings("cuda").loops == ""


def test_local_workers_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(device: str) -> Surroundings:
        return replace(surroundings(device), loops="ABACUS")

    monkeypatch.setattr(engine, "surroundings", elsewhere)
    with pytest.raises(DjepaError, match="This worker has loops of numpy"):
        list(LocalEngine(2).map(double, [(0, 0), (1, 1)]))


class Ref:
    """Stands for a result that is not there yet."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value

    def hex(self) -> str:
        return str(id(self))


class FakeRay(ModuleType):
    """A cluster of no process: a task runs when it is asked for its result."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        def __init__(self, cause: Exception) -> None:
            self.cause = cause

    def __init__(self, **resources: float) -> None:
        super().__init__("ray")
        self.exceptions, self.resources = self, resources
        self.cancelled: list[Ref] = []
        self.most, self.asked = 0, dict[str, Any]()

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def put(self, value: Any) -> Ref:
        return Ref(lambda: value)

    def remote(self, **asked: Any) -> Any:
        self.asked = asked

        def made(function: Any) -> Any:
            found = ModuleType("task")
            found.remote = lambda *given: Ref(lambda: function(*given))  # type: ignore[attr-defined]
            return found

        return made

    def wait(self, refs: list[Ref], **given: Any) -> tuple[list[Ref], list[Ref]]:
        self.most = max(self.most, len(refs))
        return refs[:1], refs[1:]

    def get(self, ref: Ref) -> Any:
        try:
            return ref.value()
        except DjepaError as error:
            raise self.RayTaskError(error) from None

    def cancel(self, ref: Ref, force: bool) -> None:
        self.cancelled.append(ref)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    found = FakeRay(CPU=3.0, GPU=2.0)
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setitem(sys.modules, "ray.exceptions", found)
    return found


def test_an_error_ends_what_still_runs_in_a_cluster(ray: FakeRay) -> None:
    with pytest.raises(DjepaError, match="item 13 is bad"):
        list(RayEngine().map(double, [(n, n) for n in (13, 1, 2, 3, 4, 5, 6, 7, 8)]))
    assert len(ray.cancelled) == 5  # of 6 that were under way
    ray.cancelled.clear()
    results = RayEngine().map(double, [(n, n) for n in range(9)])
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]  # nobody listens any more
    assert len(ray.cancelled) == 5
    ray.cancelled.clear()
    assert sorted(RayEngine().map(double, [(n, n) for n in range(9)])) == [
        (n, 2 * n) for n in range(9)
    ]
    assert not ray.cancelled


def test_workers_of_a_cluster_refuse(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "surroundings", lambda device: replace(surroundings(), loops="A"))
    with pytest.raises(DjepaError, match="the driver loops of numpy A"):
        list(RayEngine().map(double, [(0, 0)], None))


@pytest.mark.parametrize("there", range(1, 10))
def test_as_many_workers_run_as_are_asked_for(there: int) -> None:
    """Ray counts in ten-thousandths, and an item lies on one GPU."""
    for workers in range(1, 60):
        part = round(share(workers, there) * 10_000)
        assert share(workers, there) == part / 10_000
        assert there * (10_000 // part) >= workers
        assert there * (10_000 // part) < workers + there  # and no GPU is cut finer than needed
    assert share(0, there) == share(there, there) == 1.0
    assert share(10**9, there) > 0


def test_six_workers_on_four_gpus_are_six(ray: FakeRay) -> None:
    assert share(6, 4) == 0.5
    assert list(RayEngine(workers=5).map(double, [(0, 1)], device="cuda")) == [(0, 2)]
    assert ray.asked["num_gpus"] == 0.3333


def test_a_local_cluster_is_filled_where_gpus_are_shared(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_LOCAL", [True])
    list(RayEngine(workers=8).map(double, [(n, n) for n in range(14, 40)], device="cuda"))
    assert ray.most == 16  # twice as many as run, so that none waits for the driver
