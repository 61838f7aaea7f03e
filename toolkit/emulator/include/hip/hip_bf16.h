// bfloat16 as CuPy's kernels use it: storage, conversions rounded to nearest even, arithmetic in float.
#pragma once
struct __hip_bfloat16 {
  unsigned short x;
  __device__ __hip_bfloat16() = default;
  __device__ __hip_bfloat16(float value) {
    unsigned bits = __float_as_uint(value);
    x = value != value ? (bits >> 16) | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  __device__ operator float() const { return __uint_as_float((unsigned)x << 16); }
};
static inline __device__ unsigned short __bfloat16_as_ushort(__hip_bfloat16 value) { return value.x; }
static inline __device__ __hip_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __hip_bfloat16 value;
  value.x = bits;
  return value;
}
static inline __device__ float __bfloat162float(__hip_bfloat16 value) { return value; }
static inline __device__ __hip_bfloat16 __float2bfloat16(float value) { return value; }
static inline __device__ bool __hisnan(__hip_bfloat16 value) { return (value.x & 0x7fff) > 0x7f80; }
static inline __device__ int __hisinf(__hip_bfloat16 value) {
  return (value.x & 0x7fff) == 0x7f80 ? (value.x >> 15 ? -1 : 1) : 0;
}
