"""Features from ONNX graphs: every operator's arithmetic by hand, batch sizes and dimensions, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper
from onnx_texts import FIXED, HEAD, SMALL, model, read

from planner.errors import InputError
from planner.predict.catalogue import find
from planner.predict.graph import features


def one(op, inputs, output):
    """A graph of one operator: ``one("Relu", "float[2, 3] x", "float[2, 3] y")``."""
    names = ", ".join(re.findall(r"\] (\w+)", inputs))
    name, _, attributes = op.partition(" ")
    return f"g ({inputs}) => ({output}) {{ {output.split()[-1]} = {name} {attributes} ({names}) }}"


# A multiply-add is two.
ARITHMETIC = [
    # 8 x 6 x 6 outputs, each 4 x 3 x 3 products: 288 x 72
    ("Conv", "float[1, 4, 8, 8] x, float[8, 4, 3, 3] w", "float[1, 8, 6, 6] y", 288 * 72),
    ("Conv", "float[1, 4, 8, 8] x, float[8, 4, 3, 3] w, float[8] b", "float[1, 8, 6, 6] y", 288 * 73),
    ("Conv <group=4>", "float[1, 4, 8, 8] x, float[8, 1, 3, 3] w", "float[1, 8, 6, 6] y", 288 * 18),
    ("Conv", "float[1, 2, 10] x, float[3, 2, 5] w", "float[1, 3, 6] y", 18 * 20),
    # 2 x 3 x 3 inputs, each spread over 5 channels of 2 x 2
    ("ConvTranspose", "float[1, 2, 3, 3] x, float[2, 5, 2, 2] w", "float[1, 5, 4, 4] y", 18 * 40),
    ("ConvTranspose", "float[1, 2, 3, 3] x, float[2, 5, 2, 2] w, float[5] b", "float[1, 5, 4, 4] y", 800),
    ("ConvTranspose <group=2>", "float[1, 2, 3, 3] x, float[2, 1, 2, 2] w", "float[1, 2, 4, 4] y", 18 * 8),
    ("Gemm", "float[2, 3] a, float[3, 5] b", "float[2, 5] y", 2 * 2 * 3 * 5),
    ("Gemm", "float[2, 3] a, float[3, 5] b, float[5] c", "float[2, 5] y", 70),
    ("Gemm <transA=1, transB=1>", "float[3, 2] a, float[5, 3] b", "float[2, 5] y", 60),
    ("MatMul", "float[2, 3] a, float[3, 5] b", "float[2, 5] y", 60),
    ("MatMul", "float[4, 1, 2, 3] a, float[7, 3, 5] b", "float[4, 7, 2, 5] y", 4 * 7 * 60),
    ("MatMul", "float[2, 3] a, float[3] b", "float[2] y", 12),
    ('Einsum <equation="ij,jk->ik">', "float[2, 3] a, float[3, 5] b", "float[2, 5] y", 60),
    ('Einsum <equation="...ij,jk">', "float[4, 2, 3] a, float[3, 5] b", "float[4, 2, 5] y", 240),
    ('Einsum <equation="ij->j">', "float[2, 3] a", "float[3] y", 6),
    # 4 gates of 5 from 3 numbers and from 5: 320 a step, summed (20), functions and state 18 x 5; 7 steps of 2
    (
        "LSTM <hidden_size=5>",
        "float[7, 2, 3] x, float[1, 20, 3] w, float[1, 20, 5] r",
        "float[7, 1, 2, 5] y",
        14 * (320 + 20 + 90),
    ),
    (
        "LSTM <hidden_size=5>",
        "float[7, 2, 3] x, float[1, 20, 3] w, float[1, 20, 5] r, float[1, 40] b",
        "float[7, 1, 2, 5] y",
        14 * (320 + 40 + 20 + 90),
    ),
    (
        'GRU <hidden_size=5, direction="bidirectional">',
        "float[7, 2, 3] x, float[2, 15, 3] w, float[2, 15, 5] r",
        "float[7, 2, 2, 5] y",
        2 * 14 * (240 + 15 + 70),
    ),
    (
        "RNN <hidden_size=5>",
        "float[7, 2, 3] x, float[1, 5, 3] w, float[1, 5, 5] r",
        "float[7, 1, 2, 5] y",
        14 * (80 + 5 + 5),
    ),
    (
        "BatchNormalization",
        "float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v",
        "float[2, 3, 4] y",
        24 * 8,
    ),
    ("LayerNormalization", "float[2, 3, 4] x, float[4] s, float[4] b", "float[2, 3, 4] y", 24 * 8),
    ("InstanceNormalization", "float[2, 3, 4] x, float[3] s, float[3] b", "float[2, 3, 4] y", 24 * 8),
    (
        "GroupNormalization <num_groups=1>",
        "float[2, 3, 4] x, float[1] s, float[1] b",
        "float[2, 3, 4] y",
        192,
    ),
    ("Softmax", "float[2, 3] x", "float[2, 3] y", 30),
    ("Relu", "float[2, 3] x", "float[2, 3] y", 6),
    ("Sigmoid", "float[2, 3] x", "float[2, 3] y", 24),
    ("Gelu", "float[2, 3] x", "float[2, 3] y", 30),
    ("Clip", "float[2, 3] x", "float[2, 3] y", 12),
    ("Add", "float[2, 3] x, float[3] z", "float[2, 3] y", 6),
    ("Sum", "float[2, 3] x, float[3] z, float[3] u", "float[2, 3] y", 12),
    ("MaxPool <kernel_shape=[2, 2], strides=[2, 2]>", "float[1, 3, 4, 4] x", "float[1, 3, 2, 2] y", 12 * 4),
    ("AveragePool <kernel_shape=[3, 3]>", "float[1, 3, 4, 4] x", "float[1, 3, 2, 2] y", 12 * 9),
    ("GlobalAveragePool", "float[1, 3, 4, 4] x", "float[1, 3, 1, 1] y", 48),
    ("ReduceMean", "float[2, 3] x", "float[1, 1] y", 6),
    ("ReduceL2", "float[2, 3] x", "float[1, 1] y", 12),
    ("LRN <size=5>", "float[1, 3, 2] x", "float[1, 3, 2] y", 6 * 13),
    ("Gather", "float[9, 4] t, int64[2, 3] i", "float[2, 3, 4] y", 0),
    ("Transpose", "float[2, 3] x", "float[3, 2] y", 0),
    ("Concat <axis=0>", "float[2, 3] x, float[1, 3] z", "float[3, 3] y", 0),
    ("Where", "bool[2, 3] c, float[2, 3] x, float[2, 3] z", "float[2, 3] y", 0),
    ("Equal", "float[2, 3] x, float[2, 3] z", "bool[2, 3] y", 0),  # no floating result
    ("Mul", "int64[2, 3] x, int64[2, 3] z", "int64[2, 3] y", 0),
]


@pytest.mark.parametrize(("op", "inputs", "output", "flops"), ARITHMETIC)
def test_flops_of_an_operator_are_those_worked_out_by_hand(op, inputs, output, flops):
    found = read(one(op, inputs, output))
    assert (found.flops, found.unknown_operators, found.notes) == (flops, {}, ())


# 2 sequences, 3 heads, 5 queries and 7 keys of 4 numbers: 2 x 3 x 5 x 7 pairs of 8 + 8 for products and 5 for softmax
@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 3, 5, 4] q, float[2, 3, 7, 4] k, float[2, 3, 7, 4] v) => (float[2, 3, 5, 4] y) { y = Attention (q, k, v) }",
        "g (float[2, 5, 12] q, float[2, 7, 12] k, float[2, 7, 12] v) => (float[2, 5, 12] y) "
        "{ y = Attention <q_num_heads=3, kv_num_heads=3> (q, k, v) }",
    ],
)
def test_attention_is_two_products_and_a_softmax(text):
    found = features(model(text, HEAD.replace("20", "23").replace("9", "11")), where="m")
    assert (found.flops, found.unknown_operators) == (210 * 21, {})


@pytest.mark.parametrize(
    ("mode", "sides", "per_output"), [("nearest", (4, 4), 0), ("linear", (4, 4), 7), ("linear", (4, 2), 3), ("cubic", (4, 4), 31)]
)  # fmt: skip
def test_resize_weighs_its_neighbours_in_each_dimension_that_grows(mode, sides, per_output):
    high, wide = sides
    text = f"""g (float[1, 1, 2, 2] x) => (float[1, 1, {high}, {wide}] y)
        <int64[4] s = {{1, 1, {high}, {wide}}}> {{ y = Resize <mode="{mode}"> (x, , , s) }}"""
    assert read(text).flops == high * wide * per_output


def test_a_small_network_is_worked_out_by_hand():
    """Batch 10: h, s, a and d are 40 floats of 160 bytes, x 120 bytes, y 80, w 48, b 16, v 32, two 4.

    Kept: a, because Relu's gradient looks at its output, and d for the second product; h and s are not needed.
    Moved: (120 + 48 + 160) + (160 + 16 + 160) + (160 + 160) + (160 + 4 + 160) + (160 + 32 + 80).
    """
    found = read(SMALL, batch=10)
    assert dataclasses.asdict(found) == {
        "batch": 10,
        "flops": 240 + 40 + 40 + 40 + 160,
        "flops_by_operator": {"Add": 40, "Div": 40, "MatMul": 400, "Relu": 40},
        "parameters": 24,  # a scalar is a constant
        "parameter_bytes": 96,
        "weight_bytes": {"float32": 100},
        "activation_bytes": 320,
        "largest_activation_bytes": 160,
        "input_bytes": 120,
        "output_bytes": 80,
        "traffic_bytes": 328 + 336 + 320 + 324 + 272,
        "weight_traffic_bytes": 100,
        "operators": 5,
        "operator_counts": {"Add": 1, "Div": 1, "MatMul": 2, "Relu": 1},
        "depth": 5,
        "unknown_operators": {},
        "notes": (),
    }
    assert found.flop_shares == {"conv": 0, "matmul": 400 / 520, "recurrent": 0, "other": 120 / 520}


def test_scaling_features_is_reading_with_another_batch():
    assert read(SMALL, batch=10).scaled(30) == read(SMALL, batch=30)


@pytest.mark.parametrize(("factor", "kept"), [("float f = {2}", 0), ("float[4] f = {1, 2, 3, 4}", 48)])
def test_a_product_with_a_constant_needs_nothing_kept_and_one_with_a_weight_its_input(factor, kept):
    text = f"""g (float[3, 4] x) => (float[3, 4] y) <{factor}> {{ a = Neg (x)
        b = Mul (a, f)
        y = Add (b, x) }}"""
    assert read(text).activation_bytes == kept


def test_a_recurrent_layer_keeps_gates_and_cell_states_of_every_step():
    """14 steps of 5 units: the outputs, four gates and the cell states."""
    op, inputs, output = (
        "LSTM <hidden_size=5>",
        "float[7, 2, 3] x, float[1, 20, 3] w, float[1, 20, 5] r",
        "float[7, 1, 2, 5] y",
    )
    assert read(one(op, inputs, output)).activation_bytes == 4 * 14 * 5 * 6


def test_views_run_nothing_and_hold_no_memory_of_their_own():
    text = """g (float[2, 6] x) => (float[2, 6] y) <int64[2] s = {3, 4}, float[4, 4] w = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}> {
        a = Exp (x)
        r = Reshape (a, s)
        m = MatMul (r, w)
        t = Identity (m)
        y = Flatten (t)
    }"""
    found = read(text.replace("=> (float[2, 6] y)", "=> (float[3, 4] y)"))
    assert (found.operators, found.depth, found.activation_bytes) == (2, 2, 48)
    assert found.operator_counts == {"Exp": 1, "Flatten": 1, "Identity": 1, "MatMul": 1, "Reshape": 1}


def test_depth_is_the_longest_path():
    text = """g (float[2] x) => (float[2] y) { a = Exp (x)
        b = Exp (a)
        c = Exp (x)
        y = Add (b, c) }"""
    found = read(text)
    assert (found.depth, found.operators) == (3, 4)


def test_a_lookup_reads_the_rows_it_gives_and_not_the_table():
    found = features(_table(), batch=5, where="m")
    assert (found.traffic_bytes, found.weight_traffic_bytes) == (80 + 160 + 160, 0)
    assert (found.parameters, found.input_bytes) == (4000, 80)


def _table():
    """A table of 1,000 rows without values, as where they are in another file."""
    ids = helper.make_tensor_value_info("i", TensorProto.INT64, ["N", 2])
    rows = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    table = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[1000, 4])
    node = helper.make_node("Gather", ["t", "i"], ["y"])
    graph = helper.make_graph([node], "g", [ids], [rows], [table])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_what_depends_on_no_input_is_worked_out_before_and_costs_nothing():
    text = """g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> {
        e = Exp (w)
        n = Shape (x)
        y = Mul (x, e)
    }"""
    found = read(text, batch=3)
    assert (found.flops, found.operators, found.operator_counts) == (12, 1, {"Mul": 1})


def test_running_statistics_are_no_parameters():
    text = """g (float[N, 2, 4] x) => (float[N, 2, 4] y) <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] m = {0, 0},
        float[2] v = {1, 1}> { y = BatchNormalization (x, s, b, m, v) }"""
    found = read(text, batch=3)
    assert (found.parameters, found.weight_bytes) == (4, {"float32": 32})


@pytest.mark.parametrize(
    ("kind", "parameter_bytes", "name"),
    [
        (TensorProto.FLOAT16, 24, "float16"),
        (TensorProto.BFLOAT16, 24, "bfloat16"),
        (TensorProto.DOUBLE, 96, "float64"),
        (TensorProto.INT8, 12, "int8"),
        (TensorProto.UINT4, 6, "uint4"),
        (TensorProto.FLOAT8E4M3FN, 12, "float8e4m3fn"),
    ],
)
def test_weights_are_counted_in_their_own_type(kind, parameter_bytes, name):
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    proto.graph.initializer.append(TensorProto(name="w", data_type=kind, dims=[3, 4]))
    found = features(proto, where="m")
    assert (found.parameters, found.parameter_bytes) == (12, parameter_bytes)
    assert found.weight_bytes == {name: parameter_bytes}


def test_elements_of_less_than_a_byte_fill_it_up():
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    proto.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.INT4, dims=[3, 3]))
    assert features(proto, where="m").parameter_bytes == 5  # 36 bits


def test_half_precision_activations_count_as_single():
    """A job trains in fp32 unless it says otherwise, whatever its graph was exported in."""
    assert read("g (float16[2, 3] x) => (float16[2, 3] y) { y = Exp (x) }").activation_bytes == 24


def test_weights_that_are_constant_operators_count_like_others():
    text = """g (float[N, 2] x) => (float[N, 2] y) { w = Constant <value = float[2, 2] {1, 2, 3, 4}> ()
        y = MatMul (x, w) }"""
    found = read(text, batch=1)
    assert (found.parameters, found.operator_counts) == (4, {"MatMul": 1})


def test_a_weight_listed_among_the_inputs_is_no_input():
    """As in files of ONNX before IR version 4."""
    text = "g (float[N, 2] x, float[2] w) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }"
    assert read(text, batch=3).input_bytes == 24


# Batch sizes and dimensions


def test_a_fixed_batch_is_read_as_it_is_and_reset_where_the_graph_allows():
    text = "g (float[4, 3] x) => (float[4, 3] y) { y = Exp (x) }"
    assert [read(text, batch=b).flops for b in (None, 4, 10)] == [12, 12, 30]
    assert read(text, batch=10).notes == ()


def test_a_graph_that_holds_its_batch_fixed_is_scaled_and_says_so():
    found = read(FIXED, batch=8)
    assert found.notes == ("the graph holds the batch size 4 fixed: scaled linearly to 8",)
    assert (found.batch, found.flops, found.input_bytes) == (8, 48, 192)
    assert (found.traffic_bytes, found.weight_traffic_bytes) == (2 * 192 + 24, 24)  # the weight is read once


def test_a_dynamic_dimension_needs_a_size():
    text = "g (float[N, T, 3] x) => (float[N, T, 3] y) { y = Exp (x) }"
    with pytest.raises(InputError) as batch:
        read(text, dims={"T": 5})
    with pytest.raises(InputError) as length:
        read(text, batch=2)
    assert str(batch.value) == "m.onnx: input 'x': dimension 0 (N) is dynamic; accepted: --batch N"
    assert str(length.value) == "m.onnx: input 'x': dimension 1 (T) is dynamic; accepted: --dim T=N"
    assert read(text, batch=2, dims={"T": 5}).flops == 30


def test_a_dimension_without_a_name_is_named_by_its_place():
    text = "g (float[?, ?] x) => (float[?, ?] y) { y = Exp (x) }"
    with pytest.raises(InputError, match=r"dimension 1 \(x\[1\]\) is dynamic; accepted: --dim x\[1\]=N"):
        read(text, batch=2)
    assert read(text, batch=2, dims={"x[1]": 7}).flops == 14


def test_a_dimension_called_batch_is_the_batch_wherever_it_stands():
    text = "g (float[seq, batch, 3] x) => (float[seq, batch, 3] y) { y = Exp (x) }"
    with pytest.raises(InputError, match=r"dimension 0 \(seq\) is dynamic; accepted: --dim seq=N"):
        read(text, batch=2)
    found = read(text, batch=2, dims={"seq": 5})
    assert (found.batch, found.flops) == (2, 30)


def test_a_size_for_a_dimension_that_is_not_there_is_refused():
    with pytest.raises(
        InputError, match=r"dimension 'length': the inputs have no such dynamic one; accepted: N, T"
    ):
        read("g (float[N, T] x) => (float[N, T] y) { y = Exp (x) }", batch=2, dims={"T": 3, "length": 5})


@pytest.mark.parametrize(
    ("options", "key"), [({"batch": 0}, "batch"), ({"batch": 1, "dims": {"T": -2}}, "T")]
)
def test_sizes_start_at_one(options, key):
    with pytest.raises(InputError, match=f"m.onnx: {key}: got -?[02]; accepted: a whole number from 1"):
        read("g (float[N, T] x) => (float[N, T] y) { y = Exp (x) }", **options)


def test_shapes_computed_inside_the_graph_are_followed():
    """As exporters flatten: the batch taken from the shape, the rest as -1."""
    text = """g (float[N, 3, 4] x) => (float[?, ?] y) <int64 zero = {0}, int64[1] axis = {0}, int64[1] rest = {-1},
        float[12, 5] w = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
        0,0,0,0,0,0,0,0,0,0,0,0}> {
        s = Shape (x)
        n = Gather (s, zero)
        u = Unsqueeze (n, axis)
        t = Concat <axis=0> (u, rest)
        f = Reshape (x, t)
        y = MatMul (f, w)
    }"""
    found = read(text, batch=7)
    assert (found.flops, found.operators, found.notes) == (7 * 2 * 12 * 5, 1, ())


def test_shapes_computed_in_ways_that_onnx_does_not_follow_are_worked_out():
    """As exporters split heads: a width of the shape divided by the number of heads."""
    text = """g (float[N, 12] x) => (float[?, ?, ?] y) <int64 one = {1}, int64 heads = {3}, int64[1] axis = {0},
        int64[1] rest = {-1}, int64[1] few = {3}> {
        s = Shape (x)
        n = Gather (s, one)
        d = Div (n, heads)
        u = Unsqueeze (d, axis)
        t = Concat <axis=0> (rest, few, u)
        f = Reshape (x, t)
        g = Transpose <perm=[0, 2, 1]> (f)
        y = MatMul (f, g)
    }"""
    found = read(text, batch=7)
    assert (found.flops, found.operators, found.notes) == (7 * 9 * 8, 2, ())
    assert found.output_bytes == 7 * 9 * 4


def light(name):
    """One of the models that onnx ships for its own tests, with a batch of one and made-up weights."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.is_file():
        pytest.skip("this version of onnx ships no such model")
    return path


@pytest.mark.parametrize("name", ["densenet121", "resnet50", "squeezenet", "vgg19"])
def test_models_made_by_others_cost_exactly_what_our_definitions_of_them_do(name):
    found, ours = features(light(name)).flops_by_operator, find(name).one.flops_by_operator
    assert found["MaxPool"] == ours["MaxPool"]
    # DenseNet's last layer is a convolution there and a dense layer here.
    assert found["Conv"] + found.get("Gemm", 0) == ours["Conv"] + ours.get("Gemm", 0)


# Operators that are not known, functions and bodies


def test_unknown_operators_count_as_elementwise_and_what_follows_has_a_shape():
    text = """g (float[N, 4] x) => (float[N, 4] y) {
        a = custom.Magic (x)
        b = custom.Magic (a)
        y = Exp (b)
    }"""
    found = read(text, batch=3)
    assert (found.unknown_operators, found.flops, found.operators) == ({"Magic": 2}, 36, 3)


def test_an_operator_of_another_domain_is_unknown_even_under_a_known_name():
    found = read("g (float[N, 4] x) => (float[N, 4] y) { y = custom.Softmax (x) }", batch=3)
    assert found.unknown_operators == {"Softmax": 1}


def test_a_domain_that_the_file_does_not_declare_is_read_all_the_same():
    proto = model("g (float[N, 4] x) => (float[N, 4] y) { y = Exp (x) }")
    proto.graph.node[0].domain = "com.elsewhere"
    assert features(proto, batch=2, where="m").unknown_operators == {"Exp": 1}


def test_shapes_that_the_file_states_hold_where_onnx_has_none():
    found = read("g (float[2, 4] x) => (float[2, 9] y) { y = custom.Magic (x) }")
    assert (found.output_bytes, found.flops, found.notes) == (72, 18, ())
    assert read("g (float[2, 4] x) => (float[2, 9] y) { y = custom.Magic (x) }", batch=4).output_bytes == 64


def test_values_of_unknown_shape_are_named():
    found = read("g (float[2, 4] x) => (int64[?, ?] y) { y = NonZero (x) }")
    assert found.notes == ("1 value of unknown shape counted as empty, first y",)


def test_an_output_that_nothing_looks_at_may_have_no_shape():
    text = "g (float[4, 3] x) => (float[4, 3] y) { y, mask = custom.Drop (x) }"
    proto = model(text)
    proto.graph.node[0].domain, proto.graph.node[0].op_type = "", "Dropout"
    assert features(proto, batch=8, where="m").notes == ()


def test_functions_of_the_file_are_written_out():
    text = """g (float[N, 4] x) => (float[N, 4] y) { y = custom.twice (x) }
        <domain: "custom", opset_import: ["" : 20]> twice (a) => (c) { b = Exp (a)
        c = Sqrt (b) }"""
    found = read(text, batch=1)
    assert (found.operator_counts, found.unknown_operators) == ({"Exp": 1, "Sqrt": 1}, {})


def test_each_branch_counts_once():
    text = """g (bool c, float[2, 3] x) => (float[2, 3] y) { y = If (c) <
        then_branch = t () => (float[2, 3] a) { a = Exp (x) },
        else_branch = e () => (float[2, 3] b) { h = Exp (x)
            b = Sqrt (h) }> }"""
    found = read(text)
    assert found.flops_by_operator == {"Exp": 12, "Sqrt": 6}
    assert (found.depth, found.notes) == (2, ("If: each body counted once",))


LOOP = """g (float[2, 3] x) => (float[2, 3] y) <int64 n = {5}, bool go = {1}> { y = Loop (%s, go, x) <
    body = b (int64 i, bool c, float[2, 3] a) => (bool d, float[2, 3] e) { d = Identity (c)
        e = Exp (a) }> }"""


def test_a_loop_counts_as_often_as_it_runs():
    found = read(LOOP % "n")
    assert (found.flops, found.operators, found.depth, found.notes) == (30, 5, 5, ())


def test_a_loop_whose_trips_are_not_known_counts_once():
    text = (LOOP % "m").replace("(float[2, 3] x)", "(int64 m, float[2, 3] x)", 1)
    found = read(text)
    assert (found.flops, found.notes) == (6, ("Loop: each body counted once",))


def test_a_scan_counts_each_step_along_its_input():
    text = """g (float[7, 3] x) => (float[7, 3] y) { y = Scan (x) <num_scan_inputs = 1,
        body = b (float[3] a) => (float[3] e) { e = Exp (a) }> }"""
    found = read(text)
    assert (found.flops, found.operators, found.activation_bytes) == (21, 7, 84)
