/* A stand-in for NVIDIA's library NVML (libnvidia-ml.so.1): GPUs as the variable FAKE_GPUS describes them.
 *
 * FAKE_GPUS is a list with semicolons between GPUs: UUID,MODEL,MEMORY_MIB,USED_MIB,PERCENT[,MIG UUID...]. A GPU with a
 * sixth field is in MIG mode; each further field is the UUID of a MIG instance ("-" leaves a gap, as deleted instances do).
 * A GPU whose model is "lost" answers with an error. FAKE_NVML_ERROR is the result of the initialization.
 * FAKE_USE names a file with "UUID USED_MIB PERCENT" lines that replace the use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15, MOST = 16 };

typedef struct device {
    char uuid[96], model[96];
    unsigned long long total, used;
    unsigned percent, index, mig, instances;
    struct device *parts[MOST];
} device;

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } utilization;

static device *gpus[MOST];
static unsigned count;

static device *parse(char *text, unsigned index) {
    device *gpu = calloc(1, sizeof *gpu);
    char *rest = text, *field;
    for (int number = 0; (field = strsep(&rest, ",")) != NULL; number++) {
        if (number == 0) snprintf(gpu->uuid, sizeof gpu->uuid, "%s", field);
        else if (number == 1) snprintf(gpu->model, sizeof gpu->model, "%s", field);
        else if (number == 2) gpu->total = strtoull(field, NULL, 10) << 20;
        else if (number == 3) gpu->used = strtoull(field, NULL, 10) << 20;
        else if (number == 4) gpu->percent = (unsigned)atoi(field);
        else {
            gpu->mig = 1;
            unsigned place = gpu->instances++;
            if (*field == '\0' || strcmp(field, "-") == 0) continue;
            device *part = gpu->parts[place] = calloc(1, sizeof *part);
            snprintf(part->uuid, sizeof part->uuid, "%s", field);
            snprintf(part->model, sizeof part->model, "%.60s MIG 1g.5gb", gpu->model);
            part->total = 5ull << 30;
            part->used = 1ull << 30;
            part->index = place;
            part->mig = 2;
        }
    }
    gpu->index = index;
    return gpu;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *error = getenv("FAKE_NVML_ERROR");
    if (error != NULL) return atoi(error);
    char *given = strdup(getenv("FAKE_GPUS") ? getenv("FAKE_GPUS") : ""), *rest = given, *one;
    count = 0;
    while ((one = strsep(&rest, ";")) != NULL && count < MOST)
        if (*one != '\0') {
            gpus[count] = parse(one, count);
            count++;
        }
    free(given);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    return error == GPU_IS_LOST ? "GPU is lost" : error == 18 ? "Driver/library version mismatch" : "an error";
}

int nvmlDeviceGetCount_v2(unsigned *found) { *found = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **found) {
    if (index >= count) return INVALID;
    *found = gpus[index];
    return strcmp(gpus[index]->model, "lost") == 0 ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device **found) {
    for (unsigned index = 0; index < count; index++) {
        if (strcmp(gpus[index]->uuid, uuid) == 0) { *found = gpus[index]; return SUCCESS; }
        for (unsigned part = 0; part < gpus[index]->instances; part++)
            if (gpus[index]->parts[part] != NULL && strcmp(gpus[index]->parts[part]->uuid, uuid) == 0) {
                *found = gpus[index]->parts[part];
                return SUCCESS;
            }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(device *gpu, char *text, unsigned length) { snprintf(text, length, "%s", gpu->uuid); return SUCCESS; }

int nvmlDeviceGetName(device *gpu, char *text, unsigned length) { snprintf(text, length, "%s", gpu->model); return SUCCESS; }

static void use_now(device *gpu, unsigned long long *used, unsigned *percent) {
    *used = gpu->used;
    *percent = gpu->percent;
    const char *name = getenv("FAKE_USE");
    FILE *file = name ? fopen(name, "r") : NULL;
    if (file == NULL) return;
    char uuid[96];
    unsigned long long mebibytes;
    unsigned busy;
    while (fscanf(file, "%95s %llu %u", uuid, &mebibytes, &busy) == 3)
        if (strcmp(uuid, gpu->uuid) == 0) { *used = mebibytes << 20; *percent = busy; }
    fclose(file);
}

int nvmlDeviceGetMemoryInfo(device *gpu, memory *found) {
    unsigned percent;
    use_now(gpu, &found->used, &percent);
    found->total = gpu->total;
    found->free = found->total - found->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device *gpu, utilization *found) {
    if (gpu->mig == 2) return NOT_SUPPORTED;
    unsigned long long used;
    use_now(gpu, &used, &found->gpu);
    found->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device *gpu, unsigned *current, unsigned *pending) {
    *current = *pending = gpu->mig == 1;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device *gpu, unsigned *found) { *found = gpu->instances; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, unsigned index, device **found) {
    if (index >= gpu->instances || gpu->parts[index] == NULL) return NOT_FOUND;
    *found = gpu->parts[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(device *part, unsigned *found) { *found = part->index + 7; return SUCCESS; }

int nvmlDeviceGetComputeInstanceId(device *part, unsigned *found) { (void)part; *found = 0; return SUCCESS; }
