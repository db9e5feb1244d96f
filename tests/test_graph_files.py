"""ONNX files: what is read of them, and every way in which one can be wrong."""

from __future__ import annotations

import os
import sys

import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, save_model
from onnx_texts import FIXED, SMALL, model, read

from planner.errors import InputError
from planner.predict.graph import features


def test_a_file_gives_what_its_model_gives(tmp_path):
    path = tmp_path / "m.onnx"
    save_model(model(SMALL), path)
    assert features(path, batch=10) == read(SMALL, batch=10)


def external(tmp_path):
    """A model whose Reshape target and weights stand in another file."""
    import numpy as np
    from onnx import numpy_helper

    proto = model("g (float[N, 6] x) => (float[?, ?] y) { r = Reshape (x, s)\n y = MatMul (r, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([-1, 3]), "s"))
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((3, 2), np.float32), "w"))
    path = tmp_path / "m.onnx"
    save_model(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_weights_in_another_file_are_not_read_but_small_whole_numbers_are(tmp_path):
    path = external(tmp_path)
    found = features(path, batch=4)
    assert (found.flops, found.parameters) == (8 * 2 * 3 * 2, 6)


def test_another_file_that_is_missing_and_needed_is_named(tmp_path):
    path = external(tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(
        InputError, match=r"m.onnx: s: its data, in 'm.data', cannot be read; accepted: a path"
    ):
        features(path, batch=4)


def refused(path):
    with pytest.raises(InputError) as error:
        features(path, batch=1)
    where, found = str(path), error.value.found
    assert error.value.where == where
    return found


def test_what_is_no_model_is_refused_in_one_line(tmp_path):
    path = tmp_path / "m.onnx"
    assert refused(path) == "no such file"
    assert refused(tmp_path) == "it is a folder"
    path.write_bytes(b"")
    assert refused(path) == "the file is empty"
    path.write_bytes(b"epoch,loss\n1,0.5\n")
    assert refused(path) == "it is no ONNX model, or only a part of one"
    path.write_bytes(b"\x08\x09")  # an IR version and nothing else
    assert refused(path) == "it holds no ONNX graph"


def test_a_file_beyond_what_protobuf_can_hold_is_refused_unread(tmp_path):
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)  # a hole: takes no room
    assert refused(path) == "it is larger than 2 GiB"


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "m.onnx"
    os.mkfifo(path)
    assert refused(path) == "it is no regular file"


def test_without_the_package_onnx_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"which is not installed; accepted: pip install onnx"):
        features(tmp_path / "m.onnx")


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(tmp_path, part):
    data = model(SMALL).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * part)])
    assert refused(path) in {"it is no ONNX model, or only a part of one", "the graph has no operators"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"MatMul", b"Mat\xfful"),  # no text
        (b"\x0a\x01d\x0a\x01v", b"\x12\x01d\x12\x01v"),  # inputs become outputs
    ],
)
def test_a_damaged_graph_is_refused(tmp_path, before, after):
    data = model(SMALL).SerializeToString()
    assert before in data
    path = tmp_path / "m.onnx"
    path.write_bytes(data.replace(before, after))
    assert refused(path).startswith(("the graph is damaged: ", "onnx cannot follow its shapes: "))


def test_a_weight_with_impossible_dims_is_refused():
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[3, -4]))
    with pytest.raises(InputError, match=r"m: w: its dims are \(3, -4\)"):
        features(proto, where="m")


def test_a_graph_without_operators_is_refused(tmp_path):
    proto = model("g (float[2] x) => (float[2] x) { }")
    with pytest.raises(InputError, match="m: the graph has no operators"):
        features(proto, where="m")


def test_a_graph_in_which_nothing_depends_on_an_input_is_refused():
    with pytest.raises(InputError, match=r"m\.onnx: no operator computes anything from an input"):
        read("g () => (float[2] y) <float[2] w = {1, 2}> { y = Exp (w) }")


def test_an_input_without_a_shape_is_refused():
    with pytest.raises(InputError, match=r"m\.onnx: input 'x': it has no shape"):
        features(_shapeless(), where="m.onnx")


def _shapeless():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_the_model_that_was_given_is_not_changed():
    proto = model(FIXED)
    before = proto.SerializeToString()
    features(proto, batch=8, where="m")
    assert proto.SerializeToString() == before
