/* SPDX-License-Identifier: Apache-2.0 */
#include "../support/user_files.h"
#include "advice.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct gpu_kind {
    const char *id; /* PCI vendor, or driver of a chip that is not on PCI */
    const char *name;
    const char *driver;  /* file in /etc/OpenCL/vendors */
    const char *own;     /* the vendor's driver where `driver` is Mesa's; NULL: none */
    const char *package; /* Debian's package of `driver` */
    const char *rusticl; /* value of RUSTICL_ENABLE; NULL: the driver is not Mesa's */
} gpu_kind;

static const gpu_kind kinds[] = {
    {"0x10de", "NVIDIA", "nvidia.icd", NULL, "nvidia-opencl-icd", NULL},
    {"0x1002", "AMD", "rusticl.icd", "amdocl64.icd", "mesa-opencl-icd", "radeonsi"},
    {"0x8086", "Intel", "rusticl.icd", "intel.icd", "mesa-opencl-icd", "iris"},
    {"msm", "Qualcomm Adreno", "rusticl.icd", NULL, "mesa-opencl-icd", "freedreno"},
    {"panfrost", "Arm Mali", "rusticl.icd", NULL, "mesa-opencl-icd", "panfrost"},
    {"panthor", "Arm Mali", "rusticl.icd", NULL, "mesa-opencl-icd", "panfrost"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct probe {
    const char *root;
    bool found[N_KINDS];
    char closed_node[PATH_MAX]; /* a render node that the user may not open; "": none */
} probe;

/* Calls visit for each name in root/directory that begins with `prefix`. */
static void each_name(probe *p, const char *directory, const char *prefix,
                      void (*visit)(probe *p, const char *path)) {
    char path[PATH_MAX], entry[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s%s", p->root, directory) >= sizeof path) return;
    DIR *d = opendir(path);
    if (!d) return;
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.' || strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        if (path_join(entry, path, e->d_name)) visit(p, entry);
    }
    closedir(d);
}

static bool read_line(const char *dir, const char *name, char *line, int cap) {
    char path[PATH_MAX];
    line[0] = '\0';
    FILE *f = path_join(path, dir, name) ? fopen(path, "re") : NULL;
    if (!f) return false;
    const bool has_line = fgets(line, cap, f) != NULL;
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    return has_line;
}

static void note_kind(probe *p, const char *id) {
    for (size_t i = 0; i < N_KINDS; i++)
        if (!strcmp(kinds[i].id, id)) p->found[i] = true;
}

/* PCI class 0x03....: display controllers, with and without an output. */
static void visit_pci(probe *p, const char *path) {
    char class[32], vendor[32];
    if (!read_line(path, "class", class, sizeof class) || strncmp(class, "0x03", 4) != 0) return;
    if (read_line(path, "vendor", vendor, sizeof vendor)) note_kind(p, vendor);
}

/* The first line of uevent names the driver of a chip: "DRIVER=msm". */
static void visit_drm(probe *p, const char *path) {
    char line[64];
    static const char key[] = "DRIVER=";
    if (read_line(path, "device/uevent", line, sizeof line) && !strncmp(line, key, strlen(key)))
        note_kind(p, line + strlen(key));
}

static void visit_node(probe *p, const char *path) {
    if (access(path, R_OK | W_OK) != 0) snprintf(p->closed_node, PATH_MAX, "%s", path);
}

static bool is_installed(const char *root, const char *driver) {
    char icd[PATH_MAX];
    snprintf(icd, sizeof icd, "%s/etc/OpenCL/vendors/%s", root, driver);
    return access(icd, F_OK) == 0;
}

static void advise_on_kind(json_t **list, const char *root, const gpu_kind *k,
                           const backend_entry *opencl) {
    const char *enabled = getenv("RUSTICL_ENABLE");
    const bool has_own = k->own && is_installed(root, k->own);
    if (!has_own && !is_installed(root, k->driver)) {
        advise(list, "opencl", "a GPU of %s has no OpenCL driver: sudo apt install %s%s%s%s",
               k->name, k->package, " ocl-icd-libopencl1",
               k->rusticl ? "; then set RUSTICL_ENABLE=" : "", k->rusticl ? k->rusticl : "");
    } else if (!has_own && k->rusticl && !(enabled && strstr(enabled, k->rusticl))) {
        advise(list, "opencl", "a GPU of %s is off in Mesa's driver: set RUSTICL_ENABLE=%s",
               k->name, k->rusticl);
    } else {
        advise(list, "opencl", "the driver %s offers no GPU of %s: %s",
               has_own ? k->own : k->driver, k->name,
               opencl->no_devices ? opencl->no_devices : "only other devices");
    }
}

static bool has_gpu(const backend_entry *e) {
    for (size_t i = 0; i < e->n_devices; i++)
        if (!strcmp(e->devices[i].kind, "gpu")) return true;
    return false;
}

void advise_on_gpus(json_t **list, const char *root, const backend_entry *opencl) {
    probe p = {.root = root};
    each_name(&p, "/sys/bus/pci/devices", "", visit_pci);
    each_name(&p, "/sys/class/drm", "renderD", visit_drm);
    each_name(&p, "/dev/dri", "renderD", visit_node);
    bool any = false;
    for (size_t i = 0; i < N_KINDS; i++) any = any || p.found[i];
    if (!opencl) {
        if (any)
            advise(list, "opencl", "this program was built without GPUs: it uses the CPU only");
        return;
    }
    if (has_gpu(opencl)) {
        advise(list, "opencl", "the CPU computes unless -b opencl is given");
        return;
    }
    if (opencl->n_devices)
        advise(list, "opencl",
               "OpenCL offers no GPU here: -b opencl is slower than the default, -b cpu");
    if (any && p.closed_node[0])
        advise(list, "opencl",
               "%s may not be opened: sudo usermod -aG render $USER, then log in again",
               p.closed_node);
    for (size_t i = 0; i < N_KINDS; i++)
        if (p.found[i]) advise_on_kind(list, root, &kinds[i], opencl);
}

json_t *opencl_drivers(const char *root) {
    char path[PATH_MAX];
    json_t *list = json_array();
    struct dirent **names = NULL;
    snprintf(path, sizeof path, "%s/etc/OpenCL/vendors", root);
    const int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (path_ends_in(names[i]->d_name, ".icd"))
            json_append(&list, json_text(names[i]->d_name, strlen(names[i]->d_name)));
        free(names[i]);
    }
    free(names);
    return list;
}
