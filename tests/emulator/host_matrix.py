"""C++ of the host machine, part 4: number formats, shuffles, matrix copies, mma.sync and wgmma."""

TEXT = r"""
// ---------------------------------------------------------------- number formats
static f32 as_float(u32 bits) {
  f32 v;
  memcpy(&v, &bits, 4);
  return v;
}
static u32 as_bits(f32 v) {
  u32 bits;
  memcpy(&bits, &v, 4);
  return bits;
}
static f32 brain_value(u16 bits) { return as_float((u32)bits << 16); }
static u16 brain_bits(f32 value) {
  if (value != value) return 0x7fff;
  u32 bits = as_bits(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static f32 half_value(u16 bits) {
  u32 sign = (u32)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return as_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return as_float(sign | (exponent + 112) << 23 | fraction << 13);
  f32 small = fraction * 5.9604644775390625e-8f;
  return sign ? -small : small;
}
static u16 half_bits(f32 value) {
  u32 bits = as_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
  if (size > 0x7f800000) return 0x7fff;
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size < 0x38800000) return sign | (u16)lrintf(as_float(size) * 16777216.0f);
  size += 0xfff + (size >> 13 & 1);
  return sign | (size - 0x38000000) >> 13;
}
static f32 eighth_value(u32 bits) {  // e4m3
  u32 exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return NAN;
  f32 size = exponent ? ldexpf(8 + fraction, (int)exponent - 10) : ldexpf(fraction, -9);
  return bits & 0x80 ? -size : size;
}
static u32 eighth_bits(f32 value) {  // nearest even, saturating
  if (value != value) return 0x7f;
  u32 sign = as_bits(value) >> 24 & 0x80;
  f32 size = fabsf(value);
  if (size >= 448) return sign | 0x7e;
  if (size < 0.015625f) return sign | (u32)lrintf(size * 512);
  u32 bits = as_bits(size);
  bits += 0x7ffff + (bits >> 20 & 1);
  return sign | std::min<u32>((bits >> 20) - (120 << 3), 0x7e);
}
extern "C" u32 rt_pack(f32 low, f32 high, int brain) {
  return brain ? brain_bits(low) | (u32)brain_bits(high) << 16
               : half_bits(low) | (u32)half_bits(high) << 16;
}
extern "C" u32 rt_pair(u32 a, u32 b, int what, int brain) {
  f32 found[2];
  for (int i = 0; i < 2; i++) {
    u16 x = a >> 16 * i, y = b >> 16 * i;
    f32 left = brain ? brain_value(x) : half_value(x);
    f32 right = brain ? brain_value(y) : half_value(y);
    found[i] = what == '*' ? left * right : what == '+' ? left + right : left - right;
  }
  return rt_pack(found[0], found[1], brain);
}
extern "C" f32 rt_from_f16(u32 bits) { return half_value(bits); }
extern "C" f32 rt_from_e4m3(u32 bits) { return eighth_value(bits & 0xff); }
extern "C" u32 rt_to_e4m3(f32 value) { return eighth_bits(value); }
extern "C" void rt_add_f32(void* address, f32 value) {
  if (u8* p = reach(address, 4, 4, true, "tw_add_f32")) {
    f32 old;
    memcpy(&old, p, 4);
    old += value;
    memcpy(p, &old, 4);
  }
}

// ---------------------------------------------------------------- within a warp
struct Exchange {
  void* value;
  u32 bytes;
  i32 from;
};
extern "C" void rt_shuffle(const char* what, void* value, u32 bytes, i32 from) {
  Exchange mine = {value, bytes, from};
  if (!meet(what, &mine)) return;
  Warp* w = rt_now->warp;
  u64 values[32] = {};
  for (u32 l = 0; l < w->lanes; l++) memcpy(&values[l], ((Exchange*)w->arguments[l])->value, bytes);
  for (u32 l = 0; l < w->lanes; l++) {
    Exchange* e = (Exchange*)w->arguments[l];
    if (e->from < 0 || e->from >= (i32)w->lanes)
      fault("%s: lane %u reads lane %d", what, l, e->from);
    else memcpy(e->value, &values[e->from], bytes);
  }
  part();
}
extern "C" u32 rt_lane() { return rt_now->lane; }
extern "C" void rt_sync_warp(const char* what) {
  rt_now->cta->waits_otherwise = true;
  if (meet(what, nullptr)) part();
}

// Matrices of 8 rows of 16 bytes; lane 8 i + r gives the address of row r of matrix i.
struct Tiles {
  u32 address, count, *registers[4];
};
static void move_tiles(const char* what, bool store, bool turn) {
  Warp* w = rt_now->warp;
  u32 count = ((Tiles*)w->arguments[0])->count;
  for (u32 l = 0; l < 8 * count; l++) {
    u32 offset = own_offset(((Tiles*)w->arguments[l])->address, 16, 16, what), r = l % 8;
    if (offset == ~0u) continue;
    Cta* cta = w->cta;
    if (store) check_write(cta, offset, 16, what);
    else check_read(cta, offset, 16, what);
    touch(rt_now - rt_now->lane + l, offset, 16, store, what);
    u16* row = (u16*)(cta->memory + offset);
    for (u32 c = 0; c < 8; c++) {
      u32 lane = turn ? 4 * c + r / 2 : 4 * r + c / 2, half = turn ? r % 2 : c % 2;
      u16* piece = (u16*)((Tiles*)w->arguments[lane])->registers[l / 8] + half;
      if (store) row[c] = *piece;
      else *piece = row[c];
    }
    if (store) mark_written(rt_now - rt_now->lane + l, offset, 16);
  }
}
extern "C" void rt_tiles(const char* what, int store, int turn, u32 address, u32 count, u32* a,
                         u32* b, u32* c, u32* d) {
  Tiles mine = {address, count, {a, b, c, d}};
  if (!meet(what, &mine)) return;
  if (rt_now->warp->lanes != 32) fault("%s: the warp has %u lanes", what, rt_now->warp->lanes);
  else move_tiles(what, store, turn);
  part();
}

// ---------------------------------------------------------------- operands
enum Kind {
  BRAIN, HALF, TF32, EIGHTH, FIFTH, EIGHTH_BY_FIFTH, FIFTH_BY_EIGHTH,
  SIGNED, UNSIGNED, UNSIGNED_BY_SIGNED, SIGNED_BY_UNSIGNED
};
static Kind left_of(Kind kind) {
  if (kind == EIGHTH_BY_FIFTH) return EIGHTH;
  if (kind == FIFTH_BY_EIGHTH) return FIFTH;
  return kind == UNSIGNED_BY_SIGNED ? UNSIGNED : kind == SIGNED_BY_UNSIGNED ? SIGNED : kind;
}
static Kind right_of(Kind kind) {
  if (kind == EIGHTH_BY_FIFTH) return FIFTH;
  if (kind == FIFTH_BY_EIGHTH) return EIGHTH;
  return kind == UNSIGNED_BY_SIGNED ? SIGNED : kind == SIGNED_BY_UNSIGNED ? UNSIGNED : kind;
}
static f32 eighth_table[256];
static void decode_row(Kind kind, const u8* bytes, u32 count, f32* to, u32 step) {  // `count` bytes
  const u16* pairs = (const u16*)bytes;
  const u32* quads = (const u32*)bytes;
  switch (kind) {
    case BRAIN:
      for (u32 i = 0; i < count / 2; i++) to[i * step] = brain_value(pairs[i]);
      break;
    case HALF:
      for (u32 i = 0; i < count / 2; i++) to[i * step] = half_value(pairs[i]);
      break;
    case TF32:
      for (u32 i = 0; i < count / 4; i++) to[i * step] = as_float(quads[i] & 0xffffe000);
      break;
    case EIGHTH:
      for (u32 i = 0; i < count; i++) to[i * step] = eighth_table[bytes[i]];
      break;
    case FIFTH:  // the upper byte of an f16
      for (u32 i = 0; i < count; i++) to[i * step] = half_value((u16)(bytes[i] << 8));
      break;
    case SIGNED:
      for (u32 i = 0; i < count; i++) to[i * step] = (signed char)bytes[i];
      break;
    case UNSIGNED:
      for (u32 i = 0; i < count; i++) to[i * step] = bytes[i];
      break;
  }
}
static u32 depth_of(Kind kind) { return kind <= HALF ? 16 : kind == TF32 ? 8 : 32; }
// c[rows][columns] = a[rows][depth] b[depth][columns]
static void product(const f32* a, const f32* b, f32* c, u32 rows, u32 depth, u32 columns) {
  for (u32 m = 0; m < rows; m++) {
    f32* row = c + m * columns;
    memset(row, 0, columns * sizeof *row);
    for (u32 k = 0; k < depth; k++) {
      f32 scale = a[m * depth + k];
      const f32* other = b + k * columns;
      for (u32 n = 0; n < columns; n++) row[n] += scale * other[n];
    }
  }
}
static void accumulate(Kind kind, void* d, u32 index, f32 value, bool keep) {
  if (kind >= SIGNED) ((i32*)d)[index] = (keep ? ((i32*)d)[index] : 0) + (i32)value;
  else ((f32*)d)[index] = keep ? ((f32*)d)[index] + value : value;
}
// Bytes of an A fragment's register r in its 32-byte row, and the row, of a lane.
static u32 fragment_row(u32 lane, u32 r) { return lane / 4 + 8 * (r & 1); }
static u32 fragment_byte(u32 lane, u32 r) { return 4 * (lane % 4) + 16 * (r >> 1); }

struct Small {
  void* d;
  const u32 *a, *b;
};
extern "C" void rt_mma(const char* what, int kind, void* d, const u32* a, const u32* b) {
  Small mine = {d, a, b};
  if (!meet(what, &mine)) return;
  Warp* w = rt_now->warp;
  u8 left[16][32], right[8][32];
  f32 x[16 * 32], y[32 * 8], z[16 * 8];
  u32 depth = depth_of((Kind)kind);
  for (u32 l = 0; l < w->lanes; l++) {
    Small* s = (Small*)w->arguments[l];
    for (u32 r = 0; r < 4; r++) memcpy(&left[fragment_row(l, r)][fragment_byte(l, r)], &s->a[r], 4);
    for (u32 r = 0; r < 2; r++) memcpy(&right[l / 4][4 * (l % 4) + 16 * r], &s->b[r], 4);
  }
  for (u32 m = 0; m < 16; m++) decode_row(left_of((Kind)kind), left[m], 32, x + m * depth, 1);
  for (u32 n = 0; n < 8; n++) decode_row(right_of((Kind)kind), right[n], 32, y + n, 8);
  product(x, y, z, 16, depth, 8);
  for (u32 l = 0; l < w->lanes; l++)
    for (u32 i = 0; i < 4; i++)
      accumulate((Kind)kind, ((Small*)w->arguments[l])->d, i,
                 z[(l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + i % 2], true);
  part();
}

// ---------------------------------------------------------------- wgmma
struct Step {  // one wgmma of a warp group
  const char* what;
  Kind kind;
  u32 n, arrived;
  u64 a, b;
  bool shared_a, turn_a, turn_b, keep;
  void* d[128];
  const u32* from[128];  // where each thread's operand in registers lies
  u8 rows[64][32];
  std::vector<u16> read;
};
struct Team {  // a warp group
  Cta* cta;
  u32 index, threads;
  std::deque<Step> steps;
  u64 first;  // number of steps[0]
  u64 full, executed, retired;
  std::vector<u64> ends;  // steps committed by each group
};
static const u32 SPAN[4] = {16, 128, 64, 32};
// Offsets (after the swizzle) of 16 bytes of an operand; false after a fault.
static bool chunk_at(const Team* t, const Step& s, u64 word, u32 offset, u32* to) {
  static const u32 swizzles[4] = {0, 128, 64, 32};
  u32 address = swizzled((u32)(word & 0x3fff) * 16 + offset, swizzles[word >> 62]);
  if (address < WINDOW || address - WINDOW + 16 > t->cta->bytes) {
    fault("%s: descriptor %#llx reads shared byte %d of %u", s.what, word, (i32)(address - WINDOW),
          t->cta->bytes);
    return false;
  }
  *to = address - WINDOW;
  return true;
}
template <typename F>
static void for_operand(const Team* t, const Step& s, u64 word, u32 rows, bool turned, F f) {
  u32 span = SPAN[word >> 62], leading = (word >> 16 & 0x3fff) * 16,
      stride = (word >> 32 & 0x3fff) * 16, at;
  bool plain = !(word >> 62);
  if (!turned) {
    for (u32 r = 0; r < rows; r++)
      for (u32 c = 0; c < 2; c++)
        if (chunk_at(t, s, word, r % 8 * span + r / 8 * stride + c * (plain ? leading : 16), &at))
          f(r, c, at);
    return;
  }
  u32 across = plain ? stride : leading, along = plain ? leading : stride;
  for (u32 k = 0; k < 16; k++)
    for (u32 r = 0; r < rows; r += 8)
      if (chunk_at(t, s, word, 2 * r % span + 2 * r / span * across + k % 8 * span + k / 8 * along,
                   &at))
        f(r, k, at);
}
// Values [k][row] (row_step 1) or [row][k] of a shared operand.
static void gather(const Team* t, const Step& s, Kind kind, u64 word, u32 rows, bool turned,
                   f32* to, u32 row_step, u32 k_step) {
  u32 half = depth_of(s.kind) / 2;
  for_operand(t, s, word, rows, turned, [&](u32 r, u32 k, u32 at) {
    const u8* from = t->cta->memory + at;
    if (turned) decode_row(kind, from, 16, to + k * k_step + r * row_step, row_step);
    else decode_row(kind, from, 16, to + r * row_step + k * half * k_step, k_step);
  });
}
static void check_step(Team* t, Step& s) {  // all 128 have issued it
  auto note = [&](u32, u32, u32 at) {
    check_proxy(t->cta, at / GRANULE, s.what);
    t->cta->readers[at / GRANULE]++;
    s.read.push_back(at / GRANULE);
  };
  if (s.shared_a) for_operand(t, s, s.a, 64, s.turn_a, note);
  for_operand(t, s, s.b, s.n, s.turn_b, note);
}
static void execute(Team* t, Step& s) {
  static f32 a[64 * 32], b[32 * 256], c[64 * 256];
  u32 depth = depth_of(s.kind);
  if (s.shared_a) gather(t, s, left_of(s.kind), s.a, 64, s.turn_a, a, depth, 1);
  else
    for (u32 m = 0; m < 64; m++) decode_row(left_of(s.kind), s.rows[m], 32, a + m * depth, 1);
  gather(t, s, right_of(s.kind), s.b, s.n, s.turn_b, b, 1, s.n);
  product(a, b, c, 64, depth, s.n);
  for (u32 thread = 0; thread < 128; thread++)
    for (u32 i = 0; i < s.n / 2; i++) {
      u32 lane = thread % 32, row = thread / 32 * 16 + lane / 4 + 8 * (i / 2 % 2),
          column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      accumulate(s.kind, s.d[thread], i, c[row * s.n + column], s.keep);
    }
}
static void execute_to(Team* t, u64 end) {
  for (; t->executed < end; t->executed++) execute(t, t->steps[t->executed - t->first]);
}
static void first_issue(Step& s, const char* what, int kind, u32 n, u64 a, u64 b, u32 form,
                        i32 keep) {
  const u64 unused = ~(0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 3ull << 62);
  s.what = what;
  s.kind = (Kind)kind;
  s.n = n;
  s.arrived = 0;
  s.a = a;
  s.b = b;
  s.keep = keep != 0;
  s.shared_a = form & 1;
  s.turn_a = form & 2;
  s.turn_b = form & 4;
  if ((s.shared_a && (a & unused)) || (b & unused))
    fault("%s: a descriptor sets reserved bits", what);
  u32 multiple = kind >= SIGNED && n > 24 ? 16 : 8;
  if (n < 8 || n > 256 || n % multiple) fault("%s: no such n", what);
  if ((s.turn_a || s.turn_b) && kind > HALF)
    fault("%s: only 16-bit operands may lie MN-major", what);
}
static u8* register_at(Step& s, u32 thread, u32 r) {
  u32 lane = thread % 32;
  return &s.rows[thread / 32 * 16 + fragment_row(lane, r)][fragment_byte(lane, r)];
}
extern "C" void rt_wgmma(const char* what, int kind, u32 n, void* d, u64 a, const u32* registers,
                         u64 b, u32 form, i32 keep) {
  Fiber* f = rt_now;
  Team* t = f->team;
  if (t->threads != 128) {
    fault("%s: the warp group has %u threads", what, t->threads);
    return;
  }
  if (!f->fenced) fault("%s: no tw_wgmma_fence before the first wgmma after a wait", what);
  u64 place = f->issued++ - t->first;
  if (place == t->steps.size()) {
    t->steps.emplace_back();
    first_issue(t->steps.back(), what, kind, n, a, b, form, keep);
  }
  Step& s = t->steps[place];
  if (strcmp(s.what, what) || s.b != b || (s.shared_a && s.a != a) || s.keep != (keep != 0))
    fault("%s: threads of the warp group disagree on operands (first was %s)", what, s.what);
  u32 thread = f->index % 128;
  s.d[thread] = d;
  s.from[thread] = registers;
  if (!s.shared_a) {
    if (!f->ordered)
      fault("%s: no tw_wgmma_fence between writing the operand's registers and reading them", what);
    for (u32 r = 0; r < 4; r++) memcpy(register_at(s, thread, r), &registers[r], 4);
  }
  if (++s.arrived < 128) return;
  t->full++;
  events++;
  check_step(t, s);
  if (!(launch->mode & LAZY_MATRIX)) execute_to(t, t->full);
}
extern "C" void rt_wgmma_fence() { rt_now->fenced = rt_now->ordered = true; }
extern "C" void rt_wgmma_commit() {
  Fiber* f = rt_now;
  Team* t = f->team;
  f->ordered = false;
  if (f->committed == t->ends.size()) t->ends.push_back(f->issued);
  if (t->ends[f->committed++] != f->issued)
    fault("tw_wgmma_commit: threads of the warp group disagree on the group");
}
static void check_registers(Step& s) {  // until now they were being read
  for (u32 thread = 0; thread < 128; thread++)
    for (u32 r = 0; r < 4; r++)
      if (memcmp(register_at(s, thread, r), &s.from[thread][r], 4)) {
        fault("%s: registers of its operand were written before a tw_wgmma_wait for it", s.what);
        return;
      }
}
static void retire(Team* t, u64 end) {
  for (; t->retired < end; t->retired++) {
    Step& s = t->steps.front();
    if (!s.shared_a) check_registers(s);
    for (u16 granule : s.read) t->cta->readers[granule]--;
    t->steps.pop_front();
    t->first++;
  }
}
extern "C" void rt_wgmma_wait(u32 left) {
  Fiber* f = rt_now;
  Team* t = f->team;
  if (left == 0 || f->committed > left) f->fenced = false;
  if (f->committed <= left) return;
  u64 end = t->ends[f->committed - left - 1];
  if (t->full < end) block(MATRIX, "tw_wgmma_wait", end);
  execute_to(t, end);
  retire(t, end);
}
"""
