// The structures of DLPack (https://dmlc.github.io/dlpack/latest/c_api.html), version 0.8 and the versioned
// capsule of 1.0, as far as host tensors need them. Layouts are fixed by that specification.
#pragma once

#include <cstdint>

namespace stagewire::python::dlpack {

inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCudaHost = 3;

inline constexpr std::uint8_t kInt = 0;
inline constexpr std::uint8_t kUInt = 1;
inline constexpr std::uint8_t kFloat = 2;
inline constexpr std::uint8_t kBfloat = 4;
inline constexpr std::uint8_t kComplex = 5;
inline constexpr std::uint8_t kBool = 6;
inline constexpr std::uint8_t kFloat8E4m3fn = 10;
inline constexpr std::uint8_t kFloat8E5m2 = 12;

inline constexpr std::uint64_t kReadOnly = 1;

struct Device {
  std::int32_t type;
  std::int32_t id;
};
struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct TensorView {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major contiguous
  std::uint64_t byte_offset;
};
struct Managed {
  TensorView tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  TensorView tensor;
};

}  // namespace stagewire::python::dlpack
