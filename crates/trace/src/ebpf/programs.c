// Five programs in the kernel that note the calls of a command and of all that comes from it.
//
// The first process that the recorder makes is followed, and whatever a followed thread makes. What is
// known of a thread lies with the thread itself: the calls of all others cost one look. Records are
// those of the other back ends, see `stub::layout`, in nanoseconds of the monotonic clock.

#include "kernel.h"

char terms[] SECTION("license") = "Dual MIT/GPL";

// ---- What the recorder says before it loads the programs.

enum { ABIS = 3, NUMBERS = 1024 };
// What a call's shape says: whether it is noted; whether only the commands that duplicate a descriptor
// are; and in three bits each which arguments are names, counted from 1.
enum { NOTED = 0x8000, ONLY_DUPLICATES = 0x4000, PLACE_BITS = 3, PLACE_MASK = 7 };

const volatile u16 shapes[ABIS * NUMBERS];
// The recorder's process, as the processes of its namespace call it.
const volatile u32 recorder;
const volatile u64 namespace_device;
const volatile u64 namespace_inode;

// ---- What it asks for while they run.

volatile struct {
    u64 followed; // threads that live
    u64 lost;     // records that there was no room for
} totals;

// ---- Records.

// The longest is the kernel's, NUL and all, and some more to tell it from a longer one.
enum { NAME_USUAL = 256, NAME_LONGEST = 4096 + 8 };
enum { FORK = 0x30001, EXIT = 0x30002, PROGRAM = 0x30003 };

struct record {
    u32 size, number, thread, unused;
    u64 started, ended;
    s64 result;
    u32 arguments[4];
};

struct call {
    struct record record;
    char names[2 * NAME_USUAL];
};

struct long_call {
    struct record record;
    char names[2 * NAME_LONGEST];
};

struct {
    FIELD(type, MAP_RING);
    FIELD(max_entries, 1 << 24);
} ring SECTION(".maps");

// The recorder looks by itself so often that it is woken only where it seems to be late.
enum { WAKE_BYTES = 1 << 22 };

INLINE void output(struct record *record, u64 size) {
    record->size = size;
    u64 wakeup = bpf_ringbuf_query(&ring, AVAILABLE) < WAKE_BYTES ? NO_WAKEUP : FORCE_WAKEUP;
    if (bpf_ringbuf_output(&ring, record, size, wakeup)) __sync_fetch_and_add(&totals.lost, 1);
}

INLINE void output_notice(u32 number, u32 thread, u32 first, u32 second) {
    u64 now = bpf_ktime_get_ns();
    struct record notice = {
        .number = number, .thread = thread, .started = now, .ended = now, .arguments = {first, second}
    };
    output(&notice, sizeof notice);
}

// ---- Threads.

// What a thread does: nothing, a call that is not noted, one that is, or the rest of one that has made
// it another program and was noted then.
enum state { IDLE, UNNOTED, NOTING, BECAME };

struct thread {
    u32 id;    // as the recorder's namespace has it
    u32 level; // of that namespace
    u32 state;
    u32 shape;
    u32 names_bytes;
    bool is_long;    // the names are in `long_calls`
    bool is_missing; // a name could not be read yet
    u64 arguments[8];
    struct call call;
};

struct {
    FIELD(type, MAP_TASK_STORAGE);
    FIELD(map_flags, NO_PREALLOCATION);
    s32 *key;
    struct thread *value;
} threads SECTION(".maps");

// Only for the time of a call whose names are longer than usual.
struct {
    FIELD(type, MAP_TASK_STORAGE);
    FIELD(map_flags, NO_PREALLOCATION);
    s32 *key;
    struct long_call *value;
} long_calls SECTION(".maps");

INLINE u32 id_at(struct task_struct *task, u32 level) {
    s32 id = 0;
    const char *numbers = (const char *)&task->thread_pid->numbers[0];
    bpf_probe_read_kernel(&id, sizeof id, numbers + level * UPID_BYTES);
    return id;
}

// ---- Names.

// Reads the names one behind the other, each with its NUL; a name that cannot be read, or that is too
// long for the kernel as well, is empty. Answers with their bytes.
INLINE u32 read_names(struct thread *thread, char *names, u32 longest) {
    u32 shape = thread->shape, bytes = 0;
    thread->is_missing = thread->is_long = false;
#pragma unroll
    for (int i = 0; i < 2; i++, shape >>= PLACE_BITS) {
        u32 place = shape & PLACE_MASK;
        if (place == 0) break;
        u64 address = thread->arguments[place - 1];
        s64 read = address ? bpf_probe_read_user_str(names + bytes, longest, address) : 0;
        thread->is_missing |= read < 0;
        thread->is_long |= read == longest;
        if (read <= 0 || read >= longest) {
            names[bytes] = 0;
            read = 1;
        }
        bytes += read;
    }
    return bytes;
}

static void note_names(struct task_struct *task, struct thread *thread) {
    thread->names_bytes = read_names(thread, thread->call.names, NAME_USUAL);
    if (!thread->is_long) return;
    struct long_call *call = bpf_task_storage_get(&long_calls, task, 0, CREATE);
    if (!call) {
        __sync_fetch_and_add(&totals.lost, 1);
        thread->is_long = false;
        return;
    }
    thread->names_bytes = read_names(thread, call->names, NAME_LONGEST);
    thread->is_long = true;
}

// ---- Calls.

#ifdef X86
enum { IS_COMPATIBLE = 2, X32_BIT = 0x40000000 };

INLINE bool is_compatible(struct task_struct *task) { return task->thread_info.status & IS_COMPATIBLE; }

INLINE u32 number_of(struct pt_regs *registers) { return registers->orig_ax; }

INLINE void take_arguments(struct pt_regs *registers, bool is_compatible, u64 *to) {
    if (is_compatible) {
        to[0] = (u32)registers->bx, to[1] = (u32)registers->cx, to[2] = (u32)registers->dx;
        to[3] = (u32)registers->si, to[4] = (u32)registers->di, to[5] = (u32)registers->bp;
    } else {
        to[0] = registers->di, to[1] = registers->si, to[2] = registers->dx;
        to[3] = registers->r10, to[4] = registers->r8, to[5] = registers->r9;
    }
}
#else
enum { IS_COMPATIBLE = 1 << 22, X32_BIT = 0 };

INLINE bool is_compatible(struct task_struct *task) { return task->thread_info.flags & IS_COMPATIBLE; }

INLINE u32 number_of(struct pt_regs *registers) { return registers->syscallno; }

INLINE void take_arguments(struct pt_regs *registers, bool is_compatible, u64 *to) {
    // The result takes the place of the first.
    to[0] = registers->orig_x0, to[1] = registers->regs[1], to[2] = registers->regs[2];
    to[3] = registers->regs[3], to[4] = registers->regs[4], to[5] = registers->regs[5];
}
#endif

// A call begins. Answers with whether it is noted.
static bool begin(struct task_struct *task, struct thread *thread, struct pt_regs *registers) {
    bool compatible = is_compatible(task);
    u32 number = number_of(registers), abi = compatible;
    if (!compatible && number & X32_BIT) {
        number &= ~X32_BIT;
        abi = 2;
    }
    if (number >= NUMBERS) return false;
    u32 shape = shapes[abi * NUMBERS + number];
    if (!shape) return false;
    take_arguments(registers, compatible, thread->arguments);
    u32 command = thread->arguments[1];
    if (shape & ONLY_DUPLICATES && command != 0 && command != 1030) return false;
    thread->shape = shape;
    struct record *record = &thread->call.record;
    record->number = abi << 16 | number;
    record->thread = thread->id;
    for (int i = 0; i < 4; i++) record->arguments[i] = thread->arguments[i];
    note_names(task, thread);
    record->started = bpf_ktime_get_ns();
    return true;
}

// A call has ended.
static int finish(struct task_struct *task, struct thread *thread, s64 result) {
    struct record *record = &thread->call.record;
    record->result = result;
    record->ended = bpf_ktime_get_ns();
    u64 size = sizeof *record + thread->names_bytes;
    if (!thread->is_long) {
        output(record, size > sizeof thread->call ? sizeof thread->call : size);
        return 0;
    }
    struct long_call *call = bpf_task_storage_get(&long_calls, task, 0, 0);
    if (!call) return 0;
    call->record = *record;
    output(&call->record, size > sizeof *call ? sizeof *call : size);
    bpf_task_storage_delete(&long_calls, task);
    return 0;
}

SECTION("tp_btf/sys_enter")
int call_begins(u64 *context) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread) thread->state = begin(task, thread, (struct pt_regs *)context[0]) ? NOTING : UNNOTED;
    return 0;
}

SECTION("tp_btf/sys_exit")
int call_ends(u64 *context) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread) return 0;
    u32 state = thread->state;
    thread->state = IDLE;
    if (state == UNNOTED || state == BECAME) return 0;
    // A filter has refused the call before it began.
    if (state == IDLE && !begin(task, thread, (struct pt_regs *)context[0])) return 0;
    // Killed meanwhile: the program never learns the result, and no tracer sees it.
    if (task->pending.signal.sig[0] & 1UL << (SIGNAL_KILL - 1)) return 0;
    // The call itself has brought the name into memory, or could not read it either.
    if (thread->is_missing) note_names(task, thread);
    return finish(task, thread, context[1]);
}

// ---- Threads and programs come and go.

// Whether this is the recorder's own process, which makes one other.
INLINE bool is_recorder(void) {
    struct { u32 thread, process; } ids = {};
    bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &ids, sizeof ids);
    return ids.process == recorder;
}

SECTION("tp_btf/task_newtask")
int thread_begins(u64 *context) {
    struct task_struct *task = (struct task_struct *)context[0], *maker = bpf_get_current_task_btf();
    u32 flags = context[1];
    struct thread *parent = bpf_task_storage_get(&threads, maker, 0, 0);
    if (!parent && (flags & CLONE_THREAD || !is_recorder())) return 0;
    struct thread *child = bpf_task_storage_get(&threads, task, 0, CREATE);
    if (!child) {
        __sync_fetch_and_add(&totals.lost, 1);
        return 0;
    }
    if (parent)
        child->level = parent->level;
    else
        bpf_probe_read_kernel(&child->level, sizeof child->level, &maker->thread_pid->level);
    child->id = id_at(task, child->level);
    __sync_fetch_and_add(&totals.followed, 1);
    if (parent) output_notice(FORK, parent->id, child->id, flags);
    return 0;
}

SECTION("tp_btf/sched_process_exit")
int thread_ends(u64 *context) {
    struct task_struct *task = (struct task_struct *)context[0];
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread) return 0;
    output_notice(EXIT, thread->id, 0, 0);
    __sync_fetch_and_sub(&totals.followed, 1);
    return 0;
}

// Room for the arguments of a program.
struct program {
    struct record record;
    char arguments[NAME_LONGEST];
};

struct {
    FIELD(type, MAP_PER_CPU_ARRAY);
    FIELD(max_entries, 1);
    u32 *key;
    struct program *value;
} programs SECTION(".maps");

static void note_program(struct task_struct *task, struct thread *thread) {
    u32 first = 0;
    struct program *program = bpf_map_lookup_elem(&programs, &first);
    if (!program) return;
    u64 start = task->mm->arg_start, bytes = task->mm->arg_end - start;
    if (bytes >= NAME_LONGEST) bytes = NAME_LONGEST - 1;
    if (bpf_probe_read_user(program->arguments, bytes, start)) bytes = 0;
    u64 now = bpf_ktime_get_ns();
    u32 before = thread->id;
    // A thread that becomes a program takes over the id of its process.
    thread->id = id_at(task, thread->level);
    program->record = (struct record){
        .number = PROGRAM, .thread = thread->id, .started = now, .ended = now, .arguments = {before, bytes}
    };
    output(&program->record, sizeof program->record + bytes);
}

SECTION("tp_btf/sched_process_exec")
int program_begins(u64 *context) {
    struct task_struct *task = (struct task_struct *)context[0];
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread) return 0;
    if (thread->state == NOTING) {
        if (thread->is_missing) {
            // The memory in which it lay is gone.
            struct linux_binprm *program = (struct linux_binprm *)context[2];
            s64 read = bpf_probe_read_kernel_str(thread->call.names, NAME_USUAL, program->filename);
            thread->names_bytes = read > 0 ? read : 0;
        }
        finish(task, thread, 0);
    }
    thread->state = BECAME;
    note_program(task, thread);
    return 0;
}
