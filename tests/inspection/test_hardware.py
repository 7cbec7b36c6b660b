import pytest

from wordorder.errors import BadInput
from wordorder.inspection import DEVICES, device_named


def test_the_catalogue_has_dense_peaks_and_sources():
    assert list(DEVICES) == ["h100", "h200", "a100-80", "b200", "l40s", "rtx-4090", "cpu-measured"]
    for name, device in DEVICES.items():
        assert device.name == name
        assert device.source
        assert device.bf16_flops >= device.float32_flops > 0
        assert device.bandwidth[-1][0] == float("inf")
        assert device.network <= device.node_link
    # a data sheet's 1,979 TFLOPS are with sparsity
    assert DEVICES["h100"].bf16_flops == 1979e12 / 2
    assert DEVICES["h100"].memory_bytes == 80e9


def test_an_unknown_device_names_the_known_ones():
    with pytest.raises(BadInput, match=r"unknown 'h1000'; known: h100, .*here"):
        device_named("h1000")


def test_small_operations_move_at_the_rate_of_the_cache_that_holds_them():
    cpu = DEVICES["cpu-measured"]
    assert cpu.rate(1000) == cpu.bandwidth[0][1]
    assert cpu.rate(1e9) == cpu.bandwidth[-1][1] < cpu.rate(1000)
