"""Ray Serve on a real cluster of this machine, in a process of its own: Serve outlives a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from test_ray import StandIn, named, run_of
from test_ray import cluster as cluster

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.usefixtures("cluster")
def test_a_serve_application_is_asked_by_its_name(tmp_path: Path) -> None:
    serve = pytest.importorskip("ray.serve", reason="needs Ray Serve: pip install 'ray[serve]'")
    deployment = serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})(StandIn)
    serve.start(proxy_location="Disabled")
    serve.run(deployment.bind(), name="rating", route_prefix=None)
    try:
        run = run_of(named("ray/serve/rating"), tmp_path, on="ray")
        again = run_of(named("ray/serve/rating/StandIn"), tmp_path / "again", on="ray")
    finally:
        serve.shutdown()
    assert set(run.decisions["fault"]) == {""}
    assert_frame_equal(
        run.decisions.select("item", "view", "rank"), again.decisions.select("item", "view", "rank")
    )
