// SPDX-License-Identifier: Apache-2.0
// A mergeable histogram of durations: log-linear buckets, 32 per octave, so a
// quantile is off by at most 1/64 of its value (bucket midpoint). Values below
// 64 are exact. Sparse when serialized (varint bucket gaps and counts).
// The layout is HdrHistogram's (fixed-point log-linear), precision 5 bits.
#ifndef INGERO_BASE_HISTOGRAM_H_
#define INGERO_BASE_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ingero {

class Histogram {
 public:
  void Add(uint64_t value, uint64_t count = 1);
  void Merge(const Histogram& other);
  uint64_t count() const { return count_; }
  // Value at quantile q in [0, 1]; 0 when empty. Not above `max`, for who
  // knows the largest value (a bucket's midpoint can lie above all in it), and
  // just that where it is the only one.
  uint64_t Quantile(double q, uint64_t max = UINT64_MAX) const;
  std::string Serialize() const;
  static Result<Histogram> Parse(std::string_view bytes);

  static size_t BucketOf(uint64_t value);
  // Midpoint of a bucket.
  static uint64_t ValueOf(size_t bucket);

 private:
  std::vector<uint64_t> buckets_;  // grows to the highest bucket in use
  uint64_t count_ = 0;
};

}  // namespace ingero

#endif  // INGERO_BASE_HISTOGRAM_H_
