"""Files of Stable-Baselines3 that want something: nothing in them runs. Needs neither it nor torch."""

import builtins
import json
import os
import pickle
import subprocess
import sys
import types

import numpy as np
import numpy.testing._private.utils
import pytest
from support.foreign import archive, model, name, relabelled, text

from recurrent_laplace.interop.sb3_files import read_model, read_normalization

NAMES = {
    "VecNormalize": "stable_baselines3.common.vec_env.vec_normalize",
    "RunningMeanStd": "stable_baselines3.common.running_mean_std",
    "Box": "gymnasium.spaces.box",
}


@pytest.fixture
def classes(monkeypatch):
    """Empty classes that pickle finds under the names of Stable-Baselines3 and Gymnasium."""
    made = {}
    for kind, home in NAMES.items():
        module = types.ModuleType(home)
        made[kind] = type(kind, (), {"__module__": home})
        setattr(module, kind, made[kind])
        monkeypatch.setitem(sys.modules, home, module)
        top = home.split(".")[0]
        monkeypatch.setitem(sys.modules, top, types.ModuleType(top))
    return types.SimpleNamespace(**made)


def thing(cls, **attributes):
    made = cls()
    vars(made).update(attributes)
    return made


MEAN = np.arange(6.0).reshape(2, 3)
VARIANCE = np.asfortranarray(1 + MEAN)


def statistics(classes, **changes):
    box = thing(classes.Box, low=-np.ones((2, 3), np.float32), _np_random=np.random.default_rng(0))
    attributes = {
        "observation_space": box,
        "obs_rms": thing(classes.RunningMeanStd, mean=MEAN, var=VARIANCE, count=3.0),
        "old_obs": np.array(["text", None], object),
        "norm_obs": True,
        "clip_obs": np.float32(2.5),
        "epsilon": 1e-8,
    }
    return thing(classes.VecNormalize, **(attributes | changes))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_statistics_are_read(classes, tmp_path, protocol):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(pickle.dumps(statistics(classes), protocol))
    for trust in (False, True):
        found = read_normalization(path, trust=trust)
        np.testing.assert_array_equal(found.mean, MEAN)
        np.testing.assert_array_equal(found.variance, VARIANCE)
        assert (found.clip, found.epsilon) == (2.5, 1e-8)
    seen = found(np.full((2, 3), 3.0))
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen, np.clip((3 - MEAN) / np.sqrt(VARIANCE), -2.5, 2.5), rtol=1e-6)


def test_names_of_old_numpy_and_other_endianness(classes, tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    rms = thing(classes.RunningMeanStd, mean=MEAN.astype(">f8"), var=VARIANCE.astype("<f4"), count=1.0)
    raw = pickle.dumps(statistics(classes, obs_rms=rms), 3)
    assert raw.count(b"numpy._core") > 0
    path.write_bytes(raw.replace(b"numpy._core", b"numpy.core"))
    found = read_normalization(path)
    np.testing.assert_array_equal(found.mean, MEAN)
    np.testing.assert_array_equal(found.variance, VARIANCE)


def test_no_normalisation_of_observations(classes, tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(pickle.dumps(statistics(classes, norm_obs=False, obs_rms=None)))
    assert read_normalization(path) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs_rms": {"position": 1}}, "observations that are dictionaries"),
        ({"obs_rms": None}, "NoneType has no attributes"),
        ({"clip_obs": "ten"}, "there is a str"),
        ({"clip_obs": np.array([1, None], object)}, "not one of plain numbers"),
        ({"clip_obs": np.array([1.0, 2.0])}, "be numbers"),
        ({"epsilon": float("nan")}, "not finite and positive"),
    ],
)
def test_statistics_that_make_no_sense(classes, tmp_path, changes, message):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(pickle.dumps(statistics(classes, **changes)))
    with pytest.raises(ValueError, match=message):
        read_normalization(path)


class Call:
    """Pickles to a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def touch(marker):
    return f"open({str(marker)!r}, 'w').close()"


ATTACKS = {
    "system": lambda marker: Call(os.system, f"touch {marker}"),
    "Popen": lambda marker: Call(subprocess.check_call, ["touch", str(marker)]),
    "eval": lambda marker: Call(builtins.eval, touch(marker)),
    "exec": lambda marker: Call(builtins.exec, touch(marker)),
    # It is under numpy, and runs what it is given.
    "runstring": lambda marker: Call(numpy.testing._private.utils.runstring, touch(marker), {}),
    "nested": lambda marker: Call(Call, Call(os.system, f"touch {marker}")),
    "in a list": lambda marker: [{"a": (1, Call(os.system, f"touch {marker}"))}],
}


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_pickles_do_not_run(classes, tmp_path, attack, inside):
    marker, path = tmp_path / "ran", tmp_path / "vecnormalize.pkl"
    hostile = ATTACKS[attack](marker)
    raw = pickle.dumps(statistics(classes, old_reward=hostile) if inside else hostile)
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"asks for [\w.]+, which .* was not read.*trust=True"):
        read_normalization(path)
    assert not marker.exists()
    # And it would have.
    try:
        read_normalization(path, trust=True)
    except (ValueError, TypeError):
        assert not inside
    assert marker.exists()


BOX = name("gymnasium.spaces.box", "Box")
SYSTEM = name("os", "system")


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        (name("stable_baselines3.common.save_util", "json_to_data") + b"(" + text("{}") + b"tR", "save_util"),
        (name("stable_baselines3.common.save_util", "load_from_pkl") + b"(" + text("x") + b"tR", "save_util"),
        (name("numpy.testing", "assert_equal") + b"(K\x01K\x01tR", "numpy.testing.assert_equal"),
        (name("numpy", "load") + b"(" + text("x") + b"tR", "numpy.load"),
        # Protocol 4 looks names with dots up in what it found.
        (text("numpy") + text("dtype.__class__") + b"\x93", "numpy.dtype.__class__"),
        (text("numpy") + text("ndarray.__reduce__") + b"\x93", "numpy.ndarray.__reduce__"),
        (name("builtins", "getattr") + b"(" + BOX + text("mro") + b"tR", "builtins.getattr"),
        (name("copyreg", "_reconstructor") + b"(" + BOX + BOX + b"NtR", "copyreg._reconstructor"),
        (b"(i" + b"os\nsystem\n", "os.system"),
        (b"(" + SYSTEM + text("true") + b"o", "os.system"),
    ],
)
def test_other_ways_to_ask(tmp_path, program, asked):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(b"\x80\x04" + program + b".")
    with pytest.raises(ValueError, match=f"asks for [a-z0-9_.]*{asked}"):
        read_normalization(path)


@pytest.mark.parametrize(
    "program",
    [
        BOX + b")\x81}b}b",  # BUILD twice, with nothing
        BOX + b")\x81}(" + text("__setstate__") + BOX + b"ub}b",  # a state that brings its own __setstate__
        BOX + b")\x81N}(" + text("__class__") + BOX + b"u\x86b",  # slots that would change the class
        BOX + b")\x81(K\x01tR",  # call an object
        BOX + b"}(" + text("origin") + text("numpy.ndarray") + b"ub",  # BUILD on a class
        BOX + b")\x81(K\x01K\x02u",  # items of an object
        BOX + b")\x81(K\x01e",  # extend an object
        b"K\x01}b",  # BUILD on a number
        b"K\x01)R",  # call a number
        b"Pname\n",  # a persistent id
        b"\x82\x01",  # an extension
        b"".join([b"("] * 10),  # marks and no end
    ],
)
def test_strange_programs_end_in_a_sentence(tmp_path, program):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(b"\x80\x04" + program + b".")
    with pytest.raises(ValueError, match=r"is damaged or no pickle|holds no VecNormalize"):
        read_normalization(path)


def test_a_hostile_type_is_not_given_to_numpy(classes, tmp_path):
    """numpy would take the bytes of an array of objects for addresses if its type's flags lied."""
    path = tmp_path / "vecnormalize.pkl"
    honest = pickle.dumps(statistics(classes), 3)
    spoilt = honest.replace(b"f8", b"O8")
    assert spoilt != honest
    path.write_bytes(spoilt)
    with pytest.raises(ValueError, match="not one of plain numbers"):
        read_normalization(path)


def test_damaged_statistics(classes, tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    raw = pickle.dumps(statistics(classes))
    for cut in range(0, len(raw), 37):
        path.write_bytes(raw[:cut])
        with pytest.raises(ValueError, match="damaged or no pickle"):
            read_normalization(path)


# The zip


def refused(path, raw, message):
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=message) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)


def test_zips_that_are_no_model(tmp_path):
    path = tmp_path / "model.zip"
    refused(path, b"", "damaged or no zip file")
    refused(path, b"not a zip at all", "damaged or no zip file")
    refused(path, archive({"notes": "hello"}), "no model of Stable-Baselines3: it has no member 'data'")
    refused(path, archive({"data": "{}"}), "it has no member 'policy.pth'")
    refused(path, model(data=b"{"), "'data' is no JSON")
    refused(path, model(data=b"[" * 100_000), "'data' is no JSON")
    refused(path, model(data=b"[1]"), "must be a JSON object; got list")
    refused(path, model(b"\x80\x02."), "'policy.pth' is damaged or no zip file")


def test_truncated_zip(tmp_path):
    whole = model(os.urandom(1000), json.dumps(list(range(1000))).encode())
    for cut in (10, len(whole) // 2, len(whole) - 5):
        refused(tmp_path / "model.zip", whole[:cut], "damaged")
    spoilt = bytearray(whole)
    spoilt[60] ^= 255
    refused(tmp_path / "model.zip", bytes(spoilt), "damaged")


@pytest.mark.parametrize("member", ["../escaped", "/escaped", "a/../../escaped", "..\\escaped"])
def test_members_that_point_out_of_the_zip(tmp_path, member):
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    raw = archive({"data": "{}", "policy.pth": "", member: "here"})
    refused(folder / "model.zip", raw, "points out of it")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["model.zip"]


def test_zip_bombs(tmp_path):
    path = tmp_path / "model.zip"
    whole = model(b"x")
    refused(path, relabelled(whole, size=0xC0000000), r"would unpack to 3221\.2 MB; at most 8\.4 MB")
    # One inside the weights, which are a zip as well.
    refused(path, model(relabelled(whole, size=0xC0000000)), "'policy.pth' would unpack to")


def test_zip_with_honest_but_many_bytes(tmp_path):
    refused(tmp_path / "model.zip", model(data=b" " * 10**7), "would unpack to 10.0 MB")


@pytest.mark.parametrize("read", [read_model, read_normalization])
def test_no_regular_file(tmp_path, read):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")
    with pytest.raises(ValueError, match="must be a file; got a directory"):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for device in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="must be a file; got a device"):
            read(device)


def test_trusted_statistics_that_cannot_be_made(tmp_path):
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(b"\x80\x04" + name("no_such_package.module", "Name") + b".")
    with pytest.raises(ValueError, match=r"needs no_such_package, which is not installed.*laplace\[sb3\]"):
        read_normalization(path, trust=True)
    path.write_bytes(b"\x80\x04" + name("builtins", "len") + b")R.")
    with pytest.raises(ValueError, match=r"cannot be unpickled: .*takes exactly one argument"):
        read_normalization(path, trust=True)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be unpickled: Ran out of input"):
        read_normalization(path, trust=True)
