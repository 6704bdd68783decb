// What the programs use of the kernel. Nothing of its own headers is included: of a structure only the
// members of interest are declared, and the loader finds out where they are in the kernel at hand.

#include <stdbool.h>

typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define FIELD(name, value) int(*name)[value]

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#ifdef X86
struct pt_regs {
    unsigned long di, si, dx, r10, r8, r9, bx, cx, bp, orig_ax;
};
struct thread_info {
    u32 status;
};
#else
struct pt_regs {
    u64 regs[31], orig_x0;
    s32 syscallno;
};
struct thread_info {
    unsigned long flags;
};
#endif
struct upid {
    s32 nr;
};
struct pid {
    u32 level;
    struct upid numbers[1];
};
struct sigpending {
    struct {
        unsigned long sig[1];
    } signal;
};
struct mm_struct {
    unsigned long arg_start, arg_end;
};
struct linux_binprm {
    const char *filename;
};
struct task_struct {
    struct thread_info thread_info;
    struct pid *thread_pid;
    struct mm_struct *mm;
    struct sigpending pending;
};
#pragma clang attribute pop

// Bytes from one number of a `struct pid` to the next: an id and a pointer.
enum { UPID_BYTES = 16 };
enum { CLONE_THREAD = 0x10000 };
enum { SIGNAL_KILL = 9 };

// Functions of the kernel's, by its numbers: bpf-helpers(7).
static void *(*const bpf_map_lookup_elem)(void *, const void *) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static s64 (*const bpf_probe_read_user)(void *, u32, u64) = (void *)112;
static s64 (*const bpf_probe_read_kernel)(void *, u32, const void *) = (void *)113;
static s64 (*const bpf_probe_read_user_str)(void *, u32, u64) = (void *)114;
static s64 (*const bpf_probe_read_kernel_str)(void *, u32, const void *) = (void *)115;
static s64 (*const bpf_get_ns_current_pid_tgid)(u64, u64, void *, u32) = (void *)120;
static s64 (*const bpf_ringbuf_output)(void *, void *, u64, u64) = (void *)130;
static u64 (*const bpf_ringbuf_query)(void *, u64) = (void *)134;
static void *(*const bpf_task_storage_get)(void *, struct task_struct *, void *, u64) = (void *)156;
static s64 (*const bpf_task_storage_delete)(void *, struct task_struct *) = (void *)157;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

enum { MAP_PER_CPU_ARRAY = 6, MAP_RING = 27, MAP_TASK_STORAGE = 29 };
enum { NO_PREALLOCATION = 1, CREATE = 1 };
enum { NO_WAKEUP = 1, FORCE_WAKEUP = 2, AVAILABLE = 0 };
