/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The compiled BPF objects, one per topic: [name, name_end). See objects.S. */
#ifndef INGERO_BPF_OBJECTS_H
#define INGERO_BPF_OBJECTS_H

#ifdef __cplusplus
extern "C" {
#endif

extern const unsigned char ingero_bpf_sched[], ingero_bpf_sched_end[];
extern const unsigned char ingero_bpf_waking_count[];
extern const unsigned char ingero_bpf_waking_count_end[];
extern const unsigned char ingero_bpf_waking_hot[], ingero_bpf_waking_hot_end[];
extern const unsigned char ingero_bpf_process[], ingero_bpf_process_end[];
extern const unsigned char ingero_bpf_memory[], ingero_bpf_memory_end[];

#ifdef __cplusplus
}
#endif

#endif /* INGERO_BPF_OBJECTS_H */
