"""Pickles, zips and torch files made by hand, so that they can say anything."""

import io
import struct
import zipfile


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def group(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def tensor(shape=(2, 3), stride=(3, 1), *, key="0", length=6, offset=0, storage="FloatStorage") -> bytes:
    """The opcodes that torch writes for a tensor."""
    reference = group(text("storage"), name("torch", storage), text(key), text("cpu"), number(length))
    made_of = group(
        reference + b"Q",
        number(offset),
        group(*map(number, shape)),
        group(*map(number, stride)),
        b"\x89",
        name("collections", "OrderedDict") + b")R",
    )
    return name("torch._utils", "_rebuild_tensor_v2") + made_of + b"R"


def state_dict(**tensors: bytes) -> bytes:
    items = b"".join(text(key) + value for key, value in tensors.items())
    return b"\x80\x02" + name("collections", "OrderedDict") + b")R(" + items + b"u."


def torch_file(program: bytes, method: int = zipfile.ZIP_STORED, **storages: bytes) -> bytes:
    """What `torch.save` writes; storage `_0` has the key `0`."""
    members = {f"archive/data/{key.removeprefix('_')}": raw for key, raw in storages.items()}
    return archive({"archive/data.pkl": program, **members}, method)


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for member, content in members.items():
            file.writestr(member, content)
    return out.getvalue()


def model(policy: bytes = b"", data: bytes = b"{}", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return archive({"data": data, "policy.pth": policy}, method)


def relabelled(raw: bytes, *, method: int | None = None, size: int | None = None) -> bytes:
    """The same zip, but its directory says something else of the last member."""
    at = raw.rindex(b"PK\x01\x02")
    changed = bytearray(raw)
    if method is not None:
        changed[at + 10 : at + 12] = struct.pack("<H", method)
    if size is not None:
        changed[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(changed)
