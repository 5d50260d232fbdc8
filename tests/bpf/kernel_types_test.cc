// SPDX-License-Identifier: Apache-2.0
// Every kernel struct, field and enumerator that our BPF objects name exists
// in the running kernel: the price of hand-picked types.
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "bpf/objects.h"

namespace {

struct Embedded {
  const char* name;
  const unsigned char *begin, *end;
};
const Embedded kObjects[] = {
    {"sched", ingero_bpf_sched, ingero_bpf_sched_end},
    {"process", ingero_bpf_process, ingero_bpf_process_end},
    {"memory", ingero_bpf_memory, ingero_bpf_memory_end},
};

// Types that only some kernels have: guarded, or used by a program that is
// one of several alternatives.
bool IsOptional(std::string_view name) {
  return name.find("___") != std::string_view::npos || name == "pcpu_hot";
}

bool IsOurs(std::string_view name) {
  return name.empty() || name.starts_with("ingero_") ||
         name.starts_with("bpf_map_");
}

// Looks into anonymous members too, as CO-RE does.
bool HasMember(const btf* kernel, const btf_type* type, const char* name) {
  const btf_member* m = btf_members(type);
  for (int i = 0; i < btf_vlen(type); ++i, ++m) {
    const char* member = btf__name_by_offset(kernel, m->name_off);
    if (std::strcmp(member, name) == 0) return true;
    if (*member != '\0') continue;
    const int id = btf__resolve_type(kernel, m->type);
    const btf_type* inner = btf__type_by_id(kernel, static_cast<__u32>(id));
    if (inner != nullptr && btf_is_composite(inner) &&
        HasMember(kernel, inner, name))
      return true;
  }
  return false;
}

TEST(KernelTypesTest, EveryNamedFieldExistsInTheRunningKernel) {
  btf* kernel = btf__load_vmlinux_btf();
  if (kernel == nullptr) GTEST_SKIP() << "no /sys/kernel/btf/vmlinux here";
  int fields = 0;
  for (const Embedded& e : kObjects) {
    bpf_object* object = bpf_object__open_mem(
        e.begin, static_cast<size_t>(e.end - e.begin), nullptr);
    ASSERT_NE(object, nullptr) << e.name;
    const btf* ours = bpf_object__btf(object);
    for (__u32 id = 1; id < btf__type_cnt(ours); ++id) {
      const btf_type* t = btf__type_by_id(ours, id);
      const char* name = btf__name_by_offset(ours, t->name_off);
      if (!(btf_is_composite(t) || btf_is_enum(t)) || IsOurs(name) ||
          IsOptional(name))
        continue;
      const int found = btf__find_by_name_kind(kernel, name, btf_kind(t));
      ASSERT_GT(found, 0) << e.name << ": the kernel has no " << name;
      const btf_type* k = btf__type_by_id(kernel, static_cast<__u32>(found));
      if (btf_is_enum(t)) {
        for (int i = 0; i < btf_vlen(t); ++i) {
          const char* value =
              btf__name_by_offset(ours, btf_enum(t)[i].name_off);
          bool exists = false;
          for (int j = 0; j < btf_vlen(k); ++j)
            exists |= std::strcmp(btf__name_by_offset(
                                      kernel, btf_enum(k)[j].name_off),
                                  value) == 0;
          EXPECT_TRUE(exists) << name << " lacks " << value;
          ++fields;
        }
        continue;
      }
      for (int i = 0; i < btf_vlen(t); ++i) {
        const char* member =
            btf__name_by_offset(ours, btf_members(t)[i].name_off);
        EXPECT_TRUE(HasMember(kernel, k, member))
            << e.name << ": struct " << name << " lacks " << member;
        ++fields;
      }
    }
    bpf_object__close(object);
  }
  btf__free(kernel);
  EXPECT_GT(fields, 30) << "the objects' BTF was not read";
}

}  // namespace
