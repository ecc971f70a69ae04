"""Files of `rl.save` with changed contents and a matching checksum."""

import json

import safetensors.numpy

from recurrent_laplace.monitoring import serialization


def write_saved(path, text, tensors):
    """Write a header and arrays with a checksum that fits them."""
    header = {serialization.HEADER: text, "checksum": serialization._checksum(text, tensors)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata=header))


def craft(source, path, change):
    """Write `source` to `path` after `change(spec, tensors)`."""
    text, tensors = serialization._read(source)
    spec = json.loads(text)
    change(spec, tensors)
    write_saved(path, json.dumps(spec), tensors)
