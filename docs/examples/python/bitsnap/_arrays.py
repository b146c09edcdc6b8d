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


def dtype_name(array, default=None):
    """The name in .safetensors files of an array's dtype."""
    dtype = getattr(array, "dtype", None)
    name = NAMES.get(str(dtype).removeprefix("torch."))
    if name and getattr(dtype, "byteorder", "=") != ">":
        return name
    if dtype is None and default:
        return default
    if dtype is None:
        raise TypeError("bytes have no dtype: say which, as dtype=\"BF16\"")
    raise TypeError(f"arrays of {dtype} are not supported")


def flat(array):
    """The same memory as something with the buffer protocol or __dlpack__ that has bytes alone: no library needs to know the dtype."""
    if hasattr(array, "data_ptr"):  # torch
        import torch

        if array.device.type != "cpu":
            raise ValueError(f"the tensor is in the memory of {array.device}: copy it to the host first")
        if not array.is_contiguous():
            raise ValueError("the tensor is not contiguous: copy it first")
        return array.detach().reshape(-1).view(torch.uint8)
    if hasattr(array, "__array_interface__"):  # numpy
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous: copy it first")
        return array.reshape(-1).view("uint8")
    return array
