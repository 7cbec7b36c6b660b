import pytest

from wordorder.inspection.communication import BUCKET, LINK_SHARE, Group, data_parallel, fully_sharded
from wordorder.inspection.hardware import device_named

H100 = device_named("h100")


def group(ranks: int, per_node: int = 8) -> Group:
    return Group(ranks=ranks, device=H100, per_node=per_node)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_a_large_all_reduce_is_bound_by_the_slower_link(ranks):
    size = 1e12  # so that no latency counts
    link = 450e9 if ranks <= 8 else min(450e9, 8 * 50e9)
    moved = 2 * (ranks - 1) / ranks * size
    assert group(ranks).all_reduce(size) == pytest.approx(moved / (LINK_SHARE * link), rel=1e-3)
    assert group(ranks).gather(size) == pytest.approx(moved / 2 / (LINK_SHARE * link), rel=1e-3)


def test_a_small_message_costs_steps_and_a_tree_has_fewer():
    ring = 1023 - 127, 127
    assert group(1024).gather(1) == pytest.approx(ring[0] * 3.4e-6 + ring[1] * 9.6e-6, rel=1e-6)
    assert group(1024).all_reduce(1) == pytest.approx(2 * (7 * 1.2e-6 + 7 * 8.5e-6), rel=1e-6)
    assert group(2).all_reduce(1) == pytest.approx(2 * 1.2e-6, rel=1e-4)


def test_alone_nothing_is_said():
    assert group(1).all_reduce(1e9) == group(1).gather(1e9) == 0
    assert data_parallel(group(1), 1e9, backward=1, overlap=True).seconds == 0


def test_ddp_sends_each_gradient_twice_and_hides_all_but_the_last_bucket():
    size = 40 * BUCKET
    hidden = data_parallel(group(16), size, backward=10.0, overlap=True)
    assert hidden.sent_bytes == 2 * 15 / 16 * size
    assert hidden.network_bytes == hidden.sent_bytes / 8  # each port carries one of eight rings
    assert hidden.exposed_seconds == pytest.approx(group(16).all_reduce(BUCKET))
    shown = data_parallel(group(16), size, backward=10.0, overlap=False)
    assert shown.exposed_seconds == shown.seconds == hidden.seconds > hidden.exposed_seconds
    part = data_parallel(group(16), size, backward=shown.seconds / 2, overlap=True)
    assert part.exposed_seconds == pytest.approx(shown.seconds / 2)


def test_fsdp_gathers_twice_and_scatters_once():
    pieces, share = [1e9, 2e9, 2e9], 15 / 16
    given = {"forward": 0.0, "backward": 0.0}
    found = fully_sharded(group(16), group(1), pieces, **given, passes=1, overlap=False)
    # the first piece stays between the passes
    assert found.sent_bytes == pytest.approx(share * (5e9 + 4e9 + 5e9))
    assert found.exposed_seconds == found.seconds
    several = fully_sharded(group(16), group(1), pieces, **given, passes=3, overlap=False)
    assert several.sent_bytes == pytest.approx(share * (3 * 9e9 + 5e9))
    long = fully_sharded(group(16), group(1), pieces, forward=99.0, backward=99.0, passes=1, overlap=True)
    assert long.exposed_seconds == pytest.approx(2 * group(16).gather(1e9))


def test_hybrid_sends_only_parts_between_nodes():
    pieces = [8e9]
    replicas = Group(ranks=4, device=H100, per_node=1)
    found = fully_sharded(group(8), replicas, pieces, forward=0, backward=0, passes=1, overlap=False)
    whole = fully_sharded(group(32), group(1), pieces, forward=0, backward=0, passes=1, overlap=False)
    assert found.network_bytes == pytest.approx(2 * 3 / 4 * 8e9 / 8)
    assert whole.network_bytes == pytest.approx(2 * 31 / 32 * 8e9 / 8)
