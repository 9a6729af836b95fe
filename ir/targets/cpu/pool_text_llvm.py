"""The text of the thread pool as LLVM IR, with @MARKS@ that `pool` fills in and explains."""

LLVM = """\
; Tilewright thread pool. Workers persist and are pinned; idle, they spin, yield, nap, and at last
; sleep until woken. Told to rest, they sleep at once.
%team = type [832 x i8]

@tilewright_team = weak global %team zeroinitializer, align 64
@tilewright_lock = weak global i64 0, align 64
@tilewright_started = weak global i64 0
@tilewright_process = weak global i64 0
@tilewright_parked = weak global i64 0, align 64
@tilewright_resting = weak global i64 0, align 64
@tilewright_mutex = weak global [128 x i8] zeroinitializer, align 64
@tilewright_wakeup = weak global [128 x i8] zeroinitializer, align 64
@tilewright_cpus = weak global [128 x i8] zeroinitializer, align 64
@tilewright_cpu_count = weak global i64 0
@tilewright_spins = weak global i64 @SPINS@, align 64

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@DECLARE_PAUSE@
declare i32 @getpid()
declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare void @abort()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
@DECLARE_AFFINITY@

; Waits a little: pauses at first, later gives the processor away.
define weak void @tilewright_relax(i64 %spins) {
entry:
  %limit = load i64, ptr @tilewright_spins
  %early = icmp ult i64 %spins, %limit
  br i1 %early, label %spin, label %yield
spin:
  @PAUSE@
  ret void
yield:
  %ignored = call i32 @sched_yield()
  ret void
}

; Sleeps until the launch word differs from %seen. The launcher stores the word before it reads
; @tilewright_parked, we count ourselves parked before we read the word: one of us sees the other.
define weak void @tilewright_park(i64 %seen) {
entry:
  %lock = call i32 @pthread_mutex_lock(ptr @tilewright_mutex)
  %before = atomicrmw add ptr @tilewright_parked, i64 1 seq_cst
  br label %look
look:
  %word = load atomic i64, ptr @tilewright_team seq_cst, align 64
  %same = icmp eq i64 %word, %seen
  br i1 %same, label %sleep, label %leave
sleep:
  %woken = call i32 @pthread_cond_wait(ptr @tilewright_wakeup, ptr @tilewright_mutex)
  br label %look
leave:
  %after = atomicrmw sub ptr @tilewright_parked, i64 1 seq_cst
  %unlock = call i32 @pthread_mutex_unlock(ptr @tilewright_mutex)
  ret void
}
@PIN@
define weak ptr @tilewright_worker(ptr %argument) {
entry:
  %index = ptrtoint ptr %argument to i64
  call void @tilewright_pin(i64 %index)
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %seen, %again ], [ %word, %idle ], [ %word, %work ]
  %spins = phi i64 [ 0, %entry ], [ %next, %again ], [ %spins, %idle ], [ 0, %work ]
  %word = load atomic i64, ptr @tilewright_team acquire, align 64
  %same = icmp eq i64 %word, %seen
  br i1 %same, label %relax, label %launched
relax:
  %next = add i64 %spins, 1
  %resting = load atomic i64, ptr @tilewright_resting acquire, align 64
  %rests = icmp ne i64 %resting, 0
  br i1 %rests, label %park, label %waiting
waiting:
  %awake = icmp ult i64 %spins, @AWAKE@
  br i1 %awake, label %stay, label %tired
stay:
  call void @tilewright_relax(i64 %spins)
  br label %again
tired:
  %patient = icmp ult i64 %spins, @PATIENCE@
  br i1 %patient, label %nap, label %park
nap:
  %napped = call i32 @usleep(i32 50)
  br label %again
park:
  call void @tilewright_park(i64 %seen)
  br label %again
again:
  br label %wait
launched:
  %threads = and i64 %word, 65535
  %mine = icmp ult i64 %index, %threads
  br i1 %mine, label %work, label %idle
idle:
  br label %wait
work:
  %body = load ptr, ptr getelementptr (i8, ptr @tilewright_team, i64 8)
  %args = load ptr, ptr getelementptr (i8, ptr @tilewright_team, i64 16)
  call void %body(i64 %index, i64 %threads, ptr %args, ptr @tilewright_team)
  %left = atomicrmw sub ptr getelementptr (i8, ptr @tilewright_team, i64 64), i64 1 release
  br label %wait
}

; Starts workers until %threads can run, and returns how many can. Called under the lock.
; A forked child has none of its parent's workers, and begins anew.
define weak i64 @tilewright_ensure(i64 %threads) {
entry:
  %handle = alloca i64
  %pid32 = call i32 @getpid()
  %pid = zext i32 %pid32 to i64
  %owner = load i64, ptr @tilewright_process
  %known = icmp eq i64 %pid, %owner
  br i1 %known, label %grow, label %reset
reset:
  store i64 %pid, ptr @tilewright_process
  store i64 0, ptr @tilewright_started
  store i64 0, ptr @tilewright_parked
  call void @llvm.memset.p0.i64(ptr align 64 @tilewright_team, i8 0, i64 832, i1 false)
  %mutex = call i32 @pthread_mutex_init(ptr @tilewright_mutex, ptr null)
  %cond = call i32 @pthread_cond_init(ptr @tilewright_wakeup, ptr null)
  call void @tilewright_find_cpus()
  br label %grow
grow:
  %cpus = load i64, ptr @tilewright_cpu_count
  %room = icmp ule i64 %threads, %cpus
  %unknown = icmp eq i64 %cpus, 0
  %patient = or i1 %room, %unknown
  %limit = select i1 %patient, i64 @SPINS@, i64 @CROWDED_SPINS@
  store i64 %limit, ptr @tilewright_spins
  br label %count
count:
  %started = load i64, ptr @tilewright_started
  %index = add i64 %started, 1
  %enough = icmp uge i64 %index, %threads
  br i1 %enough, label %done, label %create
create:
  %argument = inttoptr i64 %index to ptr
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @tilewright_worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %created, label %short
created:
  %thread = load i64, ptr %handle
  %detached = call i32 @pthread_detach(i64 %thread)
  store i64 %index, ptr @tilewright_started
  br label %count
short:
  ret i64 %index
done:
  ret i64 %threads
}

define weak void @tilewright_acquire() {
entry:
  br label %try
try:
  %spins = phi i64 [ 0, %entry ], [ %next, %wait ]
  %held = atomicrmw xchg ptr @tilewright_lock, i64 1 acquire
  %free = icmp eq i64 %held, 0
  br i1 %free, label %done, label %wait
wait:
  %next = add i64 %spins, 1
  call void @tilewright_relax(i64 %spins)
  br label %try
done:
  ret void
}

; Runs body(thread, threads, args, team) on %threads threads; the caller is thread 0.
define weak void @tilewright_launch(ptr %body, ptr %args, i64 %wanted) {
entry:
  %alone = icmp ule i64 %wanted, 1
  br i1 %alone, label %single, label %many
single:
  %own = alloca %team, align 64
  call void @llvm.memset.p0.i64(ptr align 64 %own, i8 0, i64 832, i1 false)
  %own.threads = getelementptr i8, ptr %own, i64 256
  store i64 1, ptr %own.threads
  call void %body(i64 0, i64 1, ptr %args, ptr %own)
  ret void
many:
  call void @tilewright_acquire()
  %threads = call i64 @tilewright_ensure(i64 %wanted)
  call void @tilewright_part(i64 %threads)
  %workers = sub i64 %threads, 1
  store ptr %body, ptr getelementptr (i8, ptr @tilewright_team, i64 8)
  store ptr %args, ptr getelementptr (i8, ptr @tilewright_team, i64 16)
  store i64 %workers, ptr getelementptr (i8, ptr @tilewright_team, i64 64)
  store i64 %threads, ptr getelementptr (i8, ptr @tilewright_team, i64 256)
  call void @llvm.memset.p0.i64(ptr align 64 getelementptr (i8, ptr @tilewright_team, i64 320),
                                i8 0, i64 512, i1 false)
  %old = load i64, ptr @tilewright_team
  %number = lshr i64 %old, 16
  %number.next = add i64 %number, 1
  %shifted = shl i64 %number.next, 16
  %word = or i64 %shifted, %threads
  store atomic i64 0, ptr @tilewright_resting release, align 64
  store atomic i64 %word, ptr @tilewright_team seq_cst, align 64
  %parked = load atomic i64, ptr @tilewright_parked seq_cst, align 64
  %asleep = icmp ne i64 %parked, 0
  br i1 %asleep, label %wake, label %run
wake:
  %lock = call i32 @pthread_mutex_lock(ptr @tilewright_mutex)
  %told = call i32 @pthread_cond_broadcast(ptr @tilewright_wakeup)
  %unlock = call i32 @pthread_mutex_unlock(ptr @tilewright_mutex)
  br label %run
run:
  call void %body(i64 0, i64 %threads, ptr %args, ptr @tilewright_team)
  br label %join
join:
  %spins = phi i64 [ 0, %run ], [ %next, %wait ]
  %running = load atomic i64, ptr getelementptr (i8, ptr @tilewright_team, i64 64) acquire, align 64
  %finished = icmp eq i64 %running, 0
  br i1 %finished, label %done, label %wait
wait:
  %next = add i64 %spins, 1
  call void @tilewright_relax(i64 %spins)
  br label %join
done:
  store atomic i64 0, ptr @tilewright_lock release, align 64
  ret void
}

; Puts all workers to sleep until the next launch, and returns when they are: for whoever wants the
; processors for something else. A forked child has no workers.
define weak void @tilewright_rest() {
entry:
  %pid32 = call i32 @getpid()
  %pid = zext i32 %pid32 to i64
  %owner = load i64, ptr @tilewright_process
  %known = icmp eq i64 %pid, %owner
  br i1 %known, label %tell, label %none
none:
  ret void
tell:
  call void @tilewright_acquire()
  store atomic i64 1, ptr @tilewright_resting seq_cst, align 64
  %started = load i64, ptr @tilewright_started
  br label %look
look:
  %spins = phi i64 [ 0, %tell ], [ %next, %wait ]
  %parked = load atomic i64, ptr @tilewright_parked seq_cst, align 64
  %asleep = icmp uge i64 %parked, %started
  br i1 %asleep, label %done, label %wait
wait:
  %next = add i64 %spins, 1
  call void @tilewright_relax(i64 %spins)
  br label %look
done:
  store atomic i64 0, ptr @tilewright_lock release, align 64
  ret void
}

; A body that does nothing: launching it starts the workers.
define weak void @tilewright_idle(i64 %thread, i64 %threads, ptr %args, ptr %team) {
  ret void
}

; %times launches, one after the other: what the timer calls for kernels of microseconds.
define weak void @tilewright_repeat(ptr %body, ptr %args, i64 %threads, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @tilewright_launch(ptr %body, ptr %args, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}

; All threads of the team meet here. The last to arrive opens the next generation.
define weak void @tilewright_barrier(ptr %team) {
entry:
  %threads.at = getelementptr i8, ptr %team, i64 256
  %arrived.at = getelementptr i8, ptr %team, i64 128
  %generation.at = getelementptr i8, ptr %team, i64 192
  %threads = load i64, ptr %threads.at
  %alone = icmp ule i64 %threads, 1
  br i1 %alone, label %done, label %arrive
arrive:
  %generation = load atomic i64, ptr %generation.at monotonic, align 64
  %before = atomicrmw add ptr %arrived.at, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %last = icmp eq i64 %arrived, %threads
  br i1 %last, label %open, label %look
open:
  store atomic i64 0, ptr %arrived.at monotonic, align 64
  %generation.next = add i64 %generation, 1
  store atomic i64 %generation.next, ptr %generation.at release, align 64
  ret void
look:
  %spins = phi i64 [ 0, %arrive ], [ %next, %wait ]
  %now = load atomic i64, ptr %generation.at acquire, align 64
  %closed = icmp eq i64 %now, %generation
  br i1 %closed, label %wait, label %done
wait:
  %next = add i64 %spins, 1
  call void @tilewright_relax(i64 %spins)
  br label %look
done:
  ret void
}

; The next number of counter %slot (0 to 63): how threads share chunks out among themselves.
define weak i64 @tilewright_ticket(ptr %team, i64 %slot) {
entry:
  %tickets = getelementptr i8, ptr %team, i64 320
  %at = getelementptr i64, ptr %tickets, i64 %slot
  %number = atomicrmw add ptr %at, i64 1 acq_rel
  ret i64 %number
}

; Scratch memory of an exported entry: taken out of its slot, so that concurrent calls never share
; it, and given back, so that its pages are touched once. Large blocks lie on huge pages.
define weak ptr @tilewright_scratch_take(ptr %slot, i64 %bytes) {
entry:
  %at = alloca ptr
  %kept = atomicrmw xchg ptr %slot, ptr null acquire
  %have = icmp ne ptr %kept, null
  br i1 %have, label %found, label %allocate
found:
  ret ptr %kept
allocate:
  %large = icmp uge i64 %bytes, 2097152
  %alignment = select i1 %large, i64 2097152, i64 64
  %failed = call i32 @posix_memalign(ptr %at, i64 %alignment, i64 %bytes)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %advise, label %fail
advise:
  %fresh = load ptr, ptr %at
  @ADVISE@
  ret ptr %fresh
fail:
  call void @abort()
  unreachable
}

define weak void @tilewright_scratch_give(ptr %slot, ptr %block) {
entry:
  %other = atomicrmw xchg ptr %slot, ptr %block acq_rel
  call void @free(ptr %other)
  ret void
}

; A chain of %rounds * 8 pairs of a multiplication (three cycles on current cores) and an exclusive
; or (one cycle), which keeps the code generator from shortening the chain: its time is the clock.
define weak i64 @tilewright_clock_chain(i64 %rounds, i64 %factor) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x0 = phi i64 [ %factor, %entry ], [ %x8, %loop ]
@CHAIN@
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
  ret i64 %x8
}
"""

ADVISE_HUGE_PAGES = "%advised = call i32 @madvise(ptr %fresh, i64 %bytes, i32 14)"
