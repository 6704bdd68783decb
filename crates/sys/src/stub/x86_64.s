# Two pieces of position-independent machine code, copied as bytes into other programs.
#
# The stub makes a system call for the program that it lies in and notes it in memory shared with the
# recorder. A patched call site jumps to it with all registers as at the instruction `syscall`, and in
# rcx the address where the program goes on; like that instruction it changes only rax, rcx and r11
# (and the flags). It may use no vector registers (the program's are live), and not the stack: a
# goroutine's is small, and the stack pointer of a program need not point to memory at all. What it
# needs for itself is saved in the thread's slot.
#
# Names in braces are constants of mod.rs.

    .pushsection .rodata.thruway_stub, "a"
    .balign 64
    .globl thruway_stub, thruway_stub_end
    .globl thruway_stub_load_word, thruway_stub_load_byte, thruway_stub_unreadable
    .globl thruway_stub_called
    .hidden thruway_stub, thruway_stub_end
    .hidden thruway_stub_load_word, thruway_stub_load_byte, thruway_stub_unreadable
    .hidden thruway_stub_called

thruway_stub:
    # The thread's slot: the program's only thread has it in OWNER, others have it in gs, which programs of
    # 64 bits do not use; where one does, the value is no slot's.
    mov     r11, [rip + thruway_stub + {OWNER}]
    test    r11, r11
    jnz     slot_known
    cmp     qword ptr [rip + thruway_stub + {FIRST_SLOT}], 0
    je      stopped
    rdgsbase r11
    test    r11b, (1 << {SLOT_SHIFT}) - 1
    jnz     stopped
    cmp     r11, [rip + thruway_stub + {FIRST_SLOT}]
    jb      stopped
    cmp     r11, [rip + thruway_stub + {LAST_SLOT}]
    ja      stopped
slot_known:
    test    dword ptr [rip + thruway_stub + {STATE}], {CLOSED}
    jnz     closed

    # With a call under way in the slot (this is a signal handler then) the tracer notes the call.
    cmp     qword ptr [r11 + {BUSY}], 0
    jne     stopped
    mov     qword ptr [r11 + {BUSY}], 1
    mov     [r11 + {SAVED_RBP}], rbp
    mov     rbp, r11
    mov     [rbp + {SAVED_BACK}], rcx
    mov     [rbp + {SAVED_R12}], r12
    mov     r12, [rbp + {HEAD}]
    mov     r11d, r12d
    and     r11d, {RING_BYTES} - 1
    cmp     r11d, {RING_BYTES} - {RECORD_MAX}
    jbe     1f
    or      r12, {RING_BYTES} - 1       # it would not fit before the ring's end: go to its start
    inc     r12
1:  mov     r11, r12
    sub     r11, [rbp + {TAIL}]
    cmp     r11, {RING_BYTES} - {RECORD_MAX}
    ja      no_room
    mov     [rbp + {HEAD}], r12
    mov     [rbp + {SAVED_RBX}], rbx
    mov     [rbp + {SAVED_R13}], r13
    mov     [rbp + {SAVED_R14}], r14
    mov     [rbp + {SAVED_R15}], r15
    mov     [rbp + {SAVED_R9}], r9
    mov     [rbp + {SAVED_ARGUMENTS}], rdi
    mov     [rbp + {SAVED_ARGUMENTS} + 8], rsi
    mov     [rbp + {SAVED_ARGUMENTS} + 16], rdx
    mov     [rbp + {SAVED_ARGUMENTS} + 24], r10
    mov     ebx, eax
    lea     r15, [rip + thruway_stub]   # the start of the area
    mov     r13d, r12d
    and     r13d, {RING_BYTES} - 1
    add     r13, [rbp + {RING}]
    add     r13, r15                    # the record

    mov     r14d, [rbp + {OWN_THREAD}]
    mov     [r13 + {NUMBER}], ebx
    mov     [r13 + {THREAD}], r14d
    mov     [r13 + {ARGUMENTS}], edi
    mov     [r13 + {ARGUMENTS} + 4], esi
    mov     [r13 + {ARGUMENTS} + 8], edx
    mov     [r13 + {ARGUMENTS} + 12], r10d

    # The names: the shape holds, in three bits each, which argument points to one.
    lea     r14, [r13 + {NAMES}]
    mov     r9, 0x0101010101010101
    mov     r10, 0x8080808080808080
    movzx   r11d, byte ptr [r15 + rbx + {SHAPES}]
    and     r11d, 63
next_name:
    mov     ecx, r11d
    and     ecx, 7
    jz      named
    mov     rcx, [rbp + rcx * 8 + {SAVED_ARGUMENTS} - 8]
    lea     r12, [r14 + {NAME_MAX}]
    test    rcx, rcx
    jz      thruway_stub_unreadable
next_word:                              # eight bytes at a time, where they lie in one page
    mov     eax, ecx
    and     eax, 4095
    cmp     eax, 4096 - 8
    ja      next_byte
thruway_stub_load_word:
    mov     rax, [rcx]                  # a bad address: the tracer goes on at thruway_stub_unreadable
    mov     [r14], rax
    mov     rdx, rax
    sub     rax, r9
    not     rdx
    and     rax, r10
    and     rax, rdx                    # the lowest bit that is set is the first NUL's
    jnz     word_ends
    add     rcx, 8
    add     r14, 8
    cmp     r14, r12
    jb      next_word
    jmp     name_too_long
word_ends:
    bsf     rax, rax
    shr     eax, 3
    lea     r14, [r14 + rax + 1]
    jmp     name_done
next_byte:
thruway_stub_load_byte:
    mov     al, [rcx]                   # as above
    mov     [r14], al
    inc     rcx
    inc     r14
    test    al, al
    jz      name_done
    cmp     r14, r12
    jb      next_word
name_too_long:                          # the kernel refuses it
    mov     byte ptr [r14 - 1], 0
    jmp     name_done
thruway_stub_unreadable:
    mov     byte ptr [r14], 0
    inc     r14
name_done:
    shr     r11d, 3
    jmp     next_name
named:
    sub     r14, r13
    add     r14, 7
    and     r14, -8
    mov     [r13 + {SIZE}], r14d

    prefetchw [r13 + r14 + 64]          # the next record's lines may be in another processor's cache
    prefetchw [r13 + r14 + 128]
    rdtsc
    shl     rdx, 32
    or      rax, rdx
    mov     [r13 + {STARTED}], rax
    mov     rdx, [rbp + {SAVED_ARGUMENTS} + 16]
    mov     r10, [rbp + {SAVED_ARGUMENTS} + 24]
    mov     eax, ebx
    mov     r9, [r15 + {COOKIE}]        # the filter lets it pass
    syscall
thruway_stub_called:
    mov     [r13 + {RESULT}], rax
    mov     rcx, rax
    rdtsc
    shl     rdx, 32
    or      rax, rdx
    mov     [r13 + {ENDED}], rax
    mov     rax, rcx
    mov     rdx, [rbp + {SAVED_ARGUMENTS} + 16]
    add     [rbp + {HEAD}], r14         # the record counts from here on
    mov     rbx, [rbp + {SAVED_RBX}]
    mov     r13, [rbp + {SAVED_R13}]
    mov     r14, [rbp + {SAVED_R14}]
    mov     r15, [rbp + {SAVED_R15}]
    mov     r12, [rbp + {SAVED_R12}]
leave_stub:
    mov     r9, [rbp + {SAVED_R9}]
    mov     rcx, [rbp + {SAVED_BACK}]
    mov     r11, rbp
    mov     rbp, [r11 + {SAVED_RBP}]
    mov     qword ptr [r11 + {BUSY}], 0 # last: from here on the slot may be used again
    jmp     rcx

    # The recorder has ended: just make the call. Slots are not assigned any more, so two threads may
    # have the same.
closed:
    lock bts qword ptr [r11 + {BUSY}], 0
    jc      stopped
    mov     [r11 + {SAVED_RBP}], rbp
    mov     rbp, r11
    mov     [rbp + {SAVED_BACK}], rcx
    mov     [rbp + {SAVED_R9}], r9
    mov     r9, [rip + thruway_stub + {COOKIE}]
    syscall
    jmp     leave_stub

no_room:
    mov     r12, [rbp + {SAVED_R12}]
    mov     r11, rbp
    mov     rbp, [r11 + {SAVED_RBP}]
    mov     qword ptr [r11 + {BUSY}], 0
    # The site's own `syscall`: the filter stops it, and the tracer notes the call.
stopped:
    sub     rcx, 2
    jmp     rcx
thruway_stub_end:

# The start: run once at the first instruction of a new program. It maps the area and goes on where
# the program would have started, with registers as the kernel leaves them: zero, but for the stack.
    .balign 8
    .globl thruway_start, thruway_start_path, thruway_start_cookie, thruway_start_hint
    .globl thruway_start_near, thruway_start_report, thruway_start_entry, thruway_start_end
    .hidden thruway_start, thruway_start_path, thruway_start_cookie, thruway_start_hint
    .hidden thruway_start_near, thruway_start_report, thruway_start_entry, thruway_start_end

thruway_start:
    lea     rdi, [rip + thruway_start_path]
    mov     esi, {READ_WRITE_CLOEXEC}
    mov     r9, [rip + thruway_start_cookie]
    mov     eax, {OPEN}
    syscall
    test    eax, eax
    js      2f
    mov     ebx, eax
    mov     rdi, [rip + thruway_start_hint]
    mov     esi, {AREA_BYTES}
    mov     edx, {READ_WRITE}
    mov     r10d, {SHARED}
    mov     r8d, ebx
    xor     r9d, r9d
    mov     eax, {MMAP}
    syscall
    cmp     rax, -4096
    ja      1f
    mov     rbp, rax
    mov     rdi, rax
    mov     esi, {PRIVATE_BYTES}
    mov     edx, {READ_EXECUTE}
    mov     r10d, {PRIVATE_FIXED}
    mov     eax, {MMAP}
    syscall
    cmp     rax, rbp
    jne     1f
    mov     rdi, [rip + thruway_start_near]
    test    rdi, rdi
    jz      3f
    mov     r10d, {PRIVATE}             # its private part once more
    mov     eax, {MMAP}
    syscall
    cmp     rax, -4096
    ja      3f
    mov     edx, [rip + thruway_start_report]
    mov     [rbp + rdx + {NEAR} - {BASE}], rax
3:  mov     eax, [rip + thruway_start_report]
    mov     [rbp + rax], rbp            # the tracer learns where the area lies
1:  mov     edi, ebx
    mov     eax, {CLOSE}
    syscall
2:  xor     eax, eax
    xor     ebx, ebx
    xor     ecx, ecx
    xor     edx, edx
    xor     esi, esi
    xor     edi, edi
    xor     ebp, ebp
    xor     r8d, r8d
    xor     r9d, r9d
    xor     r10d, r10d
    xor     r11d, r11d
    jmp     [rip + thruway_start_entry]

    .balign 8
thruway_start_cookie:
    .quad   0
thruway_start_hint:
    .quad   0
thruway_start_near:
    .quad   0
thruway_start_entry:
    .quad   0
thruway_start_report:
    .quad   0
thruway_start_path:
    .zero   {PATH_BYTES}
thruway_start_end:
    .popsection
