"""Small files cannot take much memory, each shown in a process of its own; weights are read without torch."""

import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from support.foreign import (
    archive,
    group,
    model,
    name,
    relabelled,
    state_dict,
    tensor,
    text,
    torch_file,
)

from recurrent_laplace.interop._pickle import NotAllowedError, read_pickle
from recurrent_laplace.interop.sb3_network import describe
from recurrent_laplace.interop.torch_files import read_state_dict

FIXED, RATIO = 100e6, 10
"""Bytes of memory that reading may take: a fixed amount, and some for each byte of the file."""

CHILD = """
import resource, sys
from recurrent_laplace.interop.sb3_files import read_model, read_normalization
read = read_model if sys.argv[1].endswith(".zip") else read_normalization
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
# A machine is not brought down by what this is to prevent.
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
try:
    read(sys.argv[1])
    print("read")
except ValueError as error:
    print(error)
print(peak() - before)
"""

BILLIONS = 3 * 2**30
MIB = 2**20
BOX = name("gymnasium.spaces.box", "Box")


def pickled(opcodes: bytes) -> bytes:
    return b"\x80\x04" + opcodes + b"."


def wide(count: int, raw: bytes) -> bytes:
    """Many tensors of one storage."""
    whole = tensor((len(raw) // 4,), (1,), length=len(raw) // 4)
    return torch_file(state_dict(**{f"w{i}": whole for i in range(count)}), _0=raw)


def doubled(levels: int) -> bytes:
    """A tuple of two of a tuple of two, and so on."""
    return b"N" + b"2\x86" * levels


def overlapping(count: int, size: int) -> bytes:
    """A torch file whose directory lists one member under many names."""
    raw = torch_file(state_dict(w=tensor()), _0=bytes(size))
    start, at, end = raw.index(b"PK\x01\x02"), raw.rindex(b"PK\x01\x02"), raw.rindex(b"PK\x05\x06")
    entry = raw[at:end]
    key = entry.index(b"data/0") + 5
    entries = b"".join(entry[:key] + bytes([48 + i % 10]) + entry[key + 1 :] for i in range(count))
    directory = raw[start:at] + entries
    counts = 0, 0, count + 1, count + 1
    return raw[:start] + directory + struct.pack("<4s4H2IH", b"PK\5\6", *counts, len(directory), start, 0)


def zeros_in(method: int) -> bytes:
    """A torch file with a storage of many zeros."""
    return torch_file(state_dict(w=tensor()), method, _0=ZEROS)


def of_names(module: str, count: int) -> bytes:
    return text(module) + b"q\x00" + text("Box") + b"q\x01" + b"h\x00h\x01\x93" * count


ZEROS = bytes(256 * MIB)
DEFLATED, BZIP2 = zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2

PICKLES = {
    "long text": lambda: b"X" + struct.pack("<I", BILLIONS),
    "long text 8": lambda: b"\x8d" + struct.pack("<Q", BILLIONS),
    "long bytes": lambda: b"B" + struct.pack("<I", BILLIONS),
    "long bytes 8": lambda: b"\x8e" + struct.pack("<Q", BILLIONS),
    "longest bytes": lambda: b"\x8e" + struct.pack("<Q", 2**63 - 1),
    "long bytearray": lambda: b"\x96" + struct.pack("<Q", BILLIONS),
    "long number": lambda: b"\x8b" + struct.pack("<i", 2**31 - 1),
    "long frame": lambda: b"\x95" + struct.pack("<Q", BILLIONS),
    "memo": lambda: b"Nr" + struct.pack("<I", 2**28),
    "memo as text": lambda: b"Np268435456\n",
    "many sets": lambda: b"\x8f" * 10 * MIB,
    "many dicts": lambda: b"(" + b"}" * 10 * MIB + b"t",
    "many marks": lambda: b"(" * 10 * MIB,
    "many objects": lambda: BOX + b"q\x00" + b"h\x00)\x81" * MIB,
    "many classes": lambda: of_names("gymnasium.spaces.box", 100_000),
    "long names": lambda: of_names("gymnasium.spaces." + "x" * MIB, 1000),
    "tuples as a key": lambda: b"}" + doubled(60) + b"Ns",
    "tuples as a state": lambda: BOX + b")\x81" + doubled(60) + b"b",
}
"""Opcodes of pickles."""

MODELS = {
    "JSON of lists": lambda: model(data=b"[" + b"[]," * 10 * MIB + b"0]"),
    "JSON of lists, not too long": lambda: model(data=b'{"a":[' + b"[]," * 2 * MIB + b"0]}"),
    "JSON of spaces": lambda: model(data=b" " * len(ZEROS)),
    "weights of zeros": lambda: model(ZEROS),
    "weights of zeros, and a small size": lambda: relabelled(model(ZEROS), size=100),
    "weights of nothing, and a large size": lambda: relabelled(model(), size=BILLIONS),
    "bzip2": lambda: model(ZEROS, method=BZIP2),
    "bzip2, and a small size": lambda: relabelled(model(ZEROS, method=BZIP2), size=100),
    "a long directory": lambda: archive({f"{i:x}": b"" for i in range(50_000)}, zipfile.ZIP_STORED),
}
"""Zips that are said to be models."""

WEIGHTS = {
    "deflated": lambda: zeros_in(DEFLATED),
    "deflated, and a small size": lambda: relabelled(zeros_in(DEFLATED), size=24),
    "deflated, and said to be stored": lambda: relabelled(zeros_in(DEFLATED), method=0),
    "a large size": lambda: relabelled(FILE, size=BILLIONS),
    "a large length": lambda: torch_file(state_dict(w=tensor((2**30,), (1,), length=2**30)), _0=bytes(24)),
    "strides of zero": lambda: torch_file(state_dict(w=tensor((2**15, 2**15), (0, 0))), _0=bytes(24)),
    "many tensors of one storage": lambda: wide(1000, bytes(MIB)),
    "many storages in one place": lambda: overlapping(1000, MIB),
    "memo": lambda: torch_file(pickled(PICKLES["memo"]())),
    "old format": lambda: pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickled(PICKLES["long bytes"]()),
}
"""Torch files inside of a model."""

CRAFTED = {
    **{f"{kind}.pkl": lambda make=make: pickled(make()) for kind, make in PICKLES.items()},
    **{f"{kind}.zip": make for kind, make in MODELS.items()},
    **{f"weights, {kind}.zip": lambda make=make: model(make()) for kind, make in WEIGHTS.items()},
}


@pytest.mark.parametrize("file", CRAFTED)
def test_memory_before_refusal(file, tmp_path):
    path = tmp_path / file
    size = path.write_bytes(CRAFTED[file]())
    done = subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    message, grown = done.stdout.splitlines()
    assert str(path) in message
    assert len(message) < 500
    assert int(grown) * 1024 < FIXED + RATIO * size


# Weights

NUMBERS = np.arange(6, dtype=np.float32)
FILE = torch_file(state_dict(w=tensor()), _0=NUMBERS.tobytes())


def read(**options):
    """The one array of a file with a tensor of six numbers."""
    return read_state_dict(torch_file(state_dict(w=tensor(**options)), _0=NUMBERS.tobytes()), "weights")["w"]


def test_tensors_are_views_of_storages():
    np.testing.assert_array_equal(read(), NUMBERS.reshape(2, 3))
    np.testing.assert_array_equal(read(shape=(3, 2), stride=(1, 3)), NUMBERS.reshape(2, 3).T)
    np.testing.assert_array_equal(read(shape=(2,), stride=(2,), offset=1), [1, 3])
    np.testing.assert_array_equal(read(shape=(), stride=(), offset=5), 5)
    np.testing.assert_array_equal(read(shape=(1, 6), stride=(2**62, 1)), NUMBERS[None])
    assert read(shape=(0, 4), stride=(4, 1)).shape == (0, 4)
    parameter = name("torch._utils", "_rebuild_parameter") + group(tensor(), b"\x88", b"N") + b"R"
    raw = torch_file(state_dict(w=parameter), _0=NUMBERS.tobytes())
    np.testing.assert_array_equal(read_state_dict(raw, "weights")["w"], NUMBERS.reshape(2, 3))


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize(
    ("storage", "dtype"),
    [("HalfStorage", "f2"), ("FloatStorage", "f4"), ("DoubleStorage", "f8"), ("BFloat16Storage", "bfloat16")],
)
def test_types_and_byte_orders(storage, dtype, order):
    if dtype == "bfloat16":
        numbers = (NUMBERS.view(np.uint32) >> 16).astype(np.uint16)
    else:
        numbers = NUMBERS.astype(dtype)
    numbers = numbers.astype(numbers.dtype.newbyteorder(order))
    members = {
        "x/data.pkl": state_dict(w=tensor(storage=storage)),
        "x/byteorder": order.encode(),
        "x/data/0": numbers.tobytes(),
    }
    found = read_state_dict(archive(members, zipfile.ZIP_STORED), "weights")["w"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, NUMBERS.reshape(2, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 5}, "another length than 24 bytes"),
        ({"length": 7}, "another length than 24 bytes"),
        ({"storage": "DoubleStorage"}, "another length than 24 bytes"),
        ({"key": "1"}, "storage is missing"),
        ({"key": "../data.pkl"}, "storage is missing"),
        ({"offset": 1}, "reaches beyond"),
        ({"stride": (4, 1)}, "reaches beyond"),
        ({"offset": -1}, "do not fit together"),
        ({"stride": (-3, 1)}, "do not fit together"),
        ({"shape": (-2, -3)}, "do not fit together"),
        ({"stride": (1,)}, "do not fit together"),
        ({"shape": (2**63,), "stride": (0,)}, "do not fit together"),
        ({"shape": (1,) * 65, "stride": (0,) * 65}, "do not fit together"),
        ({"shape": (7,), "stride": (0,)}, "more elements than its storage"),
        ({"shape": (0, 2**62, 2**62), "stride": (0, 0, 0)}, "array is too big"),
    ],
)
def test_tensors_that_do_not_fit_their_storage(options, message):
    with pytest.raises(
        ValueError, match=rf"^weights must hold plain arrays of numbers; 'w' is .*{message}(.*[^.])?\.$"
    ):
        read(**options)


@pytest.mark.parametrize("storage", ["LongStorage", "UntypedStorage", "ComplexFloatStorage"])
def test_other_storages_are_refused(storage):
    with pytest.raises(ValueError, match=f"asks for torch.{storage}, which is no weight"):
        read(storage=storage)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (pickled(b"]"), "must be a dict of weights by name; got list"),
        (pickled(b"}(K\x01" + tensor() + b"u"), "must be a dict of weights by name; got dict"),
        (state_dict(w=text("numbers")), "it is no dense tensor"),
        (state_dict(w=name("torch._utils", "_rebuild_parameter") + b")R"), "it is no dense tensor"),
        (state_dict(w=name("torch._utils", "_rebuild_tensor_v2") + b")R"), "it is no dense tensor"),
        (state_dict(w=tensor()[:-1] + b"R}b"), None),
        (name("collections", "OrderedDict") + b"]\x85R.", "an OrderedDict that is not made empty"),
        (pickled(b"Pkey\n"), "an opcode PERSID"),
        (b"", "damaged or holds more than weights"),
    ],
)
def test_programs_that_are_no_state_dict(program, message):
    raw = torch_file(program, _0=NUMBERS.tobytes())
    if message is None:  # attributes of a tensor change nothing
        assert read_state_dict(raw, "weights")["w"].shape == (2, 3)
        return
    with pytest.raises(ValueError, match=message) as caught:
        read_state_dict(raw, "weights")
    assert "\n" not in str(caught.value)


def test_files_that_torch_did_not_write():
    for members in ({"a": b""}, {"a/data.pkl": b"", "b/data.pkl": b""}, {"a/b/data.pkl": b""}):
        with pytest.raises(ValueError, match=r"must have one data\.pkl"):
            read_state_dict(archive(members, zipfile.ZIP_STORED), "weights")
    raw = archive({"a/data.pkl": state_dict(), "a/byteorder": b"middle"}, zipfile.ZIP_STORED)
    with pytest.raises(ValueError, match="byte order of little or big; got b'middle'"):
        read_state_dict(raw, "weights")
    with pytest.raises(ValueError, match="compressed in an unexpected way"):
        read_state_dict(archive({"a/data.pkl": bytes(10)}, zipfile.ZIP_DEFLATED), "weights")


@pytest.mark.parametrize("at", range(0, len(FILE), 17))
def test_damaged_weights(at):
    with pytest.raises(ValueError, match=r"^weights .*\.$"):
        read_state_dict(FILE[:at], "weights")
    spoilt = bytearray(FILE)
    spoilt[at] ^= 255
    try:
        found = read_state_dict(bytes(spoilt), "weights")
    except ValueError as error:
        message = str(error)
    else:
        # Dates and flags make no difference, and names have no checksum.
        message = "weights are read."
        assert [array.shape for array in found.values()] in ([(2, 3)], [])
    assert message.startswith("weights ")
    assert "\n" not in message


# Pickles


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_python_values_are_read(protocol):
    shared = [1, 2.5]
    cyclic: list = []
    cyclic.append(cyclic)
    values = {
        "numbers": (0, -1, 255, 70_000, 2**40, -(2**2100), 1e300),
        "constants": [None, True, False, (), [], {}],
        "text": "aé€😀",
        "long": "x" * 70_000,
        "twice": [shared, shared],
        "tuples": ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        3: {"nested": {"a": [{}]}},
        "many": list(range(3000)),
    }
    if protocol > 2:
        values["bytes"] = b"\0\xff" * 1000
    if protocol > 4:
        values["bytearray"] = bytearray(b"abc")
    found = read_pickle(pickle.dumps(values, protocol), lambda _: False)
    assert found == values
    assert found["twice"][0] is found["twice"][1]
    found = read_pickle(pickle.dumps(cyclic, protocol), lambda _: False)
    assert found[0] is found
    if protocol > 3:
        assert sorted(read_pickle(pickle.dumps({1, 2}, protocol), lambda _: False)) == [1, 2]
        assert read_pickle(pickle.dumps(frozenset([1]), protocol), lambda _: False) == [1]


def test_no_name_is_found_that_is_not_allowed():
    with pytest.raises(NotAllowedError, match=r"^collections\.Counter$"):
        read_pickle(pickled(name("collections", "Counter")), {"collections.OrderedDict"}.__contains__)
    # Line breaks of a damaged name are escaped.
    with pytest.raises(NotAllowedError, match=r"^a\\x85b\.c$"):
        read_pickle(pickled(text("a\x85b") + text("c") + b"\x93"), lambda _: False)
    # A name that is too long is refused though it is allowed.
    with pytest.raises(NotAllowedError):
        read_pickle(pickled(text("a" * 300) + text("b") + b"\x93"), lambda _: True)


def test_bounds_of_many_numbers_are_not_taken_apart():
    box = {":type:": "<class 'gymnasium.spaces.box.Box'>", "_shape": [1]}
    data = {
        "policy_class": {"__module__": "sb3_contrib.common.recurrent.policies"},
        "policy_kwargs": {},
        "observation_space": dict(box),
        "action_space": box | {"low": "10 " * 2 * MIB},
    }
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"action_space must tell its 'low' in numbers of shape \(1,\)"):
        describe(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MIB
    for shape in (5, ["a"], [-1], [2**40], "ab", [True]):
        data["observation_space"]["_shape"] = shape
        with pytest.raises(ValueError, match="shape of a space must be a list of sizes"):
            describe(data)
