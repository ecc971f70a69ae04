"""Files of torch itself: their tensors are those that torch reads."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from recurrent_laplace.interop.torch_files import read_state_dict  # noqa: E402

pytestmark = pytest.mark.interop


def test_tensors_of_every_kind_are_those_that_torch_reads():
    numbers = 1e3 * torch.randn(60, dtype=torch.float64)
    numbers[:4] = torch.tensor([float("nan"), float("inf"), 1e300, -0.0])
    types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    tensors = {str(dtype): numbers.to(dtype).reshape(5, 12) for dtype in types}
    tensors |= {f"{name} transposed": tensor.T for name, tensor in tensors.items()}
    tensors |= {
        "part": numbers.float()[7:40:3],
        "columns": tensors["torch.float32"][:, 2:9:2],
        "scalar": torch.tensor(2.5),
        "half a scalar": torch.tensor(2.5, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 4),
        "deep": torch.randn(2, 3, 1, 2).permute(3, 0, 2, 1),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "shared": tensors["torch.float32"][1:],
    }
    raw = io.BytesIO()
    torch.save(tensors, raw)
    expected = torch.load(io.BytesIO(raw.getvalue()), weights_only=True)
    found = read_state_dict(raw.getvalue(), "weights")
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.detach().float().numpy(), strict=True)


def test_what_torch_alone_reads_is_refused():
    for tensor in (
        torch.arange(3),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3).to_sparse(),
        torch.zeros(3).to(torch.float8_e4m3fn),
        torch.zeros(1).expand(3),
        torch.zeros(3, device="meta"),
        torch.zeros(3, dtype=torch.complex64).conj().imag,
        [torch.zeros(3)],
    ):
        raw = io.BytesIO()
        torch.save({"w": tensor}, raw)
        with pytest.raises(ValueError, match=r"^weights .*(no weight|'w' is something else)") as caught:
            read_state_dict(raw.getvalue(), "weights")
        assert "\n" not in str(caught.value)
    raw = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, raw, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="damaged or no zip file"):
        read_state_dict(raw.getvalue(), "weights")
