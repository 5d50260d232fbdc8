// SPDX-License-Identifier: Apache-2.0
#include "base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/varint.h"

namespace ingero {
namespace {

constexpr int kSubBits = 5;  // 32 buckets per octave
constexpr size_t kExact = 2u << kSubBits;
constexpr size_t kBuckets = kExact + (64 - kSubBits - 1) * (1u << kSubBits);

}  // namespace

size_t Histogram::BucketOf(uint64_t value) {
  if (value < kExact) return value;
  const int exponent = std::bit_width(value) - 1;  // >= kSubBits + 1
  const int shift = exponent - kSubBits;
  const size_t sub = (value >> shift) & ((1u << kSubBits) - 1);
  return kExact + (static_cast<size_t>(shift - 1) << kSubBits) + sub;
}

uint64_t Histogram::ValueOf(size_t bucket) {
  if (bucket < kExact) return bucket;
  const size_t rest = bucket - kExact;
  const int shift = static_cast<int>(rest >> kSubBits) + 1;
  const uint64_t sub = rest & ((1u << kSubBits) - 1);
  const uint64_t low = ((1ULL << kSubBits) + sub) << shift;
  return low + (1ULL << (shift - 1));
}

void Histogram::Add(uint64_t value, uint64_t count) {
  if (count == 0) return;
  const size_t bucket = BucketOf(value);
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  buckets_[bucket] += count;
  count_ += count;
}

void Histogram::Merge(const Histogram& other) {
  if (other.buckets_.size() > buckets_.size())
    buckets_.resize(other.buckets_.size());
  for (size_t i = 0; i < other.buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

uint64_t Histogram::Quantile(double q, uint64_t max) const {
  if (count_ == 0) return 0;
  if (count_ == 1 && max != UINT64_MAX) return max;
  const double exact_rank =
      std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count_));
  // Above 2^53 the double may exceed the count by its rounding.
  const uint64_t rank =
      exact_rank >= static_cast<double>(count_)
          ? count_
          : std::max<uint64_t>(1, static_cast<uint64_t>(exact_rank));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(ValueOf(i), max);
  }
  return std::min(ValueOf(buckets_.size() - 1), max);
}

std::string Histogram::Serialize() const {
  std::string out;
  uint8_t buffer[2 * kMaxVarintBytes];
  size_t next = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    uint8_t* end = PutVarint(PutVarint(buffer, i - next), buckets_[i]);
    out.append(reinterpret_cast<const char*>(buffer), end - buffer);
    next = i + 1;
  }
  return out;
}

Result<Histogram> Histogram::Parse(std::string_view bytes) {
  Histogram h;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint8_t* end = p + bytes.size();
  size_t next = 0;
  while (p < end) {
    uint64_t gap = 0, count = 0;
    p = GetVarint(p, end, &gap);
    if (p != nullptr) p = GetVarint(p, end, &count);
    if (p == nullptr) return Status::Error("histogram: cut off");
    if (gap >= kBuckets - next || count == 0 || count > UINT64_MAX - h.count_)
      return Status::Error("histogram: value out of range");
    const size_t bucket = next + gap;
    h.buckets_.resize(bucket + 1);
    h.buckets_[bucket] = count;
    h.count_ += count;
    next = bucket + 1;
  }
  return h;
}

}  // namespace ingero
