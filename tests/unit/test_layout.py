"""Lanes of an entry: dtypes, offsets, alignment, and the texts people write for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core.errors import UsageError
from onearena.core.layout import (
    CONTEXT,
    REQUEST,
    Dtype,
    EntryLayout,
    Lifetime,
    LifetimeKind,
    Part,
    chunk,
    dtype_named,
    window,
)

SIZES = {
    "bf16": 2,
    "fp16": 2,
    "fp32": 4,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
    "fp4x2": 1,
}


def part(name: str, shape: tuple[int, ...], dtype: str, **more: object) -> Part:
    options = {"lifetime": CONTEXT, **more}
    return Part(name=name, shape=shape, dtype=Dtype(dtype), **options)


def test_every_dtype_has_its_size():
    assert {dtype.value: dtype.size_bytes for dtype in Dtype} == SIZES


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("bf16", Dtype.BF16),
        ("bfloat16", Dtype.BF16),
        ("torch.float16", Dtype.FP16),
        ("float32", Dtype.FP32),
        ("float8_e4m3fn", Dtype.FP8_E4M3),
        ("torch.float8_e5m2", Dtype.FP8_E5M2),
        ("fp4x2", Dtype.FP4X2),
    ],
)
def test_dtypes_are_found_by_name_and_alias(text, dtype):
    assert dtype_named(text, field="dtype") is dtype


@pytest.mark.parametrize("text", ["fp64", "", "bf-16", 7, None, ["bf16"]])
def test_an_unknown_dtype_is_refused_with_the_list(text):
    with pytest.raises(UsageError, match=r"layers\[0\]\.dtype.*bf16, fp16, fp32"):
        dtype_named(text, field="layers[0].dtype")


def test_a_mixed_entry_packs_in_order_at_multiples_of_16():
    # K and V in fp8, a packed FP4 row of 40 values (20 bytes), scales in fp32, an int8 flag.
    rows = [
        part("k", (2, 24), "fp8_e4m3"),
        part("v", (2, 24), "fp8_e5m2"),
        part("packed", (20,), "fp4x2"),
        part("scale", (3,), "fp32"),
        part("flag", (1,), "int8"),
        part("half", (5,), "fp16"),
    ]
    entry = EntryLayout.of_parts((0, row, False) for row in rows)
    assert [(lane.name, lane.offset_bytes, lane.size_bytes) for lane in entry.lanes] == [
        ("layers.0.k", 0, 48),
        ("layers.0.v", 48, 48),
        ("layers.0.packed", 96, 20),
        ("layers.0.scale", 128, 12),
        ("layers.0.flag", 144, 1),
        ("layers.0.half", 160, 10),
    ]
    assert entry.entry_bytes == 176
    assert entry.payload_bytes == 48 + 48 + 20 + 12 + 1 + 10
    assert entry.padding_bytes == 176 - 139


def test_a_sparse_attention_index_lies_beside_its_latent_row():
    rows = []
    for layer in range(2):
        rows.append((layer, part("mla_kv", (576,), "bf16"), False))
        rows.append((layer, part("indexer_key", (132,), "uint8"), False))
    entry = EntryLayout.of_parts(rows)
    assert [lane.offset_bytes for lane in entry.lanes] == [0, 1152, 1296, 2448]
    assert entry.entry_bytes == 2592
    assert entry.payload_bytes == 2 * 1284


def test_draft_lanes_follow_the_target_and_keep_their_own_layer_numbers():
    rows = [(0, part("k", (8,), "bf16"), False), (0, part("k", (4,), "fp8_e4m3"), True)]
    entry = EntryLayout.of_parts(rows)
    assert [lane.name for lane in entry.lanes] == ["layers.0.k", "draft.layers.0.k"]
    assert entry.lane("draft.layers.0.k").offset_bytes == 16
    assert entry.lane("draft.layers.0.k").draft
    with pytest.raises(KeyError, match=r"layers\.9"):
        entry.lane("layers.9.k")


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
            st.sampled_from(list(Dtype)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_lanes_are_aligned_disjoint_and_as_tight_as_alignment_allows(rows):
    entry = EntryLayout.of_parts(
        (i, Part(name="p", shape=shape, dtype=dtype, lifetime=REQUEST), False)
        for i, (shape, dtype) in enumerate(rows)
    )
    assert entry.entry_bytes % 16 == 0
    end = 0
    for lane, (shape, dtype) in zip(entry.lanes, rows, strict=True):
        size = SIZES[dtype.value]
        for length in shape:
            size *= length
        assert lane.size_bytes == size
        assert lane.offset_bytes % 16 == 0
        assert lane.offset_bytes % SIZES[dtype.value] == 0
        assert end <= lane.offset_bytes < end + 16
        end = lane.offset_bytes + size
    assert end <= entry.entry_bytes < end + 16


def test_zeroing_is_asked_for_by_any_lane():
    plain = part("k", (8,), "bf16")
    assert not EntryLayout.of_parts([(0, plain, False)]).zero_on_hand_out
    zeroed = part("v", (8,), "bf16", zero=True)
    assert EntryLayout.of_parts([(0, plain, False), (0, zeroed, False)]).zero_on_hand_out


@pytest.mark.parametrize(
    ("lifetime", "text", "name"),
    [
        (CONTEXT, "context", "full"),
        (REQUEST, "request", "state"),
        (window(4096), "window(4096)", "window_4096"),
        (chunk(8192), "chunk(8192)", "chunk_8192"),
    ],
)
def test_lifetimes_read_back_what_they_write(lifetime, text, name):
    assert lifetime.text == text
    assert lifetime.sub_pool_name == name
    assert Lifetime.parse(text, field="lifetime") == lifetime


@pytest.mark.parametrize(
    "text",
    ["", "window", "window()", "window(0)", "window(-1)", "chunk(1e3)", "window(99999999999999)",
     "Context", "context(3)", "window(٣)", 5, None, {"window": 4}, "window(1)\n"],
)  # fmt: skip
def test_other_lifetimes_are_refused_by_field(text):
    with pytest.raises(UsageError, match=r"parts\[2\].lifetime.*window\(N\)"):
        Lifetime.parse(text, field="parts[2].lifetime")


def test_a_window_without_length_and_a_ring_per_token_are_programmer_errors():
    with pytest.raises(AssertionError, match="window length 0"):
        Lifetime(LifetimeKind.WINDOW)
    with pytest.raises(AssertionError, match="ring r per token"):
        part("r", (4, 2), "bf16", ring=True)
