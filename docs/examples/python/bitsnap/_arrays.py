"""Arrays of numpy and torch, by what they have in common; neither is imported here."""

# names in .safetensors files: those of numpy (with ml_dtypes) and torch, where they have such a type
DTYPES = {
    "BOOL": ("bool", "bool"), "U8": ("uint8", "uint8"), "I8": ("int8", "int8"), "U16": ("uint16", "uint16"), "I16": ("int16", "int16"),
    "U32": ("uint32", "uint32"), "I32": ("int32", "int32"), "U64": ("uint64", "uint64"), "I64": ("int64", "int64"),
    "F16": ("float16", "float16"), "BF16": ("bfloat16", "bfloat16"), "F32": ("float32", "float32"), "F64": ("float64", "float64"),
    "F8_E4M3": ("float8_e4m3fn", "float8_e4m3fn"), "F8_E5M2": ("float8_e5m2", "float8_e5m2"),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", "float8_e4m3fnuz"), "F8_E5M2FNUZ": ("float8_e5m2fnuz", "float8_e5m2fnuz"),
    "F8_E8M0": ("float8_e8m0fnu", "float8_e8m0fnu"), "C64": ("complex64", "complex64"), "C128": ("complex128", "complex128"),
}
NAMES = {name: ours for ours, both in DTYPES.items() for name in both}
PAIRS = {"F4": "float4_e2m1fn_x2"}  # torch keeps two of them in an element; numpy has no such arrays


def _name(dtype):
    kind = str(dtype).removeprefix("torch.")
    return NAMES.get(kind) or next((name for name, pair in PAIRS.items() if pair == kind), None)


def dtype_name(array, default=None):
    """The name in .safetensors files of an array's dtype."""
    dtype = getattr(array, "dtype", None)
    name = _name(dtype)
    if name and getattr(dtype, "byteorder", "=") != ">":
        return name
    if dtype is None and default:
        return default
    if dtype is None:
        raise TypeError(f"{type(array).__name__}: bytes have no dtype: say which, as dtype=\"BF16\"; files take arrays alone")
    raise TypeError(f"arrays of {dtype} are not supported: convert it to one of the dtypes of .safetensors files, or save its parts")


def codec_name(name):
    """The name of the dtype that frames of such elements have, as docs/FORMAT.md, section 3, lists them."""
    if name in ("U8", "F8_E8M0") or name in PAIRS:
        return "I8"
    return {"C64": "F32", "C128": "F64"}.get(name) or name.removesuffix("FNUZ").replace("U", "I")


def takes(array, kind):
    """Refuses an array whose elements are not those of a frame of this kind. Bytes and integers hold the bits of any."""
    dtype = getattr(array, "dtype", None)
    name = _name(dtype)
    if getattr(dtype, "byteorder", "=") == ">" or (name and name[0] not in "IU" and codec_name(name) != kind):
        raise ValueError(f"elements of {kind} in an array of {dtype}: give an array of {kind}, or view its memory as integers")


def strided(tensor):
    """Refuses what torch calls a tensor, and whose elements are not all in memory of its own."""
    import torch

    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(f"a {type(tensor).__name__} makes its elements of other tensors: save these, or what dequantize(), full_tensor() or "
                        "the like give")
    if tensor.is_nested:
        raise TypeError("a nested tensor: save what unbind() gives, or to_padded_tensor()")
    if tensor.layout != torch.strided:
        raise TypeError(f"a tensor of layout {tensor.layout}: save to_dense(), or its indices and values")
    if tensor.is_quantized:
        raise TypeError("a quantized tensor: save int_repr(), scales and zero points, or dequantize()")
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the device meta has no elements: load them first")
    if tensor.untyped_storage().nbytes() < (tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
                                            ) * tensor.element_size() and tensor.numel():
        raise ValueError("the memory of the tensor was freed, as that of parameters that are sharded: gather it first")


def flat(array):
    """The same memory as something with the buffer protocol or __dlpack__ that has bytes alone: no library needs to know the dtype."""
    if hasattr(array, "data_ptr"):  # torch
        import torch

        strided(array)
        if array.device.type != "cpu":
            raise ValueError(f"the tensor is in the memory of {array.device}: copy it to the host first")
        if array.is_conj() or array.is_neg():
            raise ValueError("the tensor is a view with other signs than its memory has: resolve_conj().resolve_neg() makes a copy")
        if not array.is_contiguous():
            raise ValueError("the tensor is not contiguous: copy it first")
        return array.detach().reshape(-1).view(torch.uint8)
    if hasattr(array, "__array_interface__"):  # numpy
        if hasattr(array, "mask"):
            raise TypeError("a masked array: save its data and its mask, or filled()")
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous: copy it first")
        return array.reshape(-1).view("uint8")
    return array
