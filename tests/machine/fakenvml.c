/* A stand-in for NVIDIA's libnvidia-ml.so.1, for machines without a GPU.
 *
 * It knows no system by itself: FAKENVML_PROFILE names a text file of answers, one per line, each
 *     FUNCTION A B VALUE
 * where A is a GPU and B a second GPU, a link or whatever else the function is asked about; a minus stands for "any".
 *     = nvmlDeviceGetName 0 - NVIDIA H100 80GB HBM3        an answer
 *     ! nvmlDeviceGetName 0 - 15                           the call fails with this nvmlReturn_t
 *     ~ nvmlInitWithFlags - - 2000                         the call takes this many milliseconds first
 * A question without an answer fails with NVML_ERROR_NOT_SUPPORTED, as real drivers do. The structures and numbers below are those
 * of NVIDIA's public nvml.h; only reading is implemented. FAKENVML_LOG names a file that gets one line per call.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef unsigned int u32;
typedef unsigned long long u64;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, VERSION_MISMATCH = 25 };
enum { ANY = -1, GPUS = 64, SLICES = 8, ANSWERS = 16384 };

typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef union { double d; int i; u32 u; unsigned long l; u64 ull; long long ll; } Value;
typedef struct { u32 field, scope; long long timestamp, latency; u32 type; nvmlReturn_t code; Value value; } Field;
typedef struct { u32 pid; u64 memory; u32 gpuInstance, computeInstance; } Process;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { unsigned char cluster[16]; nvmlReturn_t status; u32 clique; unsigned char state; } Fabric1;
typedef struct { u32 version; unsigned char cluster[16]; nvmlReturn_t status; u32 clique; unsigned char state; u32 health; } Fabric2;
typedef struct { u32 environment, feature, developerTools; } ConfidentialCompute;
_Static_assert(sizeof(Memory2) == 40 && sizeof(Pci) == 68 && sizeof(Field) == 40 && sizeof(Process) == 24, "layout of nvml.h");
_Static_assert(sizeof(Fabric1) == 28 && sizeof(Fabric2) == 36, "layout of nvml.h");

typedef struct { char mark, function[48], value[128]; int a, b; } Answer;
static Answer answers[ANSWERS];
static int count, initialized;
static char handles[GPUS * (SLICES + 1)];            /* a handle is the address of a byte: first the GPUs, then their MIG slices */

static int number_or_any(const char *text) { return *text == '-' ? ANY : atoi(text); }

static void load(void) {
  const char *path = getenv("FAKENVML_PROFILE");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[320], a[16], b[16];
  count = 0;
  while (file && count < ANSWERS && fgets(line, sizeof line, file)) {
    Answer *x = &answers[count];
    int read = 0;
    if (sscanf(line, "%c %47s %15s %15s %n", &x->mark, x->function, a, b, &read) < 4) continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(x->value, sizeof x->value, "%s", line + read);
    x->a = number_or_any(a);
    x->b = number_or_any(b);
    count++;
  }
  if (file) fclose(file);
}

static const char *look_up(char mark, const char *function, int a, int b) {
  for (int i = 0; i < count; i++) {
    Answer *x = &answers[i];
    if (x->mark == mark && (x->a == ANY || x->a == a) && (x->b == ANY || x->b == b) && !strcmp(x->function, function)) return x->value;
  }
  return NULL;
}

/* What every call does first: write the log, take its time, fail if the profile says so. */
static nvmlReturn_t enter(const char *function, int a, int b) {
  const char *log = getenv("FAKENVML_LOG"), *delay = look_up('~', function, a, b), *failure = look_up('!', function, a, b);
  FILE *file = log ? fopen(log, "a") : NULL;
  if (file) { fprintf(file, "%s %d %d\n", function, a, b); fclose(file); }
  if (delay) usleep(1000u * atoi(delay));
  if (failure) return atoi(failure);
  return initialized || !strncmp(function, "nvmlInit", 8) ? OK : UNINITIALIZED;
}

static int device(void *handle) {
  long place = (char *)handle - handles;
  return place >= 0 && place < (long)sizeof handles ? (int)place : -1;
}

#define EXPORT __attribute__((visibility("default")))
#define ENTER(a, b) do { nvmlReturn_t code = enter(__func__, a, b); if (code) return code; } while (0)
#define DEVICE(handle) int a = device(handle); if (a < 0) return INVALID
#define ASK(text, a, b) const char *text = look_up('=', __func__, a, b); if (!text) return NOT_SUPPORTED

static nvmlReturn_t copy(const char *text, char *buffer, u32 length) {
  if (strlen(text) >= length) return TOO_SMALL;
  strcpy(buffer, text);
  return OK;
}

#define SYSTEM_TEXT(name) EXPORT nvmlReturn_t name(char *buffer, u32 length) { ENTER(ANY, ANY); ASK(text, ANY, ANY); return copy(text, buffer, length); }
#define TEXT(name) EXPORT nvmlReturn_t name(void *h, char *buffer, u32 length) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); return copy(text, buffer, length); }
#define NUMBER(name) EXPORT nvmlReturn_t name(void *h, u32 *out) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); *out = strtoul(text, 0, 0); return OK; }
#define LONG(name) EXPORT nvmlReturn_t name(void *h, u64 *out) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); *out = strtoull(text, 0, 0); return OK; }
#define NUMBER_OF(name) EXPORT nvmlReturn_t name(void *h, u32 b, u32 *out) { DEVICE(h); ENTER(a, b); ASK(text, a, (int)b); *out = strtoul(text, 0, 0); return OK; }
#define TWO(name, type) EXPORT nvmlReturn_t name(void *h, type *x, type *y) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); return sscanf(text, "%u %u", (u32 *)x, (u32 *)y) == 2 ? OK : INVALID; }

/* ---- the system */
EXPORT nvmlReturn_t nvmlInitWithFlags(u32 flags) { (void)flags; load(); ENTER(ANY, ANY); initialized = 1; return OK; }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlShutdown(void) { ENTER(ANY, ANY); initialized = 0; return OK; }
EXPORT const char *nvmlErrorString(nvmlReturn_t code) { return code ? "an error of the stand-in" : "Success"; }
SYSTEM_TEXT(nvmlSystemGetDriverVersion)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(ANY, ANY); ASK(text, ANY, ANY); *out = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(ConfidentialCompute *out) { ENTER(ANY, ANY); ASK(text, ANY, ANY); memset(out, 0, sizeof *out); out->feature = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(u32 *out) { ENTER(ANY, ANY); ASK(text, ANY, ANY); *out = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 index, void **out) { ENTER((int)index, ANY); if (index >= GPUS) return INVALID; *out = &handles[index]; return OK; }

/* ---- one GPU */
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
NUMBER(nvmlDeviceGetNumaNodeId)
NUMBER(nvmlDeviceGetModuleId)
NUMBER(nvmlDeviceGetVirtualizationMode)
NUMBER(nvmlDeviceGetC2cModeInfoV)
NUMBER(nvmlDeviceGetMaxMigDeviceCount)
LONG(nvmlDeviceGetCurrentClocksEventReasons)
NUMBER_OF(nvmlDeviceGetTemperature)
NUMBER_OF(nvmlDeviceGetClockInfo)
NUMBER_OF(nvmlDeviceGetMaxClockInfo)
TWO(nvmlDeviceGetCudaComputeCapability, int)
TWO(nvmlDeviceGetEccMode, u32)
TWO(nvmlDeviceGetMigMode, u32)

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(void *h, u32 kind, u32 counter, u64 *out) {
  (void)counter;
  DEVICE(h); ENTER(a, (int)kind); ASK(text, a, (int)kind);
  *out = strtoull(text, 0, 0);
  return OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(void *h, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
  DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY);
  return sscanf(text, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? OK : INVALID;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(void *h, Utilization *out) {
  DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY);
  return sscanf(text, "%u %u", &out->gpu, &out->memory) == 2 ? OK : INVALID;
}

/* "total reserved used" in bytes; the first version of the call counts what is reserved as used. */
static nvmlReturn_t memory_of(int a, u64 *total, u64 *reserved, u64 *used) {
  const char *text = look_up('=', "nvmlDeviceGetMemoryInfo", a, ANY);
  return !text ? NOT_SUPPORTED : sscanf(text, "%llu %llu %llu", total, reserved, used) == 3 ? OK : INVALID;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(void *h, Memory *out) {
  u64 reserved = 0;
  DEVICE(h); ENTER(a, ANY);
  nvmlReturn_t code = memory_of(a, &out->total, &reserved, &out->used);
  out->used += reserved;
  out->free = out->total - out->used;
  return code;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(void *h, Memory2 *out) {
  DEVICE(h); ENTER(a, ANY);
  if (out->version != 0x2000028) return VERSION_MISMATCH;
  nvmlReturn_t code = memory_of(a, &out->total, &out->reserved, &out->used);
  out->free = out->total - out->used - out->reserved;
  return code;
}

static void fill_pci(Pci *out, const char *bus_id) {
  u32 function = 0;
  memset(out, 0, sizeof *out);
  sscanf(bus_id, "%x:%x:%x.%x", &out->domain, &out->bus, &out->device, &function);
  snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
  snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus & 0xff, out->device & 0xff);
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(void *h, Pci *out) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); fill_pci(out, text); return OK; }

/* "pid:bytes pid:bytes"; no answer is an empty list. */
static nvmlReturn_t processes(const char *text, u32 *n, Process *out) {
  u32 room = *n;
  *n = 0;
  for (; text && *text; text += strspn(text, " ")) {
    Process found = {0, 0, ~0u, ~0u};
    if (sscanf(text, "%u:%llu", &found.pid, &found.memory) != 2) break;
    if (out && *n < room) out[*n] = found;
    ++*n;
    text += strcspn(text, " ");
  }
  return *n > (out ? room : 0) ? TOO_SMALL : OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, Process *out) { DEVICE(h); ENTER(a, ANY); return processes(look_up('=', __func__, a, ANY), n, out); }
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, u32 *n, Process *out) { DEVICE(h); ENTER(a, ANY); return processes(look_up('=', __func__, a, ANY), n, out); }

/* A slice exists where it has a name: slice k of GPU a is asked about as device GPUS + SLICES * a + k. */
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 index, void **out) {
  DEVICE(h); ENTER(a, (int)index);
  int place = GPUS + SLICES * a + (int)index;
  if (index >= SLICES || !look_up('=', "nvmlDeviceGetName", place, 0)) return NOT_FOUND;
  *out = &handles[place];
  return OK;
}

static void set_bits(const char *text, unsigned long *out, u32 words) {      /* 0-3,8 */
  memset(out, 0, words * sizeof *out);
  while (*text) {
    char *end;
    unsigned long from = strtoul(text, &end, 10), to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
    if (end == text) break;
    for (; from <= to; from++) if (from / 64 < words) out[from / 64] |= 1ul << from % 64;
    text = *end == ',' ? end + 1 : end;
  }
}
EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(void *h, u32 words, unsigned long *out) { DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); set_bits(text, out, words); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(void *h, u32 words, unsigned long *out, u32 scope) { (void)scope; DEVICE(h); ENTER(a, ANY); ASK(text, a, ANY); set_bits(text, out, words); return OK; }

/* ---- pairs; answers are looked up with the lower index first */
static const char *pair(const char *function, int a, int b) { return look_up('=', function, a < b ? a : b, a < b ? b : a); }
EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(void *h, void *other, u32 *out) {
  DEVICE(h);
  int b = device(other);
  ENTER(a, b);
  const char *text = pair(__func__, a, b);
  if (!text) return NOT_SUPPORTED;
  *out = atoi(text);
  return OK;
}
/* "read write nvlink atomics pci", as numbers of nvmlGpuP2PStatus_t */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(void *h, void *other, u32 index, u32 *out) {
  DEVICE(h);
  int b = device(other), status[5];
  ENTER(a, b);
  const char *text = pair(__func__, a, b);
  if (!text || sscanf(text, "%d %d %d %d %d", &status[0], &status[1], &status[2], &status[3], &status[4]) != 5) return NOT_SUPPORTED;
  if (index > 4) return INVALID;
  *out = status[index];
  return OK;
}

/* ---- NVLink: a link exists where its state is told */
#define LINK(h) DEVICE(h); ENTER(a, (int)link); if (!look_up('=', "nvmlDeviceGetNvLinkState", a, (int)link)) return link ? INVALID : NOT_SUPPORTED; ASK(text, a, (int)link)
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(void *h, u32 link, u32 *out) { LINK(h); *out = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(void *h, u32 link, u32 *out) { LINK(h); *out = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(void *h, u32 link, u32 *out) { LINK(h); *out = atoi(text); return OK; }
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, u32 link, Pci *out) { LINK(h); fill_pci(out, text); return OK; }

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(void *h, int n, Field *fields) {
  DEVICE(h); ENTER(a, ANY);
  for (int i = 0; i < n; i++) {
    char name[48];
    snprintf(name, sizeof name, "field:%u", fields[i].field);
    const char *text = look_up('=', name, a, (int)fields[i].scope);
    fields[i].code = enter(name, a, (int)fields[i].scope);
    if (!fields[i].code && !text) fields[i].code = NOT_SUPPORTED;
    fields[i].type = 1;
    fields[i].value.ull = text ? strtoull(text, 0, 0) : 0;
  }
  return OK;
}

/* "state status clique health cluster-in-hex" */
static nvmlReturn_t fabric(int a, Fabric2 *out) {
  const char *text = look_up('=', "nvmlDeviceGetGpuFabricInfoV", a, ANY);
  u32 state, status, byte;
  char cluster[40] = "";
  if (!text || sscanf(text, "%u %u %u %u %39s", &state, &status, &out->clique, &out->health, cluster) < 4) return NOT_SUPPORTED;
  out->state = state;
  out->status = status;
  for (int i = 0; i < 16; i++) out->cluster[i] = sscanf(cluster + 2 * i, "%2x", &byte) == 1 ? byte : 0;
  return OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(void *h, Fabric2 *out) {
  DEVICE(h); ENTER(a, ANY);
  return out->version == 0x2000024 || out->version == 0x3000028 ? fabric(a, out) : VERSION_MISMATCH;
}
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(void *h, Fabric1 *out) {
  Fabric2 found;
  DEVICE(h); ENTER(a, ANY);
  nvmlReturn_t code = fabric(a, &found);
  if (code) return code;
  memcpy(out->cluster, found.cluster, 16);
  out->status = found.status;
  out->clique = found.clique;
  out->state = found.state;
  return OK;
}
