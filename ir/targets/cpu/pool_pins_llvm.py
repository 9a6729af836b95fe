"""Which processors the pool's threads stay on, as LLVM IR: on Linux, and where nobody can tell.

Part of the text that `pool_text_llvm` has, at its mark @PIN@.
"""

LINUX = """
; Worker i stays on the i-th processor that the process was allowed when the pool started.
define weak void @tilewright_find_cpus() {
entry:
  %ignored = call i32 @sched_getaffinity(i32 0, i64 128, ptr @tilewright_cpus)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %next ]
  %at = getelementptr i64, ptr @tilewright_cpus, i64 %i
  %word = load i64, ptr %at
  %ones = call i64 @llvm.ctpop.i64(i64 %word)
  %sum.next = add i64 %sum, %ones
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 16
  br i1 %more, label %next, label %done
done:
  store i64 %sum.next, ptr @tilewright_cpu_count
  ret void
}

define weak void @tilewright_pin(i64 %index) {
entry:
  %mask = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr align 8 %mask, i8 0, i64 128, i1 false)
  br label %scan
scan:
  %cpu = phi i64 [ 0, %entry ], [ %cpu.next, %advance ]
  %left = phi i64 [ %index, %entry ], [ %left.next, %advance ]
  %byte = lshr i64 %cpu, 3
  %bit64 = and i64 %cpu, 7
  %bit = trunc i64 %bit64 to i8
  %one = shl i8 1, %bit
  %allowed.at = getelementptr i8, ptr @tilewright_cpus, i64 %byte
  %allowed = load i8, ptr %allowed.at
  %hit = and i8 %allowed, %one
  %is.allowed = icmp ne i8 %hit, 0
  %is.last = icmp eq i64 %left, 0
  %take = and i1 %is.allowed, %is.last
  br i1 %take, label %set, label %advance
advance:
  %used = zext i1 %is.allowed to i64
  %left.next = sub i64 %left, %used
  %cpu.next = add i64 %cpu, 1
  %inside = icmp ult i64 %cpu.next, 1024
  br i1 %inside, label %scan, label %done
set:
  %at = getelementptr i8, ptr %mask, i64 %byte
  store i8 %one, ptr %at
  %ignored = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}

; Moves the caller off the processor of a worker that is to run beside it: the system lets two
; threads that never sleep share one for a tenth of a second and more. The caller's rights are as
; before; if it is kept from some of the processors that the pool found, it stays.
define weak void @tilewright_part(i64 %threads) {
entry:
  %mask = alloca [128 x i8], align 8
  %cpu = call i32 @sched_getcpu()
  %known = icmp ult i32 %cpu, 1024
  br i1 %known, label %count, label %done
count:
  %byte32 = lshr i32 %cpu, 3
  %byte = zext i32 %byte32 to i64
  %bit32 = and i32 %cpu, 7
  %bit = trunc i32 %bit32 to i8
  %one = shl i8 1, %bit
  br label %before
before:
  %i = phi i64 [ 0, %count ], [ %i.next, %add ]
  %sum = phi i64 [ 0, %count ], [ %sum.next, %add ]
  %at = getelementptr i8, ptr @tilewright_cpus, i64 %i
  %there = load i8, ptr %at
  %more = icmp ult i64 %i, %byte
  br i1 %more, label %add, label %last
add:
  %ones8 = call i8 @llvm.ctpop.i8(i8 %there)
  %ones = zext i8 %ones8 to i64
  %sum.next = add i64 %sum, %ones
  %i.next = add i64 %i, 1
  br label %before
last:
  %lower = sub i8 %one, 1
  %below = and i8 %there, %lower
  %few8 = call i8 @llvm.ctpop.i8(i8 %below)
  %few = zext i8 %few8 to i64
  %rank = add i64 %sum, %few
  %own = and i8 %there, %one
  %is.own = icmp ne i8 %own, 0
  %is.worker = icmp uge i64 %rank, 1
  %runs = icmp ult i64 %rank, %threads
  %first = and i1 %is.own, %is.worker
  %shared = and i1 %first, %runs
  br i1 %shared, label %ask, label %done
ask:
  call void @llvm.memset.p0.i64(ptr align 8 %mask, i8 0, i64 128, i1 false)
  %told = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %failed = icmp ne i32 %told, 0
  br i1 %failed, label %done, label %compare
compare:
  %j = phi i64 [ 0, %ask ], [ %j.next, %compare.next ]
  %mask.at = getelementptr i64, ptr %mask, i64 %j
  %mine = load i64, ptr %mask.at
  %pool.at = getelementptr i64, ptr @tilewright_cpus, i64 %j
  %pool = load i64, ptr %pool.at
  %kept.from = xor i64 %mine, -1
  %missing = and i64 %pool, %kept.from
  %is.missing = icmp ne i64 %missing, 0
  br i1 %is.missing, label %done, label %compare.next
compare.next:
  %j.next = add i64 %j, 1
  %on = icmp ult i64 %j.next, 16
  br i1 %on, label %compare, label %move
move:
  call void @tilewright_pin(i64 0)
  %back = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}
"""

UNPINNED = """
define weak void @tilewright_find_cpus() {
  ret void
}

define weak void @tilewright_pin(i64 %index) {
  ret void
}

define weak void @tilewright_part(i64 %threads) {
  ret void
}
"""

DECLARATIONS = """\
declare i64 @llvm.ctpop.i64(i64)
declare i8 @llvm.ctpop.i8(i8)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @madvise(ptr, i64, i32)"""
