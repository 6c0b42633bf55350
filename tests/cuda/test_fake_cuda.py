"""The fake refuses what the documentation of CUDA, torch and numba forbids, call by call."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import FakeCudaError, FakeGpu, Misuse
from fake_runs import order_of

from onearena.core.device.cuda_kernels import SIGNATURES

BUSY = 1 << 30
"""A fake in which nothing runs by itself."""


class Bench:
    """A fake GPU, its calls at hand."""

    def __init__(self) -> None:
        self.gpu = FakeGpu(lazy=BUSY)
        api = self.gpu.api()
        self.torch, self.cuda, self.numba = api.torch, api.torch.cuda, api.numba_cuda
        self.kernels = api.kernels

    def device(self, words: int = 64) -> Any:
        return self.torch.empty(words, dtype=torch.int64, device="cuda")

    def pinned(self, words: int = 64) -> Any:
        return self.torch.empty(words, dtype=torch.int64, pin_memory=True)

    def copy(self, stream: Any, target: Any, source: Any) -> None:
        with self.cuda.stream(stream):
            target.copy_(source, non_blocking=True)

    def signal(self, stream: Any, tensor: Any, value: int = 7) -> None:
        words = self.numba.as_cuda_array(tensor)
        external = self.numba.external_stream(stream.cuda_stream)
        self.kernels["signal"][(1, 1), 32, external](words, 0, value)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_work_runs_later_and_in_the_order_of_its_stream(bench: Bench) -> None:
    stream, target, source = bench.cuda.Stream(), bench.device(), bench.pinned()
    source.numpy()[:] = 5
    bench.copy(stream, target, source)
    bench.signal(stream, target, 9)
    event = bench.cuda.Event()
    event.record(stream)
    assert not (target.data.view(np.int64) == 5).any(), "nothing runs when it is enqueued"
    while not event.query():
        pass
    assert target.data.view(np.int64)[:3].tolist() == [9, 5, 5]


def test_waiting_on_an_unrecorded_event_is_refused(bench: Bench) -> None:
    with pytest.raises(Misuse, match="cudaStreamWaitEvent"):
        bench.cuda.Stream().wait_event(bench.cuda.Event())


def test_a_recorded_event_orders_another_stream(bench: Bench) -> None:
    first, second, target = bench.cuda.Stream(), bench.cuda.Stream(), bench.device()
    bench.signal(first, target, 1)
    event = bench.cuda.Event()
    event.record(first)
    second.wait_event(event)
    bench.signal(second, target, 2)
    bench.cuda.synchronize()
    assert target.data.view(np.int64)[0] == 2


def test_without_a_wait_either_order_can_come() -> None:
    found = set()
    for seed in range(12):
        bench = Bench()
        bench.gpu._random.seed(seed)
        target = bench.device()
        for value in (1, 2):
            bench.signal(bench.cuda.Stream(), target, value)
        bench.cuda.synchronize()
        found.add(int(target.data.view(np.int64)[0]))
    assert found == {1, 2}


def test_asking_for_an_unrecorded_event_is_refused(bench: Bench) -> None:
    with pytest.raises(Misuse, match="cudaEventQuery"):
        bench.cuda.Event().query()


def test_recording_an_event_in_use_again_is_refused(bench: Bench) -> None:
    stream, event = bench.cuda.Stream(), bench.cuda.Event()
    event.record(stream)
    with pytest.raises(Misuse, match="cudaEventRecord overwrites"):
        event.record(stream)
    bench.cuda.synchronize()
    event.record(stream)


def _capture(bench: Bench, stream: Any) -> Any:
    graph = bench.cuda.CUDAGraph()
    with bench.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
    return graph


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        ("query", "cudaErrorStreamCaptureUnsupported"),
        ("synchronize", "cudaErrorStreamCaptureUnsupported"),
        ("empty", "cudaErrorStreamCaptureUnsupported"),
        ("cpu", "cudaErrorStreamCaptureUnsupported"),
        ("wait", "cudaErrorStreamCaptureIsolation"),
        ("record", "stream capture"),
        ("copy", "kernels only"),
        ("first launch", "loads its module"),
        ("second capture", "one capture at a time"),
        ("replay", "capture has not ended"),
    ],
)
def test_what_a_capture_does_not_allow_is_refused(bench: Bench, call: str, rule: str) -> None:
    stream, other, target, pinned = (
        bench.cuda.Stream(),
        bench.cuda.Stream(),
        bench.device(),
        bench.pinned(),
    )
    event = bench.cuda.Event()
    event.record(other)
    graph = _capture(bench, stream)
    calls = {
        "query": event.query,
        "synchronize": bench.cuda.synchronize,
        "empty": bench.device,
        "cpu": target.cpu,
        "wait": lambda: stream.wait_event(event),
        "record": lambda: bench.cuda.Event().record(stream),
        "copy": lambda: bench.copy(stream, target, pinned),
        "first launch": lambda: bench.signal(stream, target),
        "second capture": lambda: _capture(bench, other),
        "replay": graph.replay,
    }
    with pytest.raises(Misuse, match=rule):
        calls[call]()


def test_captures_begin_and_end_on_one_stream_and_not_on_the_default_one(bench: Bench) -> None:
    graph = bench.cuda.CUDAGraph()
    with pytest.raises(Misuse, match="default stream"):
        graph.capture_begin(capture_error_mode="thread_local")
    with bench.cuda.stream(bench.cuda.Stream()), pytest.raises(Misuse, match="another thread"):
        graph.capture_begin()
    with pytest.raises(Misuse, match="cudaStreamEndCapture"):
        graph.capture_end()
    graph = _capture(bench, bench.cuda.Stream())
    with pytest.raises(Misuse, match="where the capture began"):
        graph.capture_end()


def test_a_replay_runs_the_captured_kernels_with_what_memory_holds_then(bench: Bench) -> None:
    stream, target = bench.cuda.Stream(), bench.device()
    bench.signal(stream, target, 1)
    bench.cuda.synchronize()
    graph = _capture(bench, stream)
    with bench.cuda.stream(stream):
        bench.signal(stream, target, 2)
        graph.capture_end()
    bench.cuda.synchronize()
    assert target.data.view(np.int64)[0] == 1, "capturing runs nothing"
    for _ in range(2):
        with bench.cuda.stream(stream):
            graph.replay()
        bench.cuda.synchronize()
        assert target.data.view(np.int64)[0] == 2


@pytest.mark.parametrize("kind", ["pinned", "device"])
def test_freeing_memory_under_a_copy_is_refused(bench: Bench, kind: str) -> None:
    stream, pinned, target = bench.cuda.Stream(), bench.pinned(), bench.device()
    bench.copy(stream, target, pinned)
    if kind == "pinned":
        del pinned
    else:
        del target
    gc.collect()
    with pytest.raises(Misuse, match=f"{kind} memory was freed under 1"):
        bench.cuda.synchronize()


def test_memory_freed_after_the_copy_is_nobody_s_business(bench: Bench) -> None:
    stream, pinned = bench.cuda.Stream(), bench.pinned()
    bench.copy(stream, bench.device(), pinned)  # the target dies at once: that is refused
    with pytest.raises(Misuse):
        bench.cuda.synchronize()
    bench = Bench()
    stream, pinned, target = bench.cuda.Stream(), bench.pinned(), bench.device()
    bench.copy(stream, target, pinned)
    bench.cuda.synchronize()
    del pinned, target
    gc.collect()
    bench.cuda.synchronize()


def test_the_host_must_not_change_pinned_memory_under_a_copy(bench: Bench) -> None:
    stream, pinned, target = bench.cuda.Stream(), bench.pinned(), bench.device()
    bench.copy(stream, target, pinned)
    pinned.numpy()[0] = 1
    bench.cuda.synchronize()
    with pytest.raises(Misuse, match="changed pinned memory under a copy"):
        bench.cuda.Stream()


def test_copies_that_would_make_the_host_wait_are_refused(bench: Bench) -> None:
    target, pinned = bench.device(), bench.pinned()
    with pytest.raises(Misuse, match="without non_blocking"):
        target.copy_(pinned)
    with pytest.raises(Misuse, match="pageable memory"):
        target.copy_(torch.zeros(64, dtype=torch.int64), non_blocking=True)
    with pytest.raises(Misuse, match="bytes into"):
        target.copy_(pinned[:3], non_blocking=True)
    with pytest.raises(TypeError):
        target.numpy()


@pytest.mark.parametrize(
    ("blocks", "threads"), [((0, 1), 32), ((1, 0), 32), ((1, 65536), 32), ((1, 1), 1025)]
)
def test_launches_that_fail_on_every_gpu_are_refused(
    bench: Bench, blocks: tuple[int, int], threads: int
) -> None:
    words = bench.numba.as_cuda_array(bench.device())
    stream = bench.numba.external_stream(bench.cuda.Stream().cuda_stream)
    with pytest.raises(Misuse, match="fails to launch"):
        bench.kernels["signal"][blocks, threads, stream](words, 0, 0)


def test_launches_with_other_arguments_than_the_kernel_s_are_refused(bench: Bench) -> None:
    tensor = bench.device()
    words = bench.numba.as_cuda_array(tensor)
    stream = bench.numba.external_stream(bench.cuda.Stream().cuda_stream)
    with pytest.raises(Misuse, match="default stream"):
        bench.kernels["signal"][(1, 1), 32, 0](words, 0, 0)
    launch = bench.kernels["signal"][(1, 1), 32, stream]
    with pytest.raises(Misuse, match="takes 3 arguments"):
        launch(words, 0)
    with pytest.raises(Misuse, match="a host array is copied"):
        launch(np.zeros(4, np.int64), 0, 0)
    with pytest.raises(Misuse, match="host array"):
        launch(words, words, 0)
    del tensor
    gc.collect()
    with pytest.raises(Misuse, match="memory that was freed"):
        launch(words, 0, 0)


def test_arrays_are_device_words_on_16_bytes(bench: Bench) -> None:
    with pytest.raises(Misuse, match="on the CPU"):
        bench.numba.as_cuda_array(bench.pinned())
    with pytest.raises(Misuse, match="int64 words on 16 bytes"):
        bench.numba.as_cuda_array(bench.device()[1:])
    with pytest.raises(Misuse, match="int64 words on 16 bytes"):
        bench.numba.as_cuda_array(bench.torch.empty(8, dtype=torch.uint8, device="cuda"))
    with pytest.raises(Misuse, match="either device='cuda' or pin_memory=True"):
        bench.torch.empty(8, dtype=torch.uint8)
    with pytest.raises(Misuse, match="only device memory is filled"):
        bench.pinned().zero_()


def test_stream_handles_are_those_of_living_streams(bench: Bench) -> None:
    with pytest.raises(Misuse, match="no stream's handle"):
        bench.numba.external_stream(12345)
    for _ in range(32):
        bench.cuda.Stream()
    with pytest.raises(Misuse, match="handed out by turns"):
        bench.cuda.Stream()


def test_an_error_is_sticky(bench: Bench) -> None:
    stream = bench.cuda.Stream()
    bench.gpu.fail_next("Event.record", "CUDA error: unspecified launch failure")
    event = bench.cuda.Event()
    with pytest.raises(FakeCudaError, match="unspecified launch failure"):
        event.record(stream)
    for call in (bench.cuda.Stream, bench.cuda.synchronize, bench.device):
        with pytest.raises(FakeCudaError, match="unspecified launch failure"):
            call()


def test_rows_that_are_none_are_an_illegal_access(bench: Bench) -> None:
    stream, tensor = bench.cuda.Stream(), bench.device()
    words = bench.numba.as_cuda_array(tensor)
    external = bench.numba.external_stream(stream.cuda_stream)
    bench.kernels["page_copy"][(1, 1), 32, external](words, 0, words, 0)
    bench.cuda.synchronize()
    with pytest.raises(FakeCudaError, match="illegal memory access"):
        bench.cuda.synchronize()


def test_the_log_convicts_two_streams_without_an_edge(bench: Bench) -> None:
    first, second, target, pinned = (
        bench.cuda.Stream(),
        bench.cuda.Stream(),
        bench.device(),
        bench.pinned(),
    )
    bench.copy(first, target, pinned)
    event = bench.cuda.Event()
    event.record(first)
    second.wait_event(event)
    bench.copy(second, pinned, target)
    bench.cuda.synchronize()
    assert order_of(bench.gpu) is None
    bench.copy(first, target, pinned)
    bench.copy(second, pinned, target)
    bench.cuda.synchronize()
    conflict = order_of(bench.gpu)
    assert conflict is not None
    assert "Missing: stream 2 must wait for an event recorded on stream 1" in conflict.message


def test_every_kernel_can_be_launched(bench: Bench) -> None:
    assert set(bench.kernels) == set(SIGNATURES)
